// The vector kernels of training: rows of backward passes and the optimizer. As kernels.h: any length, no alignment
// needed, no allocation, the best instruction set of the machine.
#pragma once

#include <cstddef>

#include "tensor/dtype.h"

namespace unchain::simd {

// One row of RMSNorm's backward, with r = inverse_rms and g = d_out ⊙ weight (weight nullptr: g = d_out):
//   d_x += r·(g − x·r²·mean(g ⊙ x)),  d_weight += d_out ⊙ x·r (d_weight nullptr: not wanted).
void rms_norm_backward_row(float* d_x, float* d_weight, const float* d_out, const float* x, const float* weight,
                           float inverse_rms, size_t n);

// One row of softmax's backward: out_i = map_i·(gradient_i − inner), where inner = Σ map ⊙ gradient. out may be map.
void softmax_backward_row(float* out, const float* map, const float* gradient, float inner, size_t n);
void softmax_backward_row(bf16* out, const float* map, const float* gradient, float inner, size_t n);

// Gradients of out = act(gate)·up: d_gate = d_out·up·act'(gate), d_up = d_out·act(gate), act silu or gelu (kernels.h).
// Each f32 output may be one of the inputs. |error| ≤ 1.5e-6·|d_out·up|·(1 + |gate|) for d_gate beyond that of rounding
// gelu's argument; 1.5e-5 in place of 1.5e-6 before the rounding to bf16. A NaN of gate reaches both.
void silu_backward(float* d_gate, float* d_up, const float* d_out, const float* gate, const float* up, size_t n);
void silu_backward(bf16* d_gate, bf16* d_up, const float* d_out, const float* gate, const float* up, size_t n);
void gelu_tanh_backward(float* d_gate, float* d_up, const float* d_out, const float* gate, const float* up, size_t n);
void gelu_tanh_backward(bf16* d_gate, bf16* d_up, const float* d_out, const float* gate, const float* up, size_t n);

// The constants of one step of AdamW (ops/adamw.h says what they are made of).
struct AdamWStep {
  float gradient_scale;          // g = gradient_scale·gradient
  float beta1, one_minus_beta1;  // m ← β₁ m + (1 − β₁) g
  float beta2, one_minus_beta2;  // v ← β₂ v + (1 − β₂) g²
  float rate;                    // value ← keep·value − rate·m/(√v·root_scale + eps)
  float root_scale, eps, keep;
};
// One step for n numbers; narrow (nullptr: not wanted) gets the new values rounded to bf16.
void adamw(float* value, float* m, float* v, bf16* narrow, const float* gradient, const AdamWStep& step, size_t n);

// Σ x_i² in double.
double sum_squares_f64(const float* x, size_t n);

}  // namespace unchain::simd
