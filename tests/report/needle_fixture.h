// Made-up needle results for their page.
#pragma once

#include <nlohmann/json.hpp>

namespace unchain::report {

using nlohmann::json;

// Needle results of two lengths and three depths; the values tell the cells apart.
inline json needle_results(int samples) {
  const auto measure = [&](double mean) {
    return json{{"mean", mean},
                {"median", mean},
                {"low", samples > 1 ? json(mean / 2) : json()},
                {"high", samples > 1 ? json(mean * 2) : json()}};
  };
  json results = {{"schema", 1},
                  {"command", "needle"},
                  {"version", "0"},
                  {"accuracy", 0.5},
                  {"accuracy_low", 0.3},
                  {"accuracy_high", 0.7},
                  {"right", 12},
                  {"asked", 24},
                  {"chance", 0.25},
                  {"cells", json::array()},
                  {"layers", json::array()},
                  {"attention_on_answer", measure(0.04)},
                  {"model", {{"name", "tiny <b>"}}},
                  {"settings", {{"needles", 4}, {"queries", 2}, {"samples", samples}}}};
  for (int i = 0; i < 6; ++i) {
    const json answer = {{"city", "Kamark"},
                         {"number", "42"},
                         {"text", " <img src=x onerror=1>\n42;"},
                         {"right", i % 2 == 0},
                         {"attention_on_answer", 0.01 * i}};
    const json sample = {{"sample", 0}, {"real_depth", 0.1 * i}, {"prompt_tokens", 200}, {"answers", {answer, answer}}};
    results["cells"].push_back(
        {{"length", i < 3 ? 128 : 256},
         {"depth", 0.5 * (i % 3)},
         {"real_depth", 0.1 * i},
         {"prompt_tokens", 200},
         {"asked", 4},
         {"right", i % 5},
         {"accuracy", (i % 5) / 4.0},
         {"low", 0},
         {"high", 1},
         {"first", {{"asked", 2}, {"right", i % 3}, {"accuracy", (i % 3) / 2.0}, {"low", 0}, {"high", 1}}},
         {"attention_on_answer", measure(0.01 * (i + 1))},
         {"samples", {sample}}});
  }
  for (int l = 0; l < 2; ++l) {
    json heads = json::array();
    for (int h = 0; h < 3; ++h) heads.push_back({{"attention_on_answer", measure(0.1 * l + 0.01 * h)}});
    results["layers"].push_back({{"layer", l}, {"heads", heads}});
  }
  return results;
}

// A row of attention. Layer 0 has a noise term, layer 3 none. The answer is tokens 2 and 3; head 1 of layer 0 has the
// largest share on it.
inline json needle_row() {
  return {{"tokens", {"<s>", "Kam <b>", "4", "2", ";"}},
          {"number", {2, 4}},
          {"city", "Kamark <b>"},
          {"answer", "42"},
          {"text", "42;\n"},
          {"right", true},
          {"length", 64},
          {"depth", 0.5},
          {"sample", 0},
          {"layers",
           {{{"layer", 0},
             {"positive", {{0.5, 0.1, 0.1, 0.1, 0.2}, {0.3, 0.1, 0.4, 0.15, 0.05}}},
             {"noise", {{0.2, 0.2, 0.2, 0.2, 0.2}, {0.6, 0.1, 0.1, 0.1, 0.1}}},
             {"lambda", {0.25, 0.617}}},
            {{"layer", 3},
             {"positive", {{0.2, 0.2, 0.2, 0.2, 0.2}, {1, 0, 0, 0, 0}}},
             {"noise", nullptr},
             {"lambda", nullptr}}}}};
}

}  // namespace unchain::report
