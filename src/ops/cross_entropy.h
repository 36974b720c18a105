// Negative log-likelihood of the next tokens, and the gradients of its weighted sum, without ever holding all logits.
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
  Buffer<float> block;  // logits [rows of a block, columns of a vocabulary block]
  Buffer<float> slope;  // derivatives of the soft cap, of the same shape
  Buffer<bf16> narrow;  // gradients of the logits, rounded for bf16 products
};

// nll[t] (nats) = logsumexp of the logits of row t − the logit of targets[t]; logits = hidden[T, D] Wᵀ + bias,
// soft-capped. A target of −1 leaves nll[t] = 0. The vocabulary is taken in blocks of a few thousand pieces with a
// running maximum and sum, so that the weights are read once and memory is T·block numbers. hidden.type as
// activation_type() says. Errors: shape; usage if a target lies outside the vocabulary; numeric if a row has no finite
// result, with the row.
void cross_entropy_forward(std::span<double> nll, CrossEntropyWorkspace& workspace, const Matrix& hidden,
                           const Linear& head, std::span<const int32_t> targets, float cap);

// The loss Σ_t weights_t·nll_t (nats) over rows with a target, and its gradients by hidden and head. With p = softmax
// of the logits z, and c' the soft cap's derivative, d_z_tv = weights_t·(p_tv − [v = targets_t])·c'(z_tv):
//   d_hidden[T, D] = d_z W,  d_weight[V, D] += d_zᵀ hidden,  d_bias[V] += Σ_t d_z_t,  all f32, those without data left
//   out.
// nll as above. Rows go in blocks: where a block has room for the whole vocabulary (V ≤ 16384) in one pass, 6TVD
// operations; otherwise a first pass finds each row's maximum and sum, and a second computes the logits of each
// vocabulary block again, 8TVD. Memory: about 2M logits. hidden and head are of one type; under bf16 d_z is rounded to
// it for the products. head row by row, not packed. The same bits for the same number of threads. Errors: as forward.
double cross_entropy_forward_backward(std::span<double> nll, const Matrix& d_hidden, const LinearGradients& d_head,
                                      CrossEntropyWorkspace& workspace, const Matrix& hidden, const Linear& head,
                                      std::span<const int32_t> targets, std::span<const float> weights, float cap);

}  // namespace unchain::ops
