#include "analysis/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "analysis/planted_maps.h"
#include "ref/low_rank.h"
#include "support/temporary_folder.h"

namespace unchain::analysis {
namespace {

std::vector<double> flat(const ref::Matrix& a) {
  std::vector<double> out;
  for (const auto& row : a) out.insert(out.end(), row.begin(), row.end());
  return out;
}

ref::Matrix uniform(size_t n, size_t window = 0) {
  ref::Matrix a = ref::zeros(n, n);
  for (size_t i = 0; i < n; ++i) {
    const double keys = static_cast<double>(window > 0 ? std::min(window, i + 1) : i + 1);
    for (size_t j = 0; j <= i; ++j) a[i][j] = ref::sees(i, j, window) ? 1 / keys : 0;
  }
  return a;
}

// U Vᵀ of Gaussian factors, where rows see it. The first keys and the last rows lie along the axes, so that what few of
// them make out is well posed.
ref::Matrix planted(size_t n, size_t rank, uint64_t seed, size_t window = 0) {
  Rng rng(seed);
  ref::Matrix u = ref::zeros(n, rank), v = u, a = ref::zeros(n, n);
  for (ref::Matrix* m : {&u, &v}) {
    for (auto& row : *m) {
      for (double& x : row) x = rng.normal();
    }
  }
  for (size_t k = 0; k < rank; ++k) {
    for (size_t l = 0; l < rank; ++l) u[n - 1 - k][l] = v[k][l] = k == l ? 2 : 0;
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      for (size_t k = 0; k < rank && ref::sees(i, j, window); ++k) a[i][j] += u[i][k] * v[j][k];
    }
  }
  return a;
}

// ‖A − B‖_F/‖A‖_F over what rows see; `masked` false: over all places.
double relative_error(const ref::Matrix& a, const Factors& f, size_t window = 0, bool masked = true) {
  double error = 0, norm = 0;
  const auto rank = static_cast<size_t>(f.rank);
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a.size(); ++j) {
      if (masked && !ref::sees(i, j, window)) continue;
      double b = 0;
      for (size_t k = 0; k < rank; ++k) b += f.u[i * rank + k] * f.v[j * rank + k];
      error += (a[i][j] - b) * (a[i][j] - b);
      norm += a[i][j] * a[i][j];
    }
  }
  return std::sqrt(error / norm);
}

// The smallest eigenvalue, but zeros, of the Gram matrices of V_0 … V_i and U_j … U_{N−1}, over all i and j.
double least_eigenvalue(const Factors& f) {
  double least = 1;
  const auto n = static_cast<size_t>(f.tokens), rank = static_cast<size_t>(f.rank);
  for (size_t count = 1; count <= n; ++count) {
    ref::Matrix keys, rows;
    for (size_t i = 0; i < count; ++i) {
      const double *v = f.v.data() + i * rank, *u = f.u.data() + (n - 1 - i) * rank;
      keys.emplace_back(v, v + rank);
      rows.emplace_back(u, u + rank);
    }
    for (const ref::Matrix* m : {&keys, &rows}) {
      const double sigma = ref::jacobi_singular_values(*m).at(std::min(count, rank) - 1);
      least = std::min(least, sigma * sigma);
    }
  }
  return least;
}

LowRank low_rank_of(const ref::Matrix& a, int64_t window = 0) {
  return LowRank(flat(a), static_cast<int64_t>(a.size()), window);
}

// U_i = 1/(i + 1), V_j = 1 make the uniform map; its truncation at rank 1 misses most of it.
TEST(LowRank, TheUniformMapHasRankOneWhereRowsSee) {
  const ref::Matrix a = uniform(64);
  const LowRank low_rank = low_rank_of(a);
  EXPECT_NEAR(relative_error(a, low_rank.truncated(1)), 0.59, 0.005);
  EXPECT_LT(relative_error(a, low_rank.fitted(1)), 1e-3);
}

TEST(LowRank, APlantedRankIsFoundAndNoLess) {
  for (uint64_t seed : {1, 2, 3}) {
    const ref::Matrix a = planted(64, 3, seed);
    const LowRank low_rank = low_rank_of(a);
    // What remains is the ridge's pull: a half sweep leaves ρ/μ of every row that it fits, μ being the smallest
    // eigenvalue, but zeros, of the matrices of its systems; there are two halves. A smaller ridge leaves less.
    for (const auto& [sweeps, ridge] : {std::pair(20, 1e-6), {40, 1e-10}}) {
      const Factors f = low_rank.fitted(3, {sweeps, ridge});
      EXPECT_GT(least_eigenvalue(f), 0.1) << "else the bound says little";
      EXPECT_LT(relative_error(a, f), 2 * ridge / least_eigenvalue(f));
    }
    EXPECT_GT(relative_error(a, low_rank.truncated(3)), 0.1);
    // All of rows 32 … 63, keys 0 … 31 is visible, so that no map of rank 2 comes nearer than σ_3 of that part.
    ref::Matrix part;
    double norm = 0;
    for (size_t i = 32; i < 64; ++i) part.emplace_back(a[i].begin(), a[i].begin() + 32);
    for (const auto& row : a) {
      for (const double x : row) norm += x * x;
    }
    const double least = ref::jacobi_singular_values(part)[2] / std::sqrt(norm);
    EXPECT_GT(least, 0.1);
    EXPECT_GT(relative_error(a, low_rank.fitted(2)), least);
  }
}

