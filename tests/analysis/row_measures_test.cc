#include "analysis/row_measures.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/planted_maps.h"

namespace unchain::analysis {
namespace {

Values measure(const ref::Matrix& p, size_t window, const std::vector<double>& norms, const std::vector<int>& tokens,
               Histograms* histograms = nullptr) {
  RowAccumulator sums;
  const std::vector<int32_t> ids(tokens.begin(), tokens.end());
  const InductionTargets targets(ids);
  const std::vector<float> norm(norms.begin(), norms.end());
  for (size_t i = 0; i < p.size(); ++i) {
    std::vector<float> row(p[i].begin(),
                           p[i].begin() + static_cast<std::ptrdiff_t>(i) + 1);  // exact length: ASan sees an overrun
    const size_t first = window > 0 && i >= window ? i - window + 1 : 0;
    EXPECT_TRUE(sums.add({row.data(), static_cast<int64_t>(i), static_cast<int64_t>(first),
                          norm.empty() ? nullptr : norm.data(), targets.keys(static_cast<int64_t>(i))}));
  }
  Values values;
  sums.write(values);
  if (histograms) *histograms = sums.histograms();
  return values;
}

// The names of the row measures that differ: absent in one only, or by more than 1e-5·(1 + |expected|).
std::string differences(const Values& got, const std::map<std::string, std::optional<double>>& expected) {
  std::string out;
  for (size_t m = 0; m < kMeasureCount; ++m) {
    const MeasureInfo& measure_info = info(static_cast<Measure>(m));
    if (measure_info.group != MeasureGroup::rows) continue;
    const auto& want = expected.at(std::string(measure_info.name));
    const bool same =
        got[m].has_value() == want.has_value() && (!want || std::abs(*got[m] - *want) <= 1e-5 * (1 + std::abs(*want)));
    if (!same) out += std::string(measure_info.name) + " ";
  }
  return out;
}

std::vector<int> random_tokens(size_t n, uint64_t kinds, Rng& rng) {
  std::vector<int> tokens(n);
  for (int& token : tokens) token = static_cast<int>(rng.below(kinds));
  return tokens;
}

TEST(RowMeasures, AgreeWithReference) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 20, 21, 65, 255, 256, 257, 300}) {
    for (const size_t window : {0, 1, 2, 6}) {
      const PlantedLayer layer = plant(0, 1, n, static_cast<uint64_t>(n), true, static_cast<int64_t>(window));
      Rng rng(3);
      const auto tokens = random_tokens(static_cast<size_t>(n), 6, rng);
      for (const auto& p : {layer.positive[0], layer.map(0)}) {
        EXPECT_EQ(differences(measure(p, window, layer.norms[0], tokens),
                              ref::row_measures(p, window, layer.norms[0], tokens)),
                  "")
            << n << " tokens, window " << window;
      }
    }
  }
}

TEST(RowMeasures, WeightsOfAllMagnitudes) {
  // From below the smallest normal number to large ones; zeros of both signs.
  Rng rng(8);
  ref::Matrix p = ref::zeros(50, 50);
  for (size_t i = 0; i < 50; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      const double x = std::ldexp(rng.uniform(), static_cast<int>(rng.below(160)) - 150);
      p[i][j] = static_cast<float>(rng.below(4) == 0 ? 0 : rng.below(2) ? x : -x);
    }
    p[i][0] = -0.0;
  }
  EXPECT_EQ(differences(measure(p, 0, {}, {}), ref::row_measures(p, 0, {}, {})), "");
}

TEST(RowMeasures, ByHand) {
  ref::Matrix p = ref::zeros(3, 3);
  p[0] = {1, 0, 0};
  p[1] = {0.75, 0.25, 0};
  p[2] = {0.5, 0.75, -0.25};
  const Values v = measure(p, 0, {2, 1, 1}, {7, 8, 7});
  const auto value = [&](Measure m) { return at(v, m).value(); };
  const double h1 = 2 * std::log(2) - 0.75 * std::log(3);
  const double h2 = std::log(1.5) - (0.5 * std::log(0.5) + 0.75 * std::log(0.75) + 0.25 * std::log(0.25)) / 1.5;
  EXPECT_NEAR(value(Measure::entropy), (h1 + h2) / 2, 1e-6);
  EXPECT_NEAR(value(Measure::entropy_normalised), (h1 / std::log(2) + h2 / std::log(3)) / 2, 1e-6);
  EXPECT_NEAR(value(Measure::row_sum), 1, 1e-7);
  EXPECT_NEAR(value(Measure::row_sum_without_first), (0.25 + 0.5) / 2, 1e-7);
  EXPECT_NEAR(value(Measure::sink_mass), (0.75 + 0.5 / 1.5) / 2, 1e-7);
  EXPECT_NEAR(value(Measure::sink_mass_value_weighted), (1.5 / 1.75 + 1.0 / 2.0) / 2, 1e-7);
  EXPECT_NEAR(value(Measure::top_mass_1), (0.75 + 0.5) / 2, 1e-7);
  EXPECT_NEAR(value(Measure::top_mass_5), 1, 1e-7);
  EXPECT_NEAR(value(Measure::sparsity), 0, 1e-7);
  EXPECT_NEAR(value(Measure::context_rms), (std::sqrt(0.625) + std::sqrt(0.875)) / 2, 1e-7);
  EXPECT_NEAR(value(Measure::negative_share), (0 + 1.0 / 3) / 2, 1e-7);
  EXPECT_NEAR(value(Measure::negative_mass), (0 + 0.25 / 1.5) / 2, 1e-7);
  EXPECT_FALSE(at(v, Measure::induction_mass).has_value());  // 8 follows 7, but no row may see its own answer
}

