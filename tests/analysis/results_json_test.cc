#include "analysis/results_json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/planted_maps.h"
#include "support/measure_names.h"
#include "unchain/error.h"

namespace unchain::analysis {
namespace {

using nlohmann::json;

AnalysisResults analyse(bool noise, int windows = 2) {
  MapAnalyzer analyzer({});
  for (int w = 0; w < windows; ++w) {
    const std::vector<int32_t> tokens = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1};
    analyzer.begin_window(16, tokens, std::vector<std::string>(16, "x"));
    show(plant(0, 2, 16, static_cast<uint64_t>(w), noise), analyzer, 16);
    show(plant(1, 2, 16, static_cast<uint64_t>(w), false, 8), analyzer, 16);
    analyzer.end_window();
  }
  return analyzer.results();
}

json to_json(const AnalysisResults& results) {
  return results_json(results, {}, {"analyze", "0.1.0", {{"seed", 0}}, {{"architecture", "test"}}});
}

bool is_measure(const json& value) {
  if (value.is_null()) return true;
  if (!value.is_object() || value.size() != 4) return false;
  for (const char* key : {"mean", "median"}) {
    if (!value.contains(key) || !value[key].is_number()) return false;
  }
  if (!value.contains("low") || !value.contains("high")) return false;
  if (value["low"].is_null()) return value["high"].is_null();
  return value["low"].is_number() && value["high"].is_number() && value["low"] <= value["high"];
}

TEST(ResultsJson, HoldsEveryKeyOfTheContract) {
  const json results = to_json(analyse(true));
  for (const char* key : {"schema", "command", "version", "settings", "model", "layers", "summary"})
    EXPECT_TRUE(results.contains(key)) << key;
  std::vector<std::string> names = test::measure_names();
  for (const char* part :
       {"a1_entropy", "a2_entropy", "a1_rank_entropy", "a2_block_rank_r99", "a2_sink_mass", "a1_permuted_rank_stable"})
    names.push_back(part);
  for (const json& layer : results["layers"]) {
    for (const char* key : {"lambda", "cosine_distance", "cka"})
      EXPECT_TRUE(layer.contains(key) && is_measure(layer[key])) << key;
    for (const json& head : layer["heads"]) {
      for (const std::string& name : names) EXPECT_TRUE(head.contains(name)) << name;
      for (const auto& [name, value] : head.items()) EXPECT_TRUE(is_measure(value)) << name << value;
    }
  }
  for (const std::string& name : names)
    EXPECT_TRUE(results["summary"].contains(name) && is_measure(results["summary"][name])) << name;
  EXPECT_TRUE(results["summary"]["highest"]["sink_mass"]["value"].is_number());
  // Not applicable: null, never NaN.
  EXPECT_TRUE(results["layers"][1]["lambda"].is_null());
  EXPECT_TRUE(results["layers"][1]["heads"][0]["block_rank_entropy"].is_null());
  EXPECT_TRUE(results["layers"][1]["heads"][0]["a2_entropy"].is_null());
  EXPECT_FALSE(results["layers"][0]["heads"][0]["a2_entropy"].is_null());
  EXPECT_EQ(results["layers"][0]["head_numbers"], json::array({0, 1}));
}

TEST(ResultsJson, WithoutNoiseThereAreNoParts) {
  const json results = to_json(analyse(false));
  for (const auto& [name, value] : results["layers"][0]["heads"][0].items())
    EXPECT_FALSE(name.starts_with("a1_") || name.starts_with("a2_")) << name;
}

TEST(ResultsJson, OneWindowHasNoInterval) {
  const json one = to_json(analyse(true, 1)), two = to_json(analyse(true, 2));
  const auto has = [](const json& value) { return value["low"].is_number() && value["high"].is_number(); };
  size_t values = 0;
  const auto compare = [&](const json& of_one, const json& of_two) {
    for (const auto& [name, value] : of_one.items()) {
      if (!value.is_object() || !value.contains("mean")) continue;
      ++values;
      EXPECT_TRUE(value["mean"].is_number() && value["low"].is_null() && value["high"].is_null()) << name << value;
      const bool first_window_only = name.find("permuted_") != name.npos;
      EXPECT_EQ(has(of_two[name]), !first_window_only) << name << of_two[name];
    }
  };
  compare(one["summary"], two["summary"]);
  compare(one["layers"][0], two["layers"][0]);
  compare(one["layers"][0]["heads"][0], two["layers"][0]["heads"][0]);
  EXPECT_GT(values, 150u);
}

TEST(ResultsJson, NotFiniteIsAnErrorThatNamesThePlace) {
  AnalysisResults results = analyse(true);
  results.layers[1].heads[1].measures[0][static_cast<size_t>(Measure::row_sum)]->interval->low = std::nan("");
  try {
    to_json(results);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::numeric);
    EXPECT_NE(std::string(error.what()).find("layer 1 head 1 row_sum"), std::string::npos);
  }
}

TEST(PageExtras, HoldWhatThePageDraws) {
  const AnalysisResults results = analyse(true);
  const json extras = page_extras(results);
  EXPECT_EQ(extras["tokens"].size(), 16u);
  EXPECT_EQ(extras["excerpt"]["size"], 16);
  EXPECT_EQ(extras["excerpt"]["maps"][0][1].get<std::string>().size(), (16 * 17 / 2 + 2) / 3 * 4u);
  EXPECT_TRUE(extras["excerpt"]["signs"][1][0].is_null());
  EXPECT_EQ(extras["excerpt"]["signs"][0][0].get<std::string>().size(), 24u);
  EXPECT_EQ(extras["spectra"][0][0][0], 1.0);
  EXPECT_EQ(extras["spectra"][0][0].size(), 4u);  // the block: 4 rows
  for (const char* name : {"entropy_normalised", "log10_weight"}) {
    const json& histogram = extras["histograms"][name];
    EXPECT_EQ(histogram["edges"].size(), histogram["counts"][0][0].size() + 1);
    EXPECT_TRUE(std::is_sorted(histogram["edges"].begin(), histogram["edges"].end()));
  }
}

TEST(PageExtras, StayBelowTwoMegabytes) {
  // 270 heads, as in a model of 30 layers with 9 heads.
  MapAnalyzer analyzer({});
  analyzer.begin_window(128, {});
  for (int layer = 0; layer < 30; ++layer) {
    PlantedLayer planted = plant(layer, 9, 128, 1, false);
    show(planted, analyzer, 128);
  }
  analyzer.end_window();
  EXPECT_LT(page_extras(analyzer.results()).dump().size(), 2'000'000u);
}

}  // namespace
}  // namespace unchain::analysis
