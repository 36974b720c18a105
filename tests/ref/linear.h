// y = x Wᵀ + b and its gradients in double by plain loops.
#pragma once

#include <cstddef>
#include <vector>

namespace unchain::ref {

// y[T, out] from x[T, in], weight[out, in] and bias[out].
inline std::vector<double> linear(const std::vector<double>& x, const std::vector<double>& weight,
                                  const std::vector<double>& bias, size_t rows, size_t inputs) {
  const size_t outputs = bias.size();
  std::vector<double> y(rows * outputs);
  for (size_t t = 0; t < rows; ++t) {
    for (size_t o = 0; o < outputs; ++o) {
      y[t * outputs + o] = bias[o];
      for (size_t i = 0; i < inputs; ++i) y[t * outputs + o] += x[t * inputs + i] * weight[o * inputs + i];
    }
  }
  return y;
}

struct LinearBackward {
  std::vector<double> d_x, d_weight, d_bias;
};

inline LinearBackward linear_backward(const std::vector<double>& d_y, const std::vector<double>& x,
                                      const std::vector<double>& weight, size_t rows, size_t inputs, size_t outputs) {
  LinearBackward g{std::vector<double>(rows * inputs), std::vector<double>(outputs * inputs),
                   std::vector<double>(outputs)};
  for (size_t t = 0; t < rows; ++t) {
    for (size_t o = 0; o < outputs; ++o) {
      const double up = d_y[t * outputs + o];
      g.d_bias[o] += up;
      for (size_t i = 0; i < inputs; ++i) {
        g.d_x[t * inputs + i] += up * weight[o * inputs + i];
        g.d_weight[o * inputs + i] += up * x[t * inputs + i];
      }
    }
  }
  return g;
}

}  // namespace unchain::ref
