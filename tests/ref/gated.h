// The activations of gated feed-forward layers in double, and their derivatives.
#pragma once

#include <cmath>
#include <numbers>

namespace unchain::ref {

inline double silu(double x) {
  return x / (1 + std::exp(-x));
}

// x/2·(1 + tanh u), u = √(2/π)(x + 0.044715x³), written as x/(1 + e^−2u): the sum 1 + tanh u loses all digits where u ≪
// 0.
inline double gelu_tanh(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

// σ(x)·(1 + x·σ(−x)).
inline double silu_slope(double x) {
  return (1 + x / (1 + std::exp(x))) / (1 + std::exp(-x));
}

// (1 + tanh u)/2 + x/2·u'·sech²u, with (1 + tanh u)/2 = 1/(1 + e^−2u).
inline double gelu_tanh_slope(double x) {
  const double root = std::sqrt(2 / std::numbers::pi), u = root * (x + 0.044715 * x * x * x);
  const double bend = 1 / std::cosh(u), u_slope = root * (1 + 3 * 0.044715 * x * x);
  return 1 / (1 + std::exp(-2 * u)) + (bend == 0 ? 0 : x / 2 * u_slope * bend * bend);
}

}  // namespace unchain::ref
