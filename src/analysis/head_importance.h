// How much each head matters to the loss, in two ways: the slope at a gate on its output, and the change when the head
// is gone; and how evenly that is spread over heads. docs/analyses/head-importance.md.
// Source: Michel, Levy, Neubig, "Are Sixteen Heads Really Better than One?", NeurIPS 2019, arXiv 1905.10650.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/trainable.h"
#include "model/transformer.h"

namespace unchain::analysis {

// Texts of at least two tokens; each token but the first is predicted, and the loss of a window is their mean NLL.
using Windows = std::span<const std::vector<int32_t>>;

struct HeadEffects {
  std::vector<std::vector<std::vector<double>>> values;  // [L][O][windows], nats a token

  // Mean over windows, head by head of layer after layer.
  std::vector<double> means() const;
};

// |∂loss/∂gate_h| at gate 1, gate_h a factor of head h's output as it enters W_O, of each window. One forward and
// backward pass a window, which adds to the gradients of the model's parameters. Errors: usage (no window, one of fewer
// than two tokens, ids outside the vocabulary); unsupported (a model in bf16); numeric.
HeadEffects gate_importance(model::Trainable& model, Windows windows);

// The loss with the output of head h set to 0 minus the loss with all heads, of each window: above 0 where the head is
// of use. One forward pass a head and window. Exactly 0 for a head that W_O does not read. Errors: as above, without
// `unsupported`.
HeadEffects ablation(const std::shared_ptr<const model::Transformer>& model, Windows windows);

// The Gini coefficient Σ_i Σ_j |x_i − x_j| / (2 n Σ x): 0 for equal values, 1 − 1/n where one has all; absent for no
// values or only zeros. Error: usage if a value is negative or not finite.
std::optional<double> gini(std::span<const double> values);

}  // namespace unchain::analysis
