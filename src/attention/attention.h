// The attention of one layer, with its taps: what a model calls.
#pragma once

#include "attention/maps.h"
#include "attention/signed_softmax.h"

namespace unchain::attention {

// What taps need to know about the layer besides the numbers.
struct TapContext {
  const Taps* taps = nullptr;  // nullptr or empty: the fast path
  int layer = 0;
  const float* value_norm = nullptr;  // [O, value_norm_stride], see MapPanel
  int64_t value_norm_stride = 0;
  bool active() const;
};

// Memory of one call that the next one uses again; with taps it grows to O(O · panel · keys).
struct AttentionWorkspace {
  SignedWorkspace kernel;
  Buffer<float> positive, noise, lambda;
};

// out[T, O·W] (f32 or bf16) of one text: signed_softmax_forward(), whose shapes, accuracy and errors hold; with taps,
// panel by panel, editors change the maps and outputs, then observers look. Errors: also whatever a tap throws.
void attention_forward(const Matrix& out, const SignedInputs& in, const SignedConfig& config,
                       AttentionWorkspace& workspace, const TapContext& tap = {});

}  // namespace unchain::attention
