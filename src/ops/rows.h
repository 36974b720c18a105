// Rows of f32 or bf16 as they are: copied, converted, zeroed, added up.
#pragma once

#include "tensor/matrix.h"

namespace unchain::ops {

// out[T, D] = x[T, D], each f32 or bf16: to bf16 rounds to nearest, ties to even, all else is exact. They do not
// overlap. Errors: shape.
void copy_rows(const Matrix& out, const Matrix& x);

// out = 0, the numbers between its rows untouched.
void fill_zero(const Matrix& out);

// out[T, D] += x[T, D], both f32. They do not overlap. Errors: shape.
void add_rows(const Matrix& out, const Matrix& x);

// out[D] += Σ_t x_t, x[T, D] f32 or bf16: the gradient of a bias. Added up 64 rows at a time, so that an entry is off
// by at most (65 + T/64)·eps_f32·(|out| + Σ|x|); the same bits for any number of threads.
void add_column_sums(float* out, const Matrix& x);

}  // namespace unchain::ops
