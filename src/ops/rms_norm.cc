#include "ops/rms_norm.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"
#include "simd/gradients.h"
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

void rms_norm_backward(const Matrix& d_x, float* d_weight, RmsNormWorkspace& workspace, const Matrix& d_out,
                       const RmsNormSaved& saved, const Matrix& x, const float* weight) {
  if (d_x.rows != x.rows || d_out.rows != x.rows || d_x.cols != x.cols || d_out.cols != x.cols) {
    fail(ErrorCode::shape, "rms_norm backward: d_x [{}, {}], d_out [{}, {}], x [{}, {}] do not fit", d_x.rows, d_x.cols,
         d_out.rows, d_out.cols, x.rows, x.cols);
  }
  // Chunks of at least 32 rows, and few enough that adding their sums up costs nothing.
  const int64_t chunks = std::clamp<int64_t>(x.rows / 32, 1, 64);
  const auto width = static_cast<size_t>(x.cols);
  if (d_weight != nullptr) workspace.partial.reserve(static_cast<size_t>(chunks) * width);
  parallel_for(chunks, [&](int64_t chunk) {
    float* partial = d_weight == nullptr ? nullptr : workspace.partial.data() + static_cast<size_t>(chunk) * width;
    if (partial != nullptr) std::fill_n(partial, width, 0.0f);
    const int64_t end = x.rows * (chunk + 1) / chunks;
    for (int64_t t = x.rows * chunk / chunks; t < end; ++t) {
      simd::rms_norm_backward_row(d_x.f32(t), partial, d_out.f32(t), x.f32(t), weight, saved.inverse_rms[t], width);
    }
  });
  if (d_weight == nullptr) return;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    simd::add(d_weight, workspace.partial.data() + static_cast<size_t>(chunk) * width, width);
  }
}

}  // namespace unchain::ops
