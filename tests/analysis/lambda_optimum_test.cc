#include "analysis/lambda_optimum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/planted_maps.h"
#include "support/temporary_folder.h"

namespace unchain::analysis {
namespace {

// A1 = λ A2 on even keys, where A2 is; weights of its own on odd keys, where A2 is 0: the rest is at right angles to
// A2.
PlantedLayer planted_lambda(int layer, int64_t tokens, const std::vector<double>& lambdas, uint64_t seed) {
  PlantedLayer out = plant(layer, static_cast<int>(lambdas.size()), tokens, seed, true);
  for (size_t h = 0; h < lambdas.size(); ++h) {
    for (size_t i = 0; i < static_cast<size_t>(tokens); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        if (j % 2 == 1) out.noise[h][i][j] = 0;
        if (j % 2 == 0) out.positive[h][i][j] = lambdas[h] * out.noise[h][i][j];
      }
    }
    out.positive[h][0][0] = 17;  // row 0 says nothing
  }
  return out;
}

TEST(LambdaOptimum, APlantedLambdaIsFound) {
  const std::vector<double> lambdas = {0.5, 0.125, 2};  // powers of two: products are exact in f32
  for (const int64_t rows : {1, 7, 64}) {
    LambdaOptimum optimum;
    std::vector<PlantedLayer> windows = {planted_lambda(1, 40, lambdas, 1), planted_lambda(1, 25, lambdas, 2)};
    for (const PlantedLayer& window : windows) {
      optimum.begin_window({});
      show(plant(0, 2, window.tokens, 3, false), optimum, rows);
      show(window, optimum, rows);
    }
    const auto results = optimum.results();
    ASSERT_EQ(results.size(), 1u) << "a layer without noise has no λ";
    EXPECT_EQ(results[0].layer, 1);
    double both = 0, noise = 0, learned = 0;
    for (size_t h = 0; h < lambdas.size(); ++h) {
      EXPECT_NEAR(results[0].heads[h].optimum.value(), lambdas[h], 1e-12 * lambdas[h]);
      double own_both = 0, own_noise = 0, own_positive = 0, own_lambda = 0;
      for (const PlantedLayer& window : windows) {
        for (size_t i = 1; i < static_cast<size_t>(window.tokens); ++i) {
          for (size_t j = 0; j <= i; ++j) {
            own_both += window.positive[h][i][j] * window.noise[h][i][j];
            own_noise += window.noise[h][i][j] * window.noise[h][i][j];
            own_positive += window.positive[h][i][j] * window.positive[h][i][j];
          }
          own_lambda += window.lambda[h][i] / (39 + 24);
        }
      }
      EXPECT_NEAR(results[0].heads[h].cosine.value(), own_both / std::sqrt(own_noise * own_positive), 1e-12);
      EXPECT_NEAR(results[0].heads[h].lambda, own_lambda, 1e-12);
      both += own_both;
      noise += own_noise;
      learned += own_lambda / 3;
    }
    EXPECT_NEAR(results[0].all.optimum.value(), both / noise, 1e-12);
    EXPECT_NEAR(results[0].all.lambda, learned, 1e-12);
  }
}

// Weight on what induction looks for does not count, whatever it is.
TEST(LambdaOptimum, KeysOfInductionAreLeftOut) {
  const std::vector<int32_t> tokens = {5, 6, 7, 5, 6, 7, 5, 6, 9, 5, 6, 7, 7, 7};
  PlantedLayer layer = planted_lambda(0, 14, {0.5}, 4);
  LambdaOptimum before;
  before.begin_window(tokens);
  show(layer, before, 5);
  int changed = 0;
  for (size_t i = 1; i + 1 < tokens.size(); ++i) {
    for (size_t j = 1; j <= i; ++j) {
      if (tokens[j - 1] != tokens[i] || tokens[j] != tokens[i + 1]) continue;
      layer.positive[0][i][j] = 100;
      layer.noise[0][i][j] = 10;
      ++changed;
    }
  }
  EXPECT_GT(changed, 5);
  LambdaOptimum after, blind;
  after.begin_window(tokens);
  show(layer, after, 5);
  EXPECT_EQ(after.results()[0].heads[0].optimum, before.results()[0].heads[0].optimum);
  EXPECT_NEAR(after.results()[0].heads[0].optimum.value(), 0.5, 1e-12);
  show(layer, blind, 5);
  EXPECT_NEAR(blind.results()[0].heads[0].optimum.value(), 10, 0.2);
}

TEST(LambdaOptimum, ItLeavesTheLeast) {
  const PlantedLayer layer = plant(0, 1, 30, 5, true, 8);
  LambdaOptimum optimum;
  show(layer, optimum, 64);
  const auto rest = [&](double lambda) {
    double sum = 0, all = 0;
    for (size_t i = 1; i < 30; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        const double a = layer.positive[0][i][j], b = layer.noise[0][i][j];
        sum += (a - lambda * b) * (a - lambda * b);
        all += a * a;
      }
    }
    return sum / all;
  };
  const LambdaProjection found = optimum.results()[0].heads[0];
  const double best = rest(found.optimum.value());
  EXPECT_NEAR(best, 1 - found.cosine.value() * found.cosine.value(), 1e-12);
  EXPECT_LT(best, rest(found.optimum.value() + 0.01));
  EXPECT_LT(best, rest(found.optimum.value() - 0.01));
}

TEST(LambdaOptimum, AbsentWithoutNoiseAndErrors) {
  PlantedLayer layer = plant(0, 1, 10, 6, true);
  for (auto& row : layer.noise[0]) std::fill(row.begin(), row.end(), 0.0);
  LambdaOptimum optimum;
  show(layer, optimum, 64);
  EXPECT_FALSE(optimum.results()[0].all.optimum);
  EXPECT_FALSE(optimum.results()[0].all.cosine);
  using test::expect_error;
  expect_error([&] { show(plant(0, 2, 10, 6, true), optimum, 64); }, ErrorCode::shape, {"2 heads, expected 1"});
  layer.positive[0][7][2] = std::nan("");
  expect_error([&] { show(layer, optimum, 3); }, ErrorCode::numeric, {"layer 0 head 0 row 7"});
}

}  // namespace
}  // namespace unchain::analysis
