// Rows of a table: out_t = scale · table[ids_t], and the gradient of the table.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/matrix.h"

namespace unchain::ops {

// out[T, D] from table[V, D], each f32 or bf16, and ids[T]; one product and one rounding to the type of out. Errors:
// shape; usage if an id lies outside the table.
void embedding_forward(const Matrix& out, const Matrix& table, std::span<const int32_t> ids, float scale = 1);

// d_table[V, D] f32: row ids_t += scale·d_out_t, in the order of t, for d_out[T, D] f32. Threads share out the columns,
// so that no row is written by two of them: the same bits for any number of threads. Errors: as forward.
void embedding_backward(const Matrix& d_table, const Matrix& d_out, std::span<const int32_t> ids, float scale = 1);

}  // namespace unchain::ops
