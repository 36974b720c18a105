// y = x Wᵀ + b.
#pragma once

#include <initializer_list>

#include "ops/gemm.h"
#include "tensor/matrix.h"

namespace unchain::ops {

// A weight [out, in], with an optional bias [out]: row by row as files hold it, or packed (then `weight` has no data).
// Not owning.
struct Linear {
  Matrix weight;
  const float* bias = nullptr;
  PackedMatrix packed = {};

  bool is_packed() const { return packed.data != nullptr; }
  int64_t inputs() const { return is_packed() ? packed.inputs : weight.cols; }
  int64_t outputs() const { return is_packed() ? packed.outputs : weight.rows; }
  DType type() const { return is_packed() ? packed.type : weight.type; }
};

// The type in which x should come for `rows` rows of it: f32 for f32 weights; for bf16 weights bf16, except for so few
// rows that the product is bound by reading the weights (decoding): then f32, which is free there and more exact.
DType activation_type(DType weight_type, int64_t rows) noexcept;

// One product of linear_forward: out[T, outputs] f32.
struct LinearOutput {
  Matrix out;
  const Linear& linear;
};

// out[T, outputs] = x[T, inputs] Wᵀ + bias, f32, for all products that read the same x. x.type as activation_type()
// says. Errors: shape.
void linear_forward(const Matrix& x, std::initializer_list<LinearOutput> outputs);

// The same for one product.
inline void linear_forward(const Matrix& out, const Matrix& x, const Linear& linear) {
  linear_forward(x, {{out, linear}});
}

}  // namespace unchain::ops
