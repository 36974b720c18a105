#include "analysis/rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "ref/analysis_ref.h"
#include "unchain/error.h"

namespace unchain::analysis {
namespace {

std::vector<double> five(const RankMeasures& r) {
  return {r.entropy, r.entropy_squared, r.stable, r.r90, r.r99};
}

std::vector<double> ranks_of(const std::vector<float>& a, int64_t rows, int64_t cols) {
  return five(rank_measures(singular_values(a.data(), rows, cols, cols)));
}

ref::Matrix to_matrix(const std::vector<float>& a, int64_t rows, int64_t cols) {
  ref::Matrix m = ref::zeros(static_cast<size_t>(rows), static_cast<size_t>(cols));
  for (int64_t i = 0; i < rows * cols; ++i)
    m[static_cast<size_t>(i / cols)][static_cast<size_t>(i % cols)] = a[static_cast<size_t>(i)];
  return m;
}

std::vector<float> random_matrix(int64_t rows, int64_t cols, uint64_t seed, bool triangle = false) {
  Rng rng(seed);
  std::vector<float> a(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const float x = static_cast<float>(std::exp(2 * rng.normal()));
      if (!triangle || j <= i) a[static_cast<size_t>(i * cols + j)] = x;
    }
  }
  return a;
}

TEST(Rank, KnownValues) {
  for (int64_t n : {1, 2, 7, 10, 64, 100}) {
    std::vector<float> identity(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i) identity[static_cast<size_t>(i * n + i)] = 0.3f;
    const auto r = ranks_of(identity, n, n);
    const double size = static_cast<double>(n);
    EXPECT_NEAR(r[0], size, 1e-9);
    EXPECT_NEAR(r[1], size, 1e-9);
    EXPECT_NEAR(r[2], size, 1e-9);
    EXPECT_EQ(r[3], std::ceil(0.9 * size - 1e-9)) << n;
    EXPECT_EQ(r[4], std::ceil(0.99 * size - 1e-9)) << n;
  }
  EXPECT_EQ(ranks_of(std::vector<float>(49), 7, 7), (std::vector<double>{0, 0, 0, 0, 0}));
  std::vector<float> one(60 * 40);
  for (size_t i = 0; i < one.size(); ++i)
    one[i] = 0.5f * static_cast<float>(1 + i / 40) * static_cast<float>(1 + i % 40 % 5);  // exact in f32
  for (const double r : ranks_of(one, 60, 40)) EXPECT_NEAR(r, 1, 1e-9);
}

TEST(Rank, UniformCausalMap) {
  for (const auto& [n, rank] : {std::pair<int64_t, double>{128, 32.0}, {512, 70.5}}) {
    std::vector<float> map(static_cast<size_t>(n * n));
    fill_uniform(map.data(), n, 0);
    EXPECT_NEAR(ranks_of(map, n, n)[0], rank, 0.05);
  }
}

TEST(Rank, AgreesWithJacobi) {
  const std::pair<int64_t, int64_t> shapes[] = {{1, 1},   {1, 9},   {9, 1},   {2, 2},   {3, 7},  {7, 3},
                                                {33, 33}, {64, 20}, {20, 64}, {65, 65}, {97, 96}};
  for (const auto& [rows, cols] : shapes) {
    for (const bool triangle : {false, true}) {
      const auto a = random_matrix(rows, cols, static_cast<uint64_t>(rows * 100 + cols), triangle);
      const auto sigma = singular_values(a.data(), rows, cols, cols);
      const auto expected = ref::jacobi_singular_values(to_matrix(a, rows, cols));
      ASSERT_EQ(sigma.size(), expected.size());
      // Householder and QR steps: each of about 3n transformations adds a few epsilon of the norm, in random
      // directions.
      const double bound = 50 * std::sqrt(static_cast<double>(rows + cols)) * 2.2e-16 * expected[0];
      for (size_t k = 0; k < sigma.size(); ++k)
        EXPECT_NEAR(sigma[k], expected[k], bound) << rows << " x " << cols << " value " << k;
      const auto got = five(rank_measures(sigma)), want = ref::ranks(expected);
      for (size_t k = 0; k < 5; ++k) EXPECT_NEAR(got[k], want[k], 1e-9 * want[k]);
    }
  }
}

TEST(Rank, SmallSingularValuesSurvive) {
  // σ from 1 to 1e-12: squares would lose everything below 1e-8. A diagonal of powers of two, mixed by exact ±1 rows.
  std::vector<float> a(40 * 40);
  for (size_t i = 0; i < 40; ++i) a[i * 40 + i] = std::ldexp(1.0f, -static_cast<int>(i));
  for (size_t i = 0; i + 1 < 40; ++i) a[i * 40 + i + 1] = -a[i * 40 + i];
  const auto sigma = singular_values(a.data(), 40, 40, 40);
  const auto expected = ref::jacobi_singular_values(to_matrix(a, 40, 40));
  for (size_t k = 0; k < 40; ++k) EXPECT_NEAR(sigma[k], expected[k], 1e-14) << k;
}

TEST(Rank, RankDeficientMaps) {
  // Repeated rows, empty rows and columns: exact zeros on the bidiagonal.
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed, 5);
    std::vector<float> a(48 * 48);
    for (size_t i = 0; i < 48; ++i) {
      for (size_t j = 0; j < 48; ++j) {
        if (i % 3 == 0 || j % 5 == 0) continue;
        a[i * 48 + j] = i % 7 == 1 ? 0.25f : (rng.uniform() < 0.2 ? static_cast<float>(rng.uniform()) : 0.0f);
      }
    }
    const auto sigma = singular_values(a.data(), 48, 48, 48);
    const auto expected = ref::jacobi_singular_values(to_matrix(a, 48, 48));
    for (size_t k = 0; k < 48; ++k) EXPECT_NEAR(sigma[k], expected[k], 1e-13);
  }
}

