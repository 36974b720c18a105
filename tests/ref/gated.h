// The activations of gated feed-forward layers in double.
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

}  // namespace unchain::ref
