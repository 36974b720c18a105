// A made-up study for its page, and how to read what the page shows of it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/page_fixture.h"

namespace unchain::report {

using nlohmann::json;

// A study of two members and two seeds with three claims, one of two parts and one without runs.
inline json study_results() {
  const auto part = [](const char* direction, const json& threshold, const json& mean, const char* verdict) {
    return json{{"measure", "loss_nats"},
                {"comparison", "difference"},
                {"of", "diff_v2"},
                {"against", "softmax"},
                {"reference", nullptr},
                {"track", "language"},
                {"size", "s"},
                {"direction", direction},
                {"threshold", threshold},
                {"mean", mean},
                {"low", mean.is_null() ? json() : json(mean.get<double>() - 0.5)},
                {"high", mean.is_null() ? json() : json(mean.get<double>() + 0.25)},
                {"floor", mean.is_null() ? json() : json(0.125)},
                {"detectable", 0.3},
                {"effect", nullptr},
                {"seeds", 2},
                {"verdict", verdict ? json(verdict) : json()},
                {"note", ""}};
  };
  json results = {{"schema", 1},
                  {"command", "study"},
                  {"version", "0"},
                  {"settings", {{"description", "studies/mine.json"}}},
                  {"claims", json::array()},
                  {"runs", json::array()}};
  const auto claim = [&](int id, const json& verdict, const json& parts) {
    results["claims"].push_back({{"id", id},
                                 {"source", "seed"},
                                 {"name", "bold <i>claim</i>"},
                                 {"statement", "A <b>bold</b> claim."},
                                 {"verdict", verdict},
                                 {"decides", 0},
                                 {"note", "Not \"all\"."},
                                 {"parts", parts}});
  };
  claim(1, "supported", {part("below", 0, -1, "supported"), part("inside", {2, 5}, 3, "undecided")});
  results["claims"][0]["sensitivity"] = {part("inside", {2, 5}, 6, "refuted")};
  claim(2, "refuted", json::array({part("above", 0, -1, "refuted")}));
  claim(3, nullptr, json::array({part("above", 0, nullptr, nullptr)}));
  for (int seed = 0; seed < 2; ++seed) {
    for (const char* member : {"softmax", "diff_v2"}) {
      const double loss = 3 + seed + (member[0] == 's' ? 0.5 : 0);
      results["runs"].push_back(
          {{"track", "language"},
           {"size", "s"},
           {"member", member},
           {"seed", seed},
           {"pilot", false},
           {"parameters", 100},
           {"perplexity", 20 + loss},
           {"needle", {{{"asked", 8}, {"right", 4}, {"accuracy", 0.5}, {"low", 0.2}, {"high", 0.8}, {"chance", 0.25}}}},
           {"measures", {{"loss_nats", {{"value", loss}}}, {"negative_mass", {{"value", 0.1 * seed}}}}},
           {"curve", {{{"tokens", 100}, {"text_loss_nats", 5}}, {{"tokens", 200}, {"text_loss_nats", loss + 0.1}}}}});
    }
  }
  results["runs"].push_back(
      {{"track", "language"}, {"size", "s"}, {"member", "sink"}, {"seed", 0}, {"pilot", false}, {"failed", "NaN"}});
  return results;
}

// What study_results() lacks: results by layer, rank, λ, depth and step. softmax has no noise term, one run a Hessian.
inline json full_results() {
  json results = study_results();
  for (json& run : results["runs"]) {
    if (run.contains("failed")) continue;
    const double seed = run["seed"], loss = 4 + seed;
    const bool noise = run["member"] != "softmax";
    const auto ranks = [&](double rise) {
      json list = json::array();
      for (const bool fixed : {false, true})
        for (const json& rank : {json(0), json(1), json(5), json()})
          list.push_back({{"fixed", fixed}, {"rank", rank}, {"loss_nats", loss + rise + (fixed ? 0.5 : 0)}});
      return list;
    };
    const json none = json::array({nullptr, nullptr});
    run["layers"] = {{"gain_nats", noise ? json{0.25 + seed, 0.5} : none},
                     {"random_gain_nats", noise ? json{0.125, 0.25 + seed} : none},
                     {"lambda", noise ? json{0.5, 0.25 + seed / 4} : none},
                     {"lambda_projected", noise ? json{0.75 + seed, 0.125} : none},
                     {"sensitivity_nats", {0.75, 0.125}},
                     {"a1_rank", {20.0, 3.0 + seed}},
                     {"a2_rank", noise ? json{4.5 + seed, 8.0} : none}};
    run["curves"] = {{"loss_nats", loss},
                     {"rank_of_a1", ranks(noise ? 2 : 4)},
                     {"rank_of_a2", noise ? ranks(1 + seed) : json::array()},
                     {"rows_of_a1", loss + 3},
                     {"rows_of_a2", noise ? json(loss + 0.25 + seed) : json()}};
    const auto along = [&](double rise) {
      return json{{"m", {0.0, 1.0, 2.0}},
                  {"loss_nats", {loss + rise, loss, loss + 2 * rise}},
                  {"best_m", 0.75},
                  {"best_loss_nats", loss - 0.25}};
    };
    if (noise) {
      run["curves"]["lambda"] = along(1);
      for (const int layer : {0, 1}) {
        run["curves"]["lambda_by_layer"].push_back(along(0.5));
        run["curves"]["lambda_by_layer"].back()["layer"] = layer;
        run["curves"]["lambda_by_layer"].back()["heads"] = {along(0.25), along(0.125)};
      }
    }
    // softmax: one moves, the other cannot be told; diff_v2: flat.
    run["ending"] = {
        {"loss_spikes", 0}, {"slope_nats", noise || seed == 0 ? -0.001 : -0.5}, {"error_nats", noise ? 0.001 : 0.125}};
    for (json& point : run["curve"]) {
      point["gradient_norm"] = 2.5;
      point["lambda"] = noise ? json{0.5, 0.25 + seed} : none;
    }
    run["needle"][0]["accuracy_without_noise"] = noise ? json{0.25, 0.375} : none;
    run["needle"][0]["accuracy_with_noise"] = noise ? json(0.625) : json();
    for (const int depth : {0, 1})
      run["needle"][0]["cells"].push_back(
          {{"length", 256}, {"depth", depth}, {"right", depth + (noise ? 2 : 1)}, {"asked", 4}});
    if (!noise || seed != 0) continue;
    const auto share = [](double mean) { return json{{"mean", mean}, {"error", 0.01}}; };
    for (const int step : {10, 20})
      run["hessian"].push_back({{"step", step},
                                {"negative_share", share(step / 64.0)},
                                {"negative_weight", share(0.25)},
                                {"lowest", {{{"value", -2.0}, {"residual", 0}}, {{"value", -1.0}, {"residual", 0}}}},
                                {"highest", {{{"value", 8.0}, {"residual", 0}}}}});
  }
  return results;
}

// The study with a third member, and with values that tell runs, layers and ranks apart.
inline json scattered_results() {
  json results = full_results();
  const json runs = results["runs"];
  for (json run : runs) {
    if (run["member"] != "diff_v2") continue;
    run["member"] = "diff_v1";
    results["runs"].push_back(run);
  }
  int count = 0;
  const auto scatter = [&count](const auto& self, json& value) -> void {
    if (value.is_number_float()) value = value.get<double>() * (1 + ++count / 1024.0);
    if (!value.is_structured()) return;
    for (const auto& [key, inner] : value.items())
      if (key != "m" && key != "needle" && key != "threshold") self(self, inner);
  };
  scatter(scatter, results);
  return results;
}

// Maps and singular values of two models of one layer and two heads. Rows of weights: 1; 0.04, 0.64 (/zPM) and
// 1; 0.16, 0.36 (/2aZ), the 0.16 of the second model's head 0 negative.
inline json study_extras() {
  return json::parse(R"({"models": [
    {"name": "softmax", "tokens": ["a", "b"], "layers": [{"layer": 0, "heads": [{"head": 0}, {"head": 1}]}],
     "excerpt": {"size": 2, "scale": "sqrt", "maps": [["/zPM", "/2aZ"]]}, "spectra": [[[1, 0.5], [1, 0.75, 0.375]]]},
    {"name": "diff_v2", "tokens": ["c", "d"], "layers": [{"layer": 0, "heads": [{"head": 0}, {"head": 1}]}],
     "excerpt": {"size": 2, "scale": "sqrt", "maps": [["/2aZ", "/zPM"]], "signs": [["Ag==", null]]},
     "spectra": [[[1, 0.25], [1, 0.125]]]}]})");
}

// Lines of a CSV (RFC 4180).
inline std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  bool quoted = false, fresh = true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (fresh) rows.push_back({""});
    fresh = false;
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (quoted || (c != ',' && c != '\r' && c != '\n')) {
      rows.back().back() += c;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else if (c == '\n') {
      fresh = true;
    }
  }
  return rows;
}

inline const json& trace(const json& seen, const std::string& picture, const std::string& name) {
  for (const json& found : seen.at("pictures").at(picture).at("traces"))
    if (found.value("name", "") == name) return found;
  ADD_FAILURE() << picture << " has no " << name << ": " << seen["pictures"][picture].dump().substr(0, 2000);
  static const json none = {{"x", nullptr}, {"y", nullptr}};
  return none;
}

}  // namespace unchain::report