TEST(Rank, BidiagonalWithZerosOnTheDiagonal) {
  const std::vector<double> d = {1, 0, 2, 0, 0, 3}, e = {0.5, 1, 0.25, 2, 1};
  ref::Matrix m = ref::zeros(6, 6);
  for (size_t i = 0; i < 6; ++i) {
    m[i][i] = d[i];
    if (i < 5) m[i][i + 1] = e[i];
  }
  const auto sigma = bidiagonal_singular_values(d, e), expected = ref::jacobi_singular_values(m);
  for (size_t k = 0; k < 6; ++k) EXPECT_NEAR(sigma[k], expected[k], 1e-14);
  EXPECT_EQ(bidiagonal_singular_values({-2}, {}), std::vector<double>{2});
}

TEST(Rank, BlockOfPlantedRank) {
  // A map whose part below the diagonal blocks is a sum of r products: full rank as a triangle, rank r as a block.
  constexpr int64_t kTokens = 120;
  for (int rank : {1, 2, 5}) {
    Rng rng(static_cast<uint64_t>(rank));
    std::vector<float> u(kTokens * 5), v(kTokens * 5), map(kTokens * kTokens);
    for (float& x : u) x = static_cast<float>(rng.below(16));  // small whole numbers: exact in f32
    for (float& x : v) x = static_cast<float>(rng.below(16));
    for (int64_t i = 0; i < kTokens; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        for (int k = 0; k < rank; ++k)
          map[static_cast<size_t>(i * kTokens + j)] +=
              u[static_cast<size_t>(i * 5 + k)] * v[static_cast<size_t>(j * 5 + k)];
      }
    }
    const Block block = rank_block(kTokens);
    const auto sigma = singular_values(map.data() + block.rows[0] * kTokens, 30, block.columns, kTokens);
    EXPECT_LE(rank_measures(sigma).entropy, rank + 1e-9);
    EXPECT_LE(rank_measures(sigma).r99, rank);
    EXPECT_EQ(std::count_if(sigma.begin(), sigma.end(), [&](double s) { return s > 1e-9 * sigma[0]; }), rank);
    EXPECT_GT(rank_measures(singular_values(map.data(), kTokens, kTokens, kTokens)).entropy, 2.0 * rank);
  }
}

TEST(Rank, BlockRows) {
  EXPECT_TRUE(rank_block(0).rows.empty());
  EXPECT_TRUE(rank_block(1).rows.empty());
  EXPECT_EQ(rank_block(2).columns, 1);
  EXPECT_EQ(rank_block(2).rows, std::vector<int64_t>{1});
  EXPECT_EQ(rank_block(7).columns, 5);
  const Block small = rank_block(512), large = rank_block(4096);
  EXPECT_EQ(small.columns, 384);
  EXPECT_EQ(small.rows.size(), 128u);
  EXPECT_EQ(large.columns, 3072);
  ASSERT_EQ(large.rows.size(), 256u);
  EXPECT_EQ(large.rows[0], 3072);
  for (size_t r = 1; r < 256; ++r) EXPECT_EQ(large.rows[r] - large.rows[r - 1], 4);
}

TEST(Rank, PermutedRowsHoldTheSameWeights) {
  for (const int64_t window : {0, 5}) {
    const int64_t n = 40;
    std::vector<float> map(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = window ? std::max<int64_t>(0, i - window + 1) : 0; j <= i; ++j)
        map[static_cast<size_t>(i * n + j)] = static_cast<float>(i * n + j + 1);
    }
    auto permuted = map, again = map;
    permute_visible(permuted.data(), n, window, 1, 2);
    permute_visible(again.data(), n, window, 1, 2);
    EXPECT_EQ(permuted, again);
    EXPECT_NE(permuted, map);
    for (int64_t i = 0; i < n; ++i) {
      auto row = permuted.begin() + i * n;
      for (int64_t j = 0; j < n; ++j) EXPECT_EQ(row[j] == 0, map[static_cast<size_t>(i * n + j)] == 0);
      std::sort(row, row + n);
      auto expected = std::vector<float>(map.begin() + i * n, map.begin() + (i + 1) * n);
      std::sort(expected.begin(), expected.end());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), row));
    }
  }
}

TEST(Rank, NotFiniteIsAnError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> a(16, 1.0f);
    a[9] = bad;
    try {
      singular_values(a.data(), 4, 4, 4);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::numeric);
      EXPECT_NE(std::string(error.what()).find("row 2"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace unchain::analysis
