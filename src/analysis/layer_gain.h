// What the difference of two maps is worth in each layer: the loss with λ = 0 there, less the loss as it is; beside it
// a random change of equal size, and how much the task needs that layer's attention at all.
// docs/analyses/layer-gain.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/summary.h"
#include "analysis/window_loss.h"

namespace unchain::analysis {

// Nats a token, each window's mean; summarised over windows. Positive: the loss rises.
struct LayerGain {
  int layer = 0;
  Summary gain;    // loss with λ = 0 in this layer (head norm kept) − loss
  Summary random;  // loss with a random change of the heads' outputs, as large in every row as λ = 0 made it, − loss
  Summary excess;  // gain − random, window by window
  Summary change;  // ‖O(λ = 0) − O‖/‖O‖, O the outputs of all heads of a row before W_O: mean over rows
  std::vector<double> gain_by_window;
};

// The layers with a noise term, ascending. Three passes a layer and window, one more a window; holds the outputs of all
// layers of one window: L·T·O·W numbers. `seed`: of the random changes and of the bootstrap. Errors: usage (no layer
// has a noise term); as WindowLoss.
std::vector<LayerGain> layer_gains(WindowLoss& loss, uint64_t seed);

// For each layer: the rise in loss on tokens with an induction target (nats a token) when its attention is knocked out.
// To be asked of the softmax twin. Errors: as WindowLoss.
struct LayerSensitivity {
  std::optional<Summary> rise;                        // absent where no window has a target
  std::vector<std::optional<double>> rise_by_window;  // absent in one without a target
};
std::vector<LayerSensitivity> layer_sensitivity(WindowLoss& loss, uint64_t seed);

}  // namespace unchain::analysis
