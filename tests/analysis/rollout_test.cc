// Rollout of maps made by hand, in exact fractions, and of random ones against whole products in double.
#include "analysis/rollout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/loaded_family.h"
#include "analysis/planted_maps.h"
#include "support/attention_case.h"
#include "support/compare.h"

namespace unchain::analysis {
namespace {

using test::close;
using test::kEpsF32;

PlantedLayer by_hand(int layer, std::vector<ref::Matrix> positive, std::vector<ref::Matrix> noise, double lambda) {
  PlantedLayer planted;
  planted.layer = layer;
  planted.tokens = 3;
  planted.lambda.assign(positive.size(), std::vector<double>(3, lambda));
  planted.positive = std::move(positive);
  planted.noise = std::move(noise);
  return planted;
}

std::vector<double> flat(const ref::Matrix& m) {
  std::vector<double> all;
  for (const auto& row : m) all.insert(all.end(), row.begin(), row.end());
  return all;
}

std::vector<float> numbers(const Matrix& m) {
  std::vector<float> all;
  for (int64_t i = 0; i < m.rows; ++i) all.insert(all.end(), m.f32(i), m.f32(i) + m.cols);
  return all;
}

// Layer 0: two softmax heads with the mean (1; ¾ ¼; ⅜ ⅛ ½), so M = (1; ⅜ ⅝; 3/16 1/16 ¾).
// Layer 1: P = A1 − A2 = (0; −½ ½; 0 −¼ ¼), so M = (1; −¼ ¾; 0 −⅙ ⅚), and the same without signs for |P|.
TEST(Rollout, OfTwoLayersByHand) {
  const double half = 0.5, quarter = 0.25;
  const PlantedLayer first = by_hand(0,
                                     {{{1, 0, 0}, {half, half, 0}, {quarter, quarter, half}},  //
                                      {{1, 0, 0}, {1, 0, 0}, {half, 0, half}}},
                                     {}, 0);
  const PlantedLayer second = by_hand(1, {{{1, 0, 0}, {half, half, 0}, {half, quarter, quarter}}},
                                      {{{1, 0, 0}, {1, 0, 0}, {half, half, 0}}}, 1);
  for (const int64_t rows : {1, 2, 3}) {
    Rollout rollout(3);
    EXPECT_TRUE(close(numbers(rollout.flow(Flow::signed_map)), flat({{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}), 0));
    show(first, rollout, rows);
    const std::vector<double> one_layer = flat({{1, 0, 0}, {3.0 / 8, 5.0 / 8, 0}, {3.0 / 16, 1.0 / 16, 3.0 / 4}});
    // A row of M is rounded four times, a sum of three products thrice more; no number exceeds 1.
    const double tolerance = 8 * kEpsF32;
    EXPECT_TRUE(close(numbers(rollout.flow(Flow::signed_map)), one_layer, tolerance));
    EXPECT_TRUE(close(numbers(rollout.flow(Flow::magnitude)), one_layer, tolerance)) << "softmax has no signs";
    show(second, rollout, rows);
    EXPECT_EQ(rollout.layers(), 2);
    const Matrix with_signs = rollout.flow(Flow::signed_map), without = rollout.flow(Flow::magnitude);
    EXPECT_TRUE(close(numbers(with_signs), flat({{1, 0, 0}, {1.0 / 32, 15.0 / 32, 0}, {3.0 / 32, -5.0 / 96, 5.0 / 8}}),
                      2 * tolerance));
    EXPECT_TRUE(close(numbers(without), flat({{1, 0, 0}, {17.0 / 32, 15.0 / 32, 0}, {7.0 / 32, 5.0 / 32, 5.0 / 8}}),
                      2 * tolerance));
    EXPECT_NEAR(flow_share(with_signs, 2, 0, 2), 7.0 / 37, 6 * tolerance) << "(9 + 5)/(9 + 5 + 60)";
    EXPECT_NEAR(flow_share(without, 1, 0, 1), 17.0 / 32, 6 * tolerance);
    EXPECT_EQ(flow_share(without, 1, 1, 1), 0);
    EXPECT_NEAR(flow_share(without, 2, 0, 3), 1, 1e-15);
  }
}

// M of a layer in double.
ref::Matrix mixing(const PlantedLayer& layer, bool magnitude) {
  const auto n = static_cast<size_t>(layer.tokens);
  ref::Matrix m = ref::zeros(n, n);
  for (size_t head = 0; head < layer.positive.size(); ++head) {
    const ref::Matrix p = layer.map(head);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j)
        m[i][j] += (magnitude ? std::abs(p[i][j]) : p[i][j]) / static_cast<double>(layer.positive.size());
    }
  }
  for (size_t i = 0; i < n; ++i) {
    m[i][i] += 1;
    double sum = 0;
    for (const double x : m[i]) sum += std::abs(x);
    for (double& x : m[i]) x /= sum;
  }
  return m;
}

ref::Matrix product(const ref::Matrix& a, const ref::Matrix& b) {
  ref::Matrix c = ref::zeros(a.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < a.size(); ++k) {
      for (size_t j = 0; j < a.size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

TEST(Rollout, AgreesWithWholeProductsInDouble) {
  constexpr int64_t kTokens = 150;
  for (const bool noise : {false, true}) {
    for (const int64_t window : {0, 40}) {
      Rollout rollout(kTokens);
      ref::Matrix with_signs, without;
      for (int layer = 0; layer < 3; ++layer) {
        const PlantedLayer planted = plant(layer, 1 + layer, kTokens, 9, noise, window);
        show(planted, rollout, 64);
        const ref::Matrix m = mixing(planted, false), magnitude = mixing(planted, true);
        with_signs = layer > 0 ? product(m, with_signs) : m;
        without = layer > 0 ? product(magnitude, without) : magnitude;
      }
      // Rows of M have Σ|·| = 1, and so no entry of R exceeds 1. Each layer adds the rounding of M's rows (mean of 3
      // heads, sum, division: 6ε) and of sums of 150 products.
      const double tolerance = 3 * (kTokens + 6) * kEpsF32;
      EXPECT_TRUE(close(numbers(rollout.flow(Flow::signed_map)), flat(with_signs), tolerance));
      EXPECT_TRUE(close(numbers(rollout.flow(Flow::magnitude)), flat(without), tolerance));
      for (int64_t i = 0; i < kTokens; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < kTokens; ++j) sum += static_cast<double>(rollout.flow(Flow::magnitude).f32(i)[j]);
        EXPECT_NEAR(sum, 1, kTokens * tolerance) << "rows are shares";
      }
    }
  }
}

TEST(Rollout, OfAModelSumsToOne) {
  for (const std::string& member : test::analysed_members()) {
    const test::LoadedFamily family(test::family_config(member));
    const auto ids = test::token_ids(60);
    Rollout rollout(60);
    test::logits_with(family, ids, {}, {&rollout});
    EXPECT_EQ(rollout.layers(), 2);
    bool any_negative = false;
    for (int64_t i = 0; i < 60; ++i) {
      double sum = 0, magnitude = 0;
      for (int64_t j = 0; j < 60; ++j) {
        const float x = rollout.flow(Flow::signed_map).f32(i)[j];
        sum += static_cast<double>(rollout.flow(Flow::magnitude).f32(i)[j]);
        magnitude += static_cast<double>(std::abs(x));
        any_negative |= x < 0;
      }
      EXPECT_NEAR(sum, 1, 60 * 132 * kEpsF32) << member;  // 60 entries, each as above
      EXPECT_LE(magnitude, 1 + 60 * 132 * kEpsF32) << member << ": what cancels is lost";
    }
    EXPECT_EQ(any_negative, member != "softmax") << member;
  }
}

TEST(Rollout, Errors) {
  const auto expect_shape = [](const auto& call, std::initializer_list<std::string> parts) {
    test::expect_error(call, ErrorCode::shape, parts);
  };
  test::expect_error([] { Rollout(0); }, ErrorCode::usage, {"0 tokens"});
  Rollout skipped(5), long_text(4), short_text(9), bad(5);
  expect_shape([&] { show(plant(1, 1, 5, 1, false), skipped, 2); }, {"layer 1", "layer 0"});
  expect_shape([&] { show(plant(0, 1, 5, 1, false), long_text, 8); }, {"4 in all"});
  expect_shape([&] { show(plant(0, 1, 5, 1, false), short_text, 8); }, {"layer 0", "5 rows", "9"});
  PlantedLayer broken = plant(0, 2, 5, 1, true);
  broken.positive[1][3][2] = NAN;
  test::expect_error([&] { show(broken, bad, 2); }, ErrorCode::numeric, {"layer 0", "head 1", "row 3"});
  Rollout fine(3);
  for (const auto& [row, begin, end] :
       {std::tuple{-1, 0, 1}, std::tuple{3, 0, 1}, std::tuple{0, -1, 1}, std::tuple{0, 2, 1}, std::tuple{0, 0, 4}}) {
    test::expect_error([&, r = row, b = begin, e = end] { flow_share(fine.flow(Flow::magnitude), r, b, e); },
                       ErrorCode::usage, {"flow: row"});
  }
}

}  // namespace
}  // namespace unchain::analysis
