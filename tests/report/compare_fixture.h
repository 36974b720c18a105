// A made-up comparison for its page.
#pragma once

#include <nlohmann/json.hpp>

#include "report/page_fixture.h"

namespace unchain::report {

using nlohmann::json;

inline json compared(double mean) {
  return {{"unit", "window"}, {"units", 4}, {"mean", mean}, {"median", mean}, {"low", mean - 0.5}, {"high", mean + 1}};
}

inline json grown(int64_t tokens, double loss) {
  return {{"tokens", tokens},
          {"loss_nats", compared(loss)},
          {"cache_numbers", 64 * tokens},
          {"state_numbers", 100},
          {"multiply_adds", 32 * tokens + 7}};
}

// Three models; the loss differs clearly in the second alone, λ is in the others alone.
inline json compare_results() {
  const auto pair = [](const char* measure, const char* model, double difference, double half) {
    return json{{"measure", measure},
                {"unit", "window"},
                {"model", model},
                {"against", "first"},
                {"units", 4},
                {"difference", difference},
                {"median", difference},
                {"low", difference - half},
                {"high", difference + half}};
  };
  return {
      {"schema", 1},
      {"command", "compare"},
      {"version", "0"},
      {"settings", {{"text", "a.txt"}}},
      {"models",
       {{{"name", "first"},
         {"tokens", 96},
         {"perplexity", 54.5},
         {"measures", {{"loss_nats", compared(4)}, {"sink_mass", compared(2)}, {"lambda", nullptr}}},
         {"growth", {grown(8, 4.5), grown(16, 4)}}},
        {{"name", "<i>second"},
         {"tokens", 96},
         {"growth", {grown(8, 5), grown(16, 4.25)}},
         {"measures", {{"loss_nats", compared(3)}, {"sink_mass", compared(2)}, {"lambda", compared(0.5)}}}},
        {{"name", "third"}, {"tokens", 96}, {"measures", {{"loss_nats", compared(5)}, {"lambda", compared(0.25)}}}}}},
      {"paired",
       {pair("loss_nats", "<i>second", -1, 0.5), pair("sink_mass", "<i>second", 0.5, 1),
        pair("loss_nats", "third", 1, 2)}}};
}

// Maps and singular values of the models. The second has more layers and heads than the first; the third's are broken.
inline json compare_extras() {
  // Codes 255, 51, 204; then 255, 102, 153 with bit 1 as a sign, and 255, 51, 51.
  return json::parse(R"({"models": [
    {"name": "first", "tokens": ["a", "b"], "layers": [{"layer": 0, "heads": [{"head": 0}]}],
     "excerpt": {"size": 2, "scale": "sqrt", "maps": [["/zPM"]]}, "spectra": [[[1, 0.5]]]},
    {"name": "<i>second", "tokens": ["c", "d"],
     "layers": [{"layer": 0, "heads": [{"head": 0}, {"head": 1}]}, {"layer": 1, "heads": [{"head": 0}, {"head": 1}]}],
     "excerpt": {"size": 2, "scale": "sqrt", "maps": [["/2aZ", "/zMz"], ["/2aZ", "/zMz"]],
                 "signs": [["Ag==", null], [null, null]]},
     "spectra": [[[1, 0.25], [1]], [[1, 0.125], [1]]]},
    {"name": 5}]})");
}

}  // namespace unchain::report