TEST(RowMeasures, InductionByHand) {
  // a b a b: row 2 (a, next b) has the target key 1; row 3 has no next token.
  ref::Matrix p = ref::zeros(4, 4);
  p[0] = {1, 0, 0, 0};
  p[1] = {0.5, 0.5, 0, 0};
  p[2] = {0.2f, 0.7f, 0.1f, 0};
  p[3] = {0.25, 0.25, 0.25, 0.25};
  EXPECT_NEAR(at(measure(p, 0, {}, {1, 2, 1, 2}), Measure::induction_mass).value(), 0.7, 1e-6);
  EXPECT_FALSE(at(measure(p, 0, {}, {1, 2, 3, 4}), Measure::induction_mass).has_value());
  EXPECT_FALSE(
      at(measure(p, 1, {}, {1, 2, 1, 2}), Measure::induction_mass).has_value());  // the target lies before the window
}

TEST(RowMeasures, InductionTargetsByBruteForce) {
  Rng rng(5);
  const auto tokens = random_tokens(200, 4, rng);
  const InductionTargets targets(std::vector<int32_t>(tokens.begin(), tokens.end()));
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<int64_t> expected;
    for (size_t j = 1; j <= i && i + 1 < tokens.size(); ++j) {
      if (tokens[j - 1] == tokens[i] && tokens[j] == tokens[i + 1]) expected.push_back(static_cast<int64_t>(j));
    }
    const auto got = targets.keys(static_cast<int64_t>(i));
    EXPECT_EQ(std::vector<int64_t>(got.begin(), got.end()), expected);
  }
  EXPECT_TRUE(targets.keys(200).empty());
  EXPECT_TRUE(InductionTargets().keys(0).empty());
}

TEST(RowMeasures, RowsWithoutWeight) {
  const Values v = measure(ref::zeros(6, 6), 0, {}, {});
  EXPECT_EQ(at(v, Measure::row_sum), 0.0);
  EXPECT_EQ(at(v, Measure::sparsity), 1.0);
  for (const Measure m : {Measure::entropy, Measure::sink_mass, Measure::top_mass_1, Measure::negative_mass}) {
    EXPECT_FALSE(at(v, m).has_value());
  }
}

TEST(RowMeasures, UniformRowsHaveEntropyOne) {
  ref::Matrix p = ref::zeros(700, 700);
  for (size_t i = 0; i < 700; ++i) {
    for (size_t j = 0; j <= i; ++j) p[i][j] = static_cast<float>(1.0 / static_cast<double>(i + 1));
  }
  Histograms histograms;
  const Values v = measure(p, 0, {}, {}, &histograms);
  EXPECT_NEAR(at(v, Measure::entropy_normalised).value(), 1, 2e-6);
  EXPECT_EQ(histograms.entropy_normalised.back(), 699u);
  uint64_t weights = 0;
  for (const uint64_t count : histograms.log10_weight) weights += count;
  EXPECT_EQ(weights, 700u * 701 / 2 - 1);          // all but row 0
  EXPECT_EQ(histograms.log10_weight[20], 87147u);  // 1e-3 … 1.78e-3: rows of 563 … 700 keys, Σ = 138·1263/2
}

TEST(RowMeasures, NotFiniteIsNoticed) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (size_t place : {0u, 3u, 6u}) {
      std::vector<float> row(7, 0.1f);
      row[place] = bad;
      RowAccumulator sums;
      EXPECT_FALSE(sums.add({row.data(), 6, 0, nullptr, {}}));
      Values values;
      sums.write(values);
      for (const auto& value : values) EXPECT_FALSE(value.has_value());
    }
  }
}

TEST(RowMeasures, TheComparatorNoticesWrongMeasures) {
  const PlantedLayer layer = plant(0, 1, 60, 2, true);
  Rng rng(1);
  const auto tokens = random_tokens(60, 5, rng);
  const auto expected = ref::row_measures(layer.map(0), 0, layer.norms[0], tokens);
  const Values right = measure(layer.map(0), 0, layer.norms[0], tokens);
  ASSERT_EQ(differences(right, expected), "");
  for (size_t m = 0; m < kMeasureCount; ++m) {
    const MeasureInfo& measure_info = info(static_cast<Measure>(m));
    if (measure_info.group != MeasureGroup::rows) continue;
    const std::string name = std::string(measure_info.name) + " ";
    Values wrong = right;
    wrong[m] = *right[m] * 1.001 + 1e-4;
    EXPECT_EQ(differences(wrong, expected), name);
    wrong[m] = -*right[m] - 1;
    EXPECT_EQ(differences(wrong, expected), name);
    wrong[m].reset();
    EXPECT_EQ(differences(wrong, expected), name);
    wrong[m] = std::nan("");
    EXPECT_EQ(differences(wrong, expected), name);
  }
}

}  // namespace
}  // namespace unchain::analysis
