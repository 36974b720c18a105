// Negative log-likelihood of the next tokens, without ever holding all logits.
#pragma once

#include <cstdint>
#include <span>

#include "ops/linear.h"
#include "tensor/tensor.h"

namespace unchain::ops {

// x ← cap·tanh(x/cap), the soft cap of some models' logits and scores; cap 0 leaves x as it is.
void soft_cap(float* x, float cap, int64_t n);

// Workspace that one call leaves to the next.
struct CrossEntropyWorkspace {
  Buffer<float> block;  // [T, columns of a vocabulary block]
};

// nll[t] (nats) = logsumexp of the logits of row t − the logit of targets[t]; logits = hidden[T, D] Wᵀ + bias,
// soft-capped. A target of −1 leaves nll[t] = 0. The vocabulary is taken in blocks of a few thousand pieces with a
// running maximum and sum, so that the weights are read once and memory is T·block numbers. hidden.type as
// activation_type() says. Errors: shape; usage if a target lies outside the vocabulary; numeric if a row has no finite
// result, with the row.
void cross_entropy_forward(std::span<double> nll, CrossEntropyWorkspace& workspace, const Matrix& hidden,
                           const Linear& head, std::span<const int32_t> targets, float cap);

}  // namespace unchain::ops
