#include "ops/gated.h"

#include "base/check.h"
#include "base/thread.h"
#include "simd/gradients.h"
#include "simd/kernels.h"

namespace unchain::ops {
namespace {

template <class T>
void row(const float* gate, const float* up, T* out, size_t width, Activation activation) {
  activation == Activation::silu ? simd::silu_mul(gate, up, out, width) : simd::gelu_tanh_mul(gate, up, out, width);
}

template <class T>
void row_backward(T* d_gate, T* d_up, const float* d_out, const float* gate, const float* up, size_t width,
                  Activation activation) {
  activation == Activation::silu ? simd::silu_backward(d_gate, d_up, d_out, gate, up, width)
                                 : simd::gelu_tanh_backward(d_gate, d_up, d_out, gate, up, width);
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

void gated_backward(const Matrix& d_gate, const Matrix& d_up, const Matrix& d_out, const Matrix& gate, const Matrix& up,
                    Activation activation) {
  for (const Matrix* m : {&d_gate, &d_up, &gate, &up}) {
    if (m->rows != d_out.rows || m->cols != d_out.cols) {
      fail(ErrorCode::shape, "gate backward: [{}, {}] beside d_out [{}, {}]", m->rows, m->cols, d_out.rows, d_out.cols);
    }
  }
  if (d_gate.type != d_up.type || gate.type != DType::f32 || up.type != DType::f32 || d_out.type != DType::f32) {
    fail(ErrorCode::shape,
         "gate backward: d_gate {}, d_up {} from d_out {}, gate {}, up {}: expected two of one type from f32",
         info(d_gate.type).name, info(d_up.type).name, info(d_out.type).name, info(gate.type).name, info(up.type).name);
  }
  parallel_ranges(d_out.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const auto width = static_cast<size_t>(d_out.cols);
      d_gate.type == DType::bf16
          ? row_backward(d_gate.bf16s(t), d_up.bf16s(t), d_out.f32(t), gate.f32(t), up.f32(t), width, activation)
          : row_backward(d_gate.f32(t), d_up.f32(t), d_out.f32(t), gate.f32(t), up.f32(t), width, activation);
    }
  });
}

}  // namespace unchain::ops
