#include "analysis/heads.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "ref/analysis_ref.h"

namespace unchain::analysis {
namespace {

std::vector<float> gaussian(int64_t count, Rng& rng) {
  std::vector<float> x(static_cast<size_t>(count));
  for (float& v : x) v = static_cast<float>(rng.normal());
  return x;
}

ref::Matrix columns(const std::vector<float>& x, int64_t rows, int64_t stride, int64_t first, int64_t count) {
  ref::Matrix m = ref::zeros(static_cast<size_t>(rows), static_cast<size_t>(count));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < count; ++j)
      m[static_cast<size_t>(i)][static_cast<size_t>(j)] = x[static_cast<size_t>(i * stride + first + j)];
  }
  return m;
}

TEST(MapProducts, AgreesWithReferenceInPanels) {
  constexpr int64_t kTokens = 37;
  constexpr int kHeads = 4;
  Rng rng(1);
  std::vector<ref::Matrix> maps(kHeads, ref::zeros(kTokens, kTokens));
  for (auto& map : maps) {
    for (size_t i = 0; i < kTokens; ++i) {
      for (size_t j = 0; j <= i; ++j) map[i][j] = static_cast<float>(rng.normal());
    }
  }
  MapProducts products(kHeads);
  for (int64_t first = 0; first < kTokens; first += 10) {
    const int64_t rows = std::min<int64_t>(10, kTokens - first), keys = first + rows, stride = keys + 3;
    std::vector<float> panel(static_cast<size_t>(kHeads * rows * stride),
                             1e30f);  // what lies beyond `keys` is not read
    for (size_t h = 0; h < kHeads; ++h) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < keys; ++j) {
          panel[static_cast<size_t>((static_cast<int64_t>(h) * rows + r) * stride + j)] =
              static_cast<float>(maps[h][static_cast<size_t>(first + r)][static_cast<size_t>(j)]);
        }
      }
    }
    products.add(panel.data(), rows, keys, stride, rows * stride);
  }
  EXPECT_NEAR(*products.mean_cosine_distance(), ref::mean_cosine_distance(maps), 1e-6);
}

TEST(MapProducts, KnownValues) {
  const float equal[] = {1, 2, 2, 4}, opposite[] = {1, 2, -1, -2}, orthogonal[] = {1, 0, 0, 1}, zero[] = {0, 0, 1, 1};
  const auto distance = [](const float* two_heads) {
    MapProducts products(2);
    products.add(two_heads, 1, 2, 2, 2);
    return products.mean_cosine_distance();
  };
  EXPECT_NEAR(*distance(equal), 0, 1e-12);
  EXPECT_NEAR(*distance(opposite), 2, 1e-12);
  EXPECT_NEAR(*distance(orthogonal), 1, 1e-12);
  EXPECT_FALSE(distance(zero).has_value());
  EXPECT_FALSE(MapProducts(1).mean_cosine_distance().has_value());
}

TEST(Cka, AgreesWithWholeGramMatrices) {
  Rng rng(2);
  for (const int64_t n : {4, 5, 17, 40}) {
    const int64_t stride = 12;
    auto x = gaussian(n * stride, rng);
    for (int64_t i = 0; i < n; ++i)
      x[static_cast<size_t>(i * stride + 7)] += 2 * x[static_cast<size_t>(i * stride)] + 1;  // something in common
    const double expected = ref::cka(columns(x, n, stride, 0, 5), columns(x, n, stride, 5, 7));
    const auto got = linear_cka(x.data(), 5, x.data() + 5, 7, n, stride);
    if (std::isnan(expected)) {
      EXPECT_FALSE(got.has_value());
    } else {
      EXPECT_NEAR(*got, expected, 1e-9);
    }
  }
}

TEST(Cka, OfItselfIsOneAndIgnoresScaleAndOrigin) {
  Rng rng(3);
  auto x = gaussian(50 * 16, rng);
  EXPECT_NEAR(*linear_cka(x.data(), 16, x.data(), 16, 50, 16), 1, 1e-12);
  auto y = x;
  for (size_t i = 0; i < y.size(); ++i) y[i] = -3 * y[i] + static_cast<float>(i % 16);
  EXPECT_NEAR(*linear_cka(x.data(), 16, y.data(), 16, 50, 16), 1, 1e-5);
}

TEST(Cka, IndependentGaussiansHaveMeanZero) {
  // Width 64: standard deviation 0.048 for 32 tokens, 0.006 for 256. The biased estimate would be near 0.7 and 0.2.
  for (const auto& [n, deviation, draws] : {std::tuple<int64_t, double, int>{32, 0.048, 400}, {256, 0.006, 200}}) {
    double sum = 0, squares = 0;
    for (int draw = 0; draw < draws; ++draw) {
      Rng rng(11, static_cast<uint64_t>(draw));
      const auto x = gaussian(n * 64, rng), y = gaussian(n * 64, rng);
      const double value = *linear_cka(x.data(), 64, y.data(), 64, n, 64);
      sum += value;
      squares += value * value;
    }
    const double mean = sum / draws, spread = std::sqrt(squares / draws - mean * mean);
    EXPECT_NEAR(mean, 0, 4 * deviation / std::sqrt(draws));
    EXPECT_NEAR(spread, deviation, 0.15 * deviation);
  }
}

TEST(Cka, UndefinedCases) {
  Rng rng(4);
  const auto x = gaussian(8 * 4, rng);
  EXPECT_FALSE(linear_cka(x.data(), 4, x.data(), 4, 3, 4).has_value());
  const std::vector<float> constant(8 * 4, 0.7f), zero(8 * 4);
  EXPECT_FALSE(linear_cka(x.data(), 4, constant.data(), 4, 8, 4).has_value());
  EXPECT_FALSE(linear_cka(zero.data(), 4, x.data(), 4, 8, 4).has_value());
  EXPECT_FALSE(mean_cka(x.data(), 8, 1, 4).has_value());
}

TEST(Cka, MeanOverPairs) {
  Rng rng(5);
  const int64_t n = 30, width = 6;
  const auto x = gaussian(n * 3 * width, rng);
  double expected = 0;
  for (const auto& [a, b] : {std::pair<int64_t, int64_t>{0, 1}, {0, 2}, {1, 2}}) {
    expected += ref::cka(columns(x, n, 3 * width, a * width, width), columns(x, n, 3 * width, b * width, width)) / 3;
  }
  EXPECT_NEAR(*mean_cka(x.data(), n, 3, width), expected, 1e-9);
}

}  // namespace
}  // namespace unchain::analysis
