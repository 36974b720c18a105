// y = x Wᵀ + b, and its gradients.
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
// Training, where rows come in thousands, may give bf16 for any number of them.
DType activation_type(DType weight_type, int64_t rows) noexcept;

// One product of linear_forward: out[T, outputs] f32.
struct LinearOutput {
  Matrix out;
  const Linear& linear;
};

// out[T, outputs] = x[T, inputs] Wᵀ + bias, f32, for all products that read the same x. x.type as activation_type()
// says, or the weights' own. Errors: shape.
void linear_forward(const Matrix& x, std::initializer_list<LinearOutput> outputs);

// The same for one product.
inline void linear_forward(const Matrix& out, const Matrix& x, const Linear& linear) {
  linear_forward(x, {{out, linear}});
}

// Where the gradients of a weight and its bias are added up, f32. Without data: not wanted.
struct LinearGradients {
  Matrix d_weight;          // [out, in]
  float* d_bias = nullptr;  // [out]
};

// d_x[T, in] = d_y W (or +=; d_x without data: not wanted), d_weight[out, in] += d_yᵀ x, d_bias[out] += Σ_t d_y_t, all
// f32. d_y[T, out], x[T, in] and weight[out, in] are of one type, f32 or bf16: under bf16 the caller rounds d_y once
// for both products. Nothing overlaps. Accuracy: as gemm(); a column sum of T numbers is off by (64 +
// T/64)·eps_f32·Σ|d_y|. The same bits for the same number of threads. Errors: shape.
void linear_backward(const Matrix& d_x, Store store, const LinearGradients& gradients, const Matrix& d_y,
                     const Matrix& x, const Matrix& weight);

}  // namespace unchain::ops
