// The gate of a gated feed-forward layer: out = activation(gate) ⊙ up (Shazeer, arXiv 2002.05202).
#pragma once

#include "tensor/matrix.h"

namespace unchain::ops {

enum class Activation { silu, gelu_tanh };

// out[T, F] (f32 or bf16) from gate[T, F] and up[T, F], both f32. out may be one of them if f32.
void gated_forward(const Matrix& out, const Matrix& gate, const Matrix& up, Activation activation);

// d_gate[T, F] = d_out ⊙ up ⊙ activation'(gate), d_up[T, F] = d_out ⊙ activation(gate): both f32, or both bf16 for the
// products that come next. d_out[T, F], gate[T, F] and up[T, F] f32, as the forward pass had them. f32 outputs may be
// inputs. Accuracy: simd/gradients.h. Errors: shape.
void gated_backward(const Matrix& d_gate, const Matrix& d_up, const Matrix& d_out, const Matrix& gate, const Matrix& up,
                    Activation activation);

}  // namespace unchain::ops
