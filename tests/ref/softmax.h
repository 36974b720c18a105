// Softmax of rows, forward and backward, in double by plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace unchain::ref {

// p[T, N]: each row e^(x − max)/Σ.
inline std::vector<double> softmax(const std::vector<double>& x, size_t rows, size_t cols) {
  std::vector<double> p(x.size());
  for (size_t t = 0; t < rows; ++t) {
    double largest = x[t * cols], sum = 0;
    for (size_t j = 0; j < cols; ++j) largest = std::max(largest, x[t * cols + j]);
    for (size_t j = 0; j < cols; ++j) sum += std::exp(x[t * cols + j] - largest);
    for (size_t j = 0; j < cols; ++j) p[t * cols + j] = std::exp(x[t * cols + j] - largest) / sum;
  }
  return p;
}

// d_x_j = p_j (d_p_j − Σ_k p_k d_p_k), row by row.
inline std::vector<double> softmax_backward(const std::vector<double>& d_p, const std::vector<double>& p, size_t rows,
                                            size_t cols) {
  std::vector<double> d_x(p.size());
  for (size_t t = 0; t < rows; ++t) {
    double inner = 0;
    for (size_t j = 0; j < cols; ++j) inner += p[t * cols + j] * d_p[t * cols + j];
    for (size_t j = 0; j < cols; ++j) d_x[t * cols + j] = p[t * cols + j] * (d_p[t * cols + j] - inner);
  }
  return d_x;
}

}  // namespace unchain::ref
