#include "ops/rms_norm.h"

#include <atomic>
#include <cmath>

#include "base/thread.h"
#include "simd/kernels.h"

namespace unchain::ops {

int64_t rms_norm_forward(const Matrix& out, const RmsNormSaved& saved, const Matrix& x, const float* weight,
                         float eps) {
  const auto width = static_cast<size_t>(x.cols);
  std::atomic<int64_t> bad{-1};
  parallel_ranges(x.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      // Pass 1: the row's root mean square.
      const float mean_square = simd::sum_squares(x.f32(t), width) / static_cast<float>(x.cols);
      const float inverse = 1.0f / std::sqrt(mean_square + eps);
      if (!std::isfinite(mean_square)) {
        int64_t first = bad;
        while ((first < 0 || t < first) && !bad.compare_exchange_weak(first, t)) {
        }
      }
      if (saved.inverse_rms != nullptr) saved.inverse_rms[t] = inverse;
      // Pass 2: scale.
      if (weight == nullptr) {
        out.type == DType::bf16 ? simd::scaled(x.f32(t), inverse, out.bf16s(t), width)
                                : simd::scaled(x.f32(t), inverse, out.f32(t), width);
      } else {
        out.type == DType::bf16 ? simd::scaled_by(x.f32(t), inverse, weight, out.bf16s(t), width)
                                : simd::scaled_by(x.f32(t), inverse, weight, out.f32(t), width);
      }
    }
  });
  return bad;
}

void rms_norm_backward(const Matrix& d_x, float* d_weight, const Matrix& d_out, const RmsNormSaved& saved,
                       const Matrix& x, const float* weight) {
  const int64_t width = x.cols;
  for (int64_t t = 0; t < x.rows; ++t) {
    const float* row = x.f32(t);
    const float* upstream = d_out.f32(t);
    float* d_row = d_x.f32(t);
    const float r = saved.inverse_rms[t];
    // Pass 2 was out = x·r·weight: its derivative by weight, and g, the gradient of x·r.
    double projection = 0;  // Σ g·x
    for (int64_t i = 0; i < width; ++i) {
      const float g = weight == nullptr ? upstream[i] : upstream[i] * weight[i];
      projection += static_cast<double>(g) * row[i];
      if (d_weight != nullptr) d_weight[i] += upstream[i] * row[i] * r;
    }
    // Pass 1 was r = (mean(x²) + eps)^(−1/2), so dr/dx_i = −r³·x_i/D.
    const float shrink = static_cast<float>(projection / static_cast<double>(width)) * r * r;
    for (int64_t i = 0; i < width; ++i) {
      const float g = weight == nullptr ? upstream[i] : upstream[i] * weight[i];
      d_row[i] += r * (g - row[i] * shrink);
    }
  }
}

}  // namespace unchain::ops
