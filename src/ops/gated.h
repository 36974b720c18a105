// The gate of a gated feed-forward layer: out = activation(gate) ⊙ up (Shazeer, arXiv 2002.05202).
#pragma once

#include "tensor/matrix.h"

namespace unchain::ops {

enum class Activation { silu, gelu_tanh };

// out[T, F] (f32 or bf16) from gate[T, F] and up[T, F], both f32. out may be one of them if f32.
void gated_forward(const Matrix& out, const Matrix& gate, const Matrix& up, Activation activation);

}  // namespace unchain::ops
