// Which keys an answer is owed to: attribution P_ij · ∂loss/∂P_ij of the row that predicts it, the loss being the
// answer's NLL, for every layer and head; and the share of it that reaches a span of keys.
// docs/analyses/attribution.md. Source: Hao et al., "Self-Attention Attribution", AAAI 2021, arXiv 2004.11207, with one
// step in place of the integral.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/token_span.h"
#include "model/trainable.h"

namespace unchain::analysis {

struct LayerAttribution {
  int layer = 0;
  int64_t first_key = 0;                   // that the row sees, above 0 in a layer with a window
  std::vector<std::vector<double>> heads;  // [O][row + 1], nats: what scaling P_ij by 1 + ε adds to the loss, by ε
};

// Of the last row of `prompt`, which predicts `answer`, in order of layers. One forward and backward pass, which adds
// to the gradients of the model's parameters. Errors: usage (an empty prompt, ids outside the vocabulary); unsupported
// (a model in bf16); numeric.
std::vector<LayerAttribution> attribute(model::Trainable& model, std::span<const int32_t> prompt, int32_t answer);

struct DirectedShare {
  double share = 0;     // Σ_{key} |attribution| / Σ |attribution|
  double expected = 0;  // keys of the span that the row sees / all that it sees
};

// The share that reaches the keys of a span, of one head or of all heads of a layer together; absent where nothing is
// attributed. Error: usage if the span is empty or not within the row's keys, or the head is not there.
std::optional<DirectedShare> directed_share(const LayerAttribution& layer, TokenSpan keys);
std::optional<DirectedShare> directed_share(const LayerAttribution& layer, int head, TokenSpan keys);

}  // namespace unchain::analysis
