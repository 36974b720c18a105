#include "ops/rope.h"

#include <cmath>

#include "simd/kernels.h"

namespace unchain::ops {

void RopeTable::extend(int64_t count, const std::vector<double>& frequencies, double magnitude) {
  half = static_cast<int64_t>(frequencies.size());
  for (int64_t p = positions(); p < count; ++p) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(p) * frequency;
      cosine.push_back(static_cast<float>(std::cos(angle) * magnitude));
      sine.push_back(static_cast<float>(std::sin(angle) * magnitude));
    }
  }
}

void rope_forward(float* out, const float* x, const RopeTable& table, int64_t position, RopePairs pairs) {
  const auto width = static_cast<size_t>(2 * table.half);
  const auto turn = pairs == RopePairs::halves ? simd::rotate_halves : simd::rotate_neighbours;
  turn(x, table.cosine_row(position), table.sine_row(position), out, width);
}

void rope_backward(float* d_x, const float* d_out, const RopeTable& table, int64_t position, RopePairs pairs) {
  const auto width = static_cast<size_t>(2 * table.half);
  const auto turn = pairs == RopePairs::halves ? simd::unrotate_halves : simd::unrotate_neighbours;
  turn(d_out, table.cosine_row(position), table.sine_row(position), d_x, width);
}

}  // namespace unchain::ops
