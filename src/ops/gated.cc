#include "ops/gated.h"

#include "base/thread.h"
#include "simd/kernels.h"

namespace unchain::ops {
namespace {

template <class T>
void row(const float* gate, const float* up, T* out, size_t width, Activation activation) {
  activation == Activation::silu ? simd::silu_mul(gate, up, out, width) : simd::gelu_tanh_mul(gate, up, out, width);
}

}  // namespace

void gated_forward(const Matrix& out, const Matrix& gate, const Matrix& up, Activation activation) {
  parallel_ranges(out.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const auto width = static_cast<size_t>(out.cols);
      if (out.type == DType::bf16) {
        row(gate.f32(t), up.f32(t), out.bf16s(t), width, activation);
      } else {
        row(gate.f32(t), up.f32(t), out.f32(t), width, activation);
      }
    }
  });
}

}  // namespace unchain::ops
