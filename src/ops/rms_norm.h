// RMSNorm: out_t = x_t / √(mean(x_t²) + eps) ⊙ weight. Source: Zhang and Sennrich, arXiv 1910.07467.
// This is the op to look at before adding one: docs/add-an-op.md walks through its five pieces.
#pragma once

#include "tensor/matrix.h"
#include "tensor/tensor.h"

namespace unchain::ops {

// What backward needs of forward: inverse_rms[T] = 1/√(mean(x_t²) + eps), or nullptr if there will be no backward.
struct RmsNormSaved {
  float* inverse_rms = nullptr;
};

// out[T, D] (f32 or bf16) from x[T, D] f32 and weight[D] (nullptr: ones). out may be x. Returns the first row whose
// mean square is not finite, or −1: the caller knows the layer and says where. Relative error per entry ≤ (D/16 +
// 8)·2⁻²⁴ (the sum of squares runs in at least 16 lanes on AVX-512, 4 on the least machine), plus rounding to bf16.
int64_t rms_norm_forward(const Matrix& out, const RmsNormSaved& saved, const Matrix& x, const float* weight, float eps);

// Workspace that one call leaves to the next.
struct RmsNormWorkspace {
  Buffer<float> partial;  // [chunks of rows, D]
};

// With r = inverse_rms, g = d_out ⊙ weight:  d_x += r·(g − x·r²·mean(g ⊙ x)),  d_weight += Σ_t d_out_t ⊙ x_t·r_t.
// d_x[T, D], d_weight[D] (nullptr: not wanted), d_out[T, D], x[T, D] all f32; d_x aliases nothing. Heads are rows: pass
// [T·H, E] for a norm of each head. The rows are added up in chunks that depend on T alone: the same bits for any
// number of threads. Errors: shape.
void rms_norm_backward(const Matrix& d_x, float* d_weight, RmsNormWorkspace& workspace, const Matrix& d_out,
                       const RmsNormSaved& saved, const Matrix& x, const float* weight);

}  // namespace unchain::ops