TEST(LowRank, AgreesWithDenseLeastSquares) {
  Rng rng(5);
  for (const int64_t window : {0, 4, 12}) {
    const ref::Matrix a = random_softmax(12, window, rng);
    for (const size_t rank : {1u, 2u, 3u, 5u}) {
      for (const int sweeps : {0, 1, 20}) {
        const Factors f = low_rank_of(a, window).fitted(static_cast<int64_t>(rank), {sweeps, 1e-6});
        const auto expected = ref::fit_visible(a, static_cast<size_t>(window), rank, sweeps, 1e-6);
        for (size_t i = 0; i < 12; ++i) {
          for (size_t j = 0; j <= i; ++j) {
            if (!ref::sees(i, j, static_cast<size_t>(window))) continue;
            double b = 0, c = 0;
            for (size_t k = 0; k < rank; ++k) {
              b += f.u[i * rank + k] * f.v[j * rank + k];
              c += expected.u[i][k] * expected.v[j][k];
            }
            // A system of condition ‖G‖/ridge ≤ 1e7 is solved to 1e7·2.2e-16 of a solution of about 1; there are 40.
            EXPECT_NEAR(b, c, 40 * 1e7 * 2.2e-16) << window << " " << rank << " " << sweeps << " " << i << " " << j;
          }
        }
      }
    }
  }
}

TEST(LowRank, TruncationIsTheBestOfItsRank) {
  Rng rng(6);
  const ref::Matrix a = random_softmax(40, 0, rng);
  const auto sigma = ref::jacobi_singular_values(a);
  double all = 0;
  for (const double s : sigma) all += s * s;
  for (const size_t rank : {0u, 1u, 3u, 16u, 39u}) {
    double rest = 0;
    for (size_t k = rank; k < sigma.size(); ++k) rest += sigma[k] * sigma[k];
    // Eigenvectors of AᵀA are exact to eps over the gap of σ², which enters the error squared.
    EXPECT_NEAR(relative_error(a, low_rank_of(a).truncated(static_cast<int64_t>(rank)), 0, false),
                std::sqrt(rest / all), 1e-9)
        << rank;
  }
}

TEST(LowRank, TheErrorFallsWithTheRank) {
  for (const int64_t window : {0, 20}) {
    Rng rng(7);
    const ref::Matrix a = random_softmax(64, window, rng);
    const LowRank low_rank = low_rank_of(a, window);
    const auto w = static_cast<size_t>(window);
    double before = 1;
    for (const int64_t rank : {1, 2, 3, 5, 8, 16}) {
      const double error = relative_error(a, low_rank.fitted(rank), w);
      EXPECT_LT(error, before) << rank;
      EXPECT_LT(error, relative_error(a, low_rank.truncated(rank), w)) << rank;
      before = error;
    }
    EXPECT_EQ(relative_error(a, low_rank.fitted(0), w), 1);
  }
}

TEST(LowRank, FullRankIsExact) {
  Rng rng(8);
  for (const int64_t n : {1, 2, 7, 64}) {
    for (const int64_t window : {0, 3}) {
      const ref::Matrix a = random_softmax(n, window, rng);
      const LowRank low_rank = low_rank_of(a, window);
      for (const int64_t rank : {n, n + 5}) {
        // N products of orthogonal vectors, each rounded a few times.
        const double bound = 10 * static_cast<double>(n) * 2.2e-16;
        EXPECT_LT(relative_error(a, low_rank.truncated(rank), 0, false), bound);
        EXPECT_LT(relative_error(a, low_rank.fitted(rank), 0, false), bound);
        EXPECT_EQ(low_rank.fitted(rank).rank, n);
      }
    }
  }
}

TEST(LowRank, ZeroMapsStayZero) {
  const LowRank low_rank = low_rank_of(ref::zeros(9, 9));
  for (const int64_t rank : {0, 1, 3, 9}) {
    for (const Factors& f : {low_rank.truncated(rank), low_rank.fitted(rank)}) {
      for (const bool divide : {false, true}) {
        std::vector<float> row(9, 7.0f);
        write_row(row.data(), f, 8, 0, divide);
        EXPECT_EQ(row, std::vector<float>(9));
      }
    }
  }
}

TEST(LowRank, RowsAreCutToWhatTheySeeAndDivided) {
  // Two columns of small whole numbers: products are exact.
  const Factors f{4, 2, {1, 0, 2, 1, -1, 3, 0.25, 0}, {1, 2, -1, 1, 4, 0, 0.125, 8}};
  std::vector<float> row(5, 9.0f);
  write_row(row.data(), f, 2, 1, false);
  EXPECT_EQ(row, (std::vector<float>{0, 4, -4, 9, 9})) << "keys behind the row are left alone";
  write_row(row.data(), f, 2, 0, true);  // 5, 4, −4 sum to 5
  EXPECT_EQ(row, (std::vector<float>{1, 0.8f, -0.8f, 9, 9}));
  write_row(row.data(), f, 3, 3, true);  // 1/32 counts as 0.1
  EXPECT_EQ(row, (std::vector<float>{0, 0, 0, 0.3125f, 9}));
  write_row(row.data(), f, 2, 2, true);  // −4 too
  EXPECT_EQ(row, (std::vector<float>{0, 0, -40, 0.3125f, 9}));
}

TEST(LowRank, WhatIsWrongIsSaid) {
  using test::expect_error;
  expect_error([] { LowRank(std::vector<double>(8), 3); }, ErrorCode::shape, {"8 numbers", "3 tokens"});
  expect_error([] { LowRank({}, 0); }, ErrorCode::shape, {"0 tokens"});
  std::vector<double> bad(9);
  bad[7] = std::numeric_limits<double>::quiet_NaN();
  expect_error([&] { LowRank(bad, 3); }, ErrorCode::numeric, {"row 2 key 1"});
  expect_error([] { low_rank_of(ref::zeros(3, 3)).truncated(-1); }, ErrorCode::usage, {"rank -1"});
}

}  // namespace
}  // namespace unchain::analysis
