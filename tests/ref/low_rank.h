// Maps of low rank in double, densely: the truncated singular value decomposition by one-sided Jacobi, and alternating
// least squares in which every system is formed by loops over the visible entries and solved by elimination. Shares no
// code with src/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "ref/analysis_ref.h"

namespace unchain::ref {

struct LowRankFactors {
  Matrix u, v;  // [N][R]
};

inline bool sees(size_t i, size_t j, size_t window) {
  return j <= i && (window == 0 || i - j < window);
}

// The leading `rank` singular triples of a square map, √σ on both sides.
inline LowRankFactors truncated_svd(Matrix a, size_t rank) {
  const size_t n = a.size();
  Matrix v = zeros(n, n);
  for (size_t j = 0; j < n; ++j) v[j][j] = 1;
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        const std::optional<Rotation> turn = orthogonalising(a, p, q);
        if (!turn) continue;
        for (Matrix* m : {&a, &v}) turn->apply(*m, p, q);
      }
    }
  }
  std::vector<std::pair<double, size_t>> sigma(n);
  for (size_t j = 0; j < n; ++j) {
    for (const auto& row : a) sigma[j].first += row[j] * row[j];
    sigma[j] = {std::sqrt(sigma[j].first), j};
  }
  std::sort(sigma.rbegin(), sigma.rend());
  LowRankFactors out{zeros(n, rank), zeros(n, rank)};
  for (size_t k = 0; k < rank; ++k) {
    const auto [s, column] = sigma[k];
    for (size_t i = 0; i < n && s > 0; ++i) {
      out.u[i][k] = a[i][column] / std::sqrt(s);
      out.v[i][k] = v[i][column] * std::sqrt(s);
    }
  }
  return out;
}

// x of m x = b, by elimination with the largest pivot.
inline std::vector<double> solve(Matrix m, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t k = 0; k < n; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < n; ++i) {
      if (std::abs(m[i][k]) > std::abs(m[pivot][k])) pivot = i;
    }
    std::swap(m[k], m[pivot]);
    std::swap(b[k], b[pivot]);
    for (size_t i = k + 1; i < n; ++i) {
      const double f = m[i][k] / m[k][k];
      for (size_t j = k; j < n; ++j) m[i][j] -= f * m[k][j];
      b[i] -= f * b[k];
    }
  }
  for (size_t k = n; k-- > 0;) {
    for (size_t j = k + 1; j < n; ++j) b[k] -= m[k][j] * b[j];
    b[k] /= m[k][k];
  }
  return b;
}

inline LowRankFactors fit_visible(const Matrix& a, size_t window, size_t rank, int sweeps, double ridge) {
  LowRankFactors f = truncated_svd(a, rank);
  const size_t n = a.size();
  // side[x] by least squares from the other side's vectors of all places that belong to x.
  const auto half = [&](Matrix& side, const Matrix& other, bool of_rows) {
    for (size_t x = 0; x < n; ++x) {
      Matrix gram = zeros(rank, rank);
      std::vector<double> right(rank);
      for (size_t y = 0; y < n; ++y) {
        const size_t i = of_rows ? x : y, j = of_rows ? y : x;
        if (!sees(i, j, window)) continue;
        for (size_t k = 0; k < rank; ++k) {
          for (size_t l = 0; l < rank; ++l) gram[k][l] += other[y][k] * other[y][l];
          right[k] += a[i][j] * other[y][k];
        }
      }
      for (size_t k = 0; k < rank; ++k) gram[k][k] += ridge;
      side[x] = solve(gram, right);
    }
  };
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    half(f.u, f.v, true);
    half(f.v, f.u, false);
  }
  return f;
}

}  // namespace unchain::ref
