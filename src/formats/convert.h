// Stored values to and from f32: every type that a file can hold and that we read (f32, f16, bf16, f64, q4_1, q5_0,
// q8_0, q4_k, q6_k).
#pragma once

#include "tensor/tensor.h"

namespace unchain::formats {

// Whether decode() knows the type.
bool can_decode(DType type) noexcept;
// out[count] = the `count` values that begin at element `first` of the tensor; both must be multiples of the type's
// block. Exact: f16, bf16 and the quantised types' arithmetic are representable or rounded once, in f32.
// Errors: unsupported (type), shape (range outside the tensor or not on blocks).
void decode(const Tensor& tensor, int64_t first, int64_t count, float* out);
// The same into bf16, rounded to nearest.
void decode(const Tensor& tensor, int64_t first, int64_t count, bf16* out);

// A new tensor of `type` (f32, f16, bf16, q8_0) with the same name and shape. The same type: the same bytes, shared.
// Errors: unsupported (type); shape (a row that is no multiple of 32 for q8_0); numeric (a value beyond what f16 or
// q8_0 holds, or not finite for q8_0). Runs on all threads.
Tensor convert(const Tensor& tensor, DType type);

}  // namespace unchain::formats
