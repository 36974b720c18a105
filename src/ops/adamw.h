// AdamW: Adam with decoupled weight decay. Source: Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, with the rate
// η multiplying the decay as well, as training programs commonly do.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace unchain::ops {

struct AdamW {
  double learning_rate = 1e-3;  // η of this step
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;  // λ
};

// A parameter with what the optimizer keeps of it, all of one length.
struct AdamWParameter {
  std::span<float> value;
  std::span<float> m, v;   // zeros before the first step
  std::span<bf16> narrow;  // the rounded copy that bf16 products read; empty: not wanted
};

// One step in one pass, g = gradient_scale·gradient and t = step, counted from 1:
//   m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²,
//   value ← value − η·(m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + eps) + λ·value).
// gradient_scale clips (limit/norm) or averages. The same bits for any number of threads. Errors: shape if the lengths
// differ; usage if step < 1.
void adamw_step(const AdamWParameter& parameter, std::span<const float> gradient, int64_t step, double gradient_scale,
                const AdamW& options);

// Σ x_i² in double, in chunks that depend on the length alone: the same bits for any number of threads. Relative error
// below n·2⁻⁵³.
double sum_squares(std::span<const float> x);

}  // namespace unchain::ops
