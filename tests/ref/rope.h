// Rotary position in double: pairs turn by position · theta^(−2i/E).
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace unchain::ref {

// One head's vector x[E]; neighbours: pairs (2i, 2i + 1), else (i, i + E/2).
inline std::vector<double> rope(const std::vector<double>& x, int64_t position, double theta, bool neighbours) {
  const size_t half = x.size() / 2;
  std::vector<double> out(x.size());
  for (size_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(x.size()));
    const double angle = static_cast<double>(position) * frequency;
    const size_t a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + half;
    out[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    out[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
  }
  return out;
}

// The gradient of x, pair by pair: out_a = x_a cos − x_b sin, out_b = x_a sin + x_b cos.
inline std::vector<double> rope_backward(const std::vector<double>& d_out, int64_t position, double theta,
                                         bool neighbours) {
  const size_t half = d_out.size() / 2;
  std::vector<double> d_x(d_out.size());
  for (size_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d_out.size()));
    const double angle = static_cast<double>(position) * frequency;
    const size_t a = neighbours ? 2 * i : i, b = neighbours ? 2 * i + 1 : i + half;
    d_x[a] = d_out[a] * std::cos(angle) + d_out[b] * std::sin(angle);
    d_x[b] = d_out[b] * std::cos(angle) - d_out[a] * std::sin(angle);
  }
  return d_x;
}

}  // namespace unchain::ref
