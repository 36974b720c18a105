// RMSNorm in double by plain loops, forward and backward; and the norm of heads.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace unchain::ref {

inline double inverse_rms(const double* x, size_t width, double eps) {
  double squares = 0;
  for (size_t i = 0; i < width; ++i) squares += x[i] * x[i];
  return 1 / std::sqrt(squares / static_cast<double>(width) + eps);
}

// out[T, D] = x/√(mean(x²) + eps) ⊙ weight; an empty weight means ones.
inline std::vector<double> rms_norm(const std::vector<double>& x, const std::vector<double>& weight, size_t rows,
                                    size_t width, double eps) {
  std::vector<double> out(x.size());
  for (size_t t = 0; t < rows; ++t) {
    const double r = inverse_rms(&x[t * width], width, eps);
    for (size_t i = 0; i < width; ++i) out[t * width + i] = x[t * width + i] * r * (weight.empty() ? 1 : weight[i]);
  }
  return out;
}

struct RmsNormGradients {
  std::vector<double> d_x, d_weight;
};

// By the full Jacobian: ∂out_i/∂x_j = weight_i (δ_ij r − x_i x_j r³/D).
inline RmsNormGradients rms_norm_backward(const std::vector<double>& d_out, const std::vector<double>& x,
                                          const std::vector<double>& weight, size_t rows, size_t width, double eps) {
  RmsNormGradients g{std::vector<double>(x.size()), std::vector<double>(width)};
  for (size_t t = 0; t < rows; ++t) {
    const double* row = &x[t * width];
    const double r = inverse_rms(row, width, eps);
    for (size_t i = 0; i < width; ++i) {
      const double w = weight.empty() ? 1 : weight[i];
      g.d_weight[i] += d_out[t * width + i] * row[i] * r;
      for (size_t j = 0; j < width; ++j) {
        const double jacobian = w * ((i == j ? r : 0) - row[i] * row[j] * r * r * r / static_cast<double>(width));
        g.d_x[t * width + j] += d_out[t * width + i] * jacobian;
      }
    }
  }
  return g;
}

// The norm after differential attention: each head's row of o[T, H, W] by itself, one weight[W] for all heads, times
// 1 − λ_init.
inline std::vector<double> head_norm(const std::vector<double>& o, const std::vector<double>& weight, size_t width,
                                     double eps, double init) {
  std::vector<double> out = rms_norm(o, weight, o.size() / width, width, eps);
  for (double& x : out) x *= 1 - init;
  return out;
}

inline RmsNormGradients head_norm_backward(std::vector<double> d_out, const std::vector<double>& o,
                                           const std::vector<double>& weight, size_t width, double eps, double init) {
  for (double& x : d_out) x *= 1 - init;
  return rms_norm_backward(d_out, o, weight, o.size() / width, width, eps);
}

}  // namespace unchain::ref
