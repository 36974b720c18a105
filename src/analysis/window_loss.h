// The loss of a model over windows of a text while editors act on it: what edits are judged by.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attention/maps.h"
#include "model/context.h"

namespace unchain::analysis {

// The tokens of each window; all but the first of a window are predicted.
using TokenWindows = std::vector<std::vector<int32_t>>;

// Which predictions count: all, or those of rows with an induction target (row_measures.h).
enum class Scored { all, induction };

// Not thread-safe; uses all threads itself. Holds one context, of the longest window.
class WindowLoss {
 public:
  // Errors: usage (no window, a window of fewer than two tokens).
  WindowLoss(std::shared_ptr<const model::Transformer> model, TokenWindows windows);

  size_t windows() const { return windows_.size(); }
  const model::Transformer& model() const { return context_.model(); }

  // Mean NLL in nats of a window's scored tokens, with these taps; absent where none is scored. Errors: as
  // model::Context::extend().
  std::optional<double> of_window(size_t window, const attention::Taps& taps, Scored scored = Scored::all);
  // Mean NLL in nats over the tokens of all windows.
  double mean(const attention::Taps& taps);

 private:
  TokenWindows windows_;
  model::Context context_;
};

}  // namespace unchain::analysis
