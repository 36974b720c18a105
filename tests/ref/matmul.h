// Matrix product in double by plain loops.
#pragma once

#include <cstdint>
#include <vector>

namespace unchain::ref {

// c[M, N] = a[M, K] b, where b is [K, N], or [N, K] if transposed.
inline std::vector<double> matmul(const std::vector<double>& a, const std::vector<double>& b, int64_t m, int64_t n,
                                  int64_t k, bool transpose_b) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t x = 0; x < k; ++x) {
        sum += a[static_cast<size_t>(i * k + x)] * b[static_cast<size_t>(transpose_b ? j * k + x : x * n + j)];
      }
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  }
  return c;
}

// [cols, rows] from x[rows, cols].
inline std::vector<double> transposed(const std::vector<double>& x, int64_t rows, int64_t cols) {
  std::vector<double> out(x.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) out[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * cols + j)];
  }
  return out;
}

}  // namespace unchain::ref
