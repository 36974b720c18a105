// The attention of one layer, with its taps: what a model calls.
#pragma once

#include "attention/maps.h"
#include "attention/signed_softmax.h"
#include "attention/state_noise.h"

namespace unchain::attention {

// What taps need to know about the layer besides the numbers.
struct TapContext {
  const Taps* taps = nullptr;  // nullptr or empty: the fast path
  int layer = 0;
  const float* value_norm = nullptr;  // [O, value_norm_stride], see MapPanel
  int64_t value_norm_stride = 0;
  Matrix positive = {},
         noise = {};  // where A1 V and −λ A2 V go beside their sum, [T, O·W] f32; without data: not wanted
  bool active() const;
};

// Noise that is a state (state_noise.h), beside or in place of a second softmax map.
struct StateCall {
  StateNoise noise;         // alpha of the rows of this call, gates of these or of more
  float* states = nullptr;  // [O, R, W]: u of the position in front of the first row, and of the last on return
  int64_t gates_first = 0;  // position of the gates' first row: 0 with taps, whose maps take those of all tokens
};

// Memory of one call that the next one uses again; with taps it grows to O(O · panel · keys), for editors of whole maps
// to O(O · rows · keys).
struct AttentionWorkspace {
  SignedWorkspace kernel;
  StateWorkspace state;
  Buffer<float> positive, noise, lambda, part_lambda, d_map, thrown_away;
};

// out[T, O·W] (f32 or bf16; f32 with a state) of one text: signed_softmax_forward(), whose shapes, accuracy and errors
// hold, then state_noise_forward(). With taps, panel by panel, editors change the maps, then observers look; outputs
// are shown by show_outputs(). Errors: also whatever a tap throws.
void attention_forward(const Matrix& out, const SignedInputs& in, const SignedConfig& config,
                       AttentionWorkspace& workspace, const TapContext& tap = {}, const StateCall* state = nullptr);

// Shows the residual stream x[T, D], rows one right behind the other from position first_row on, to the observers, with
// what attention writes to it (nullptr: not known).
void show_residual(const Matrix& x, const float* positive, const float* noise, int64_t first_row,
                   const TapContext& tap);

// Hands outputs out[T, O·W], of rows from position first_row on, to the taps as f32, takes back what editors made of
// them, and tells that the layer has ended. Without an active tap nothing happens.
void show_outputs(const Matrix& out, int64_t outputs, int64_t first_row, const TapContext& tap);

// Hands the maps of one text, formed again, and ∂loss/∂P = dO vᵀ to an observer, panel by panel, from the gradient
// d_out[T, O·W] of attention_forward()'s output. All f32; error of a gradient: W·2⁻²⁴·Σ|dO v| at most. Errors: shape
// (sizes that do not fit; more than one text); whatever the observer throws. Source: docs/math/diff_v1.md.
void show_gradients(GradientObserver& observer, const Matrix& d_out, int layer, const SignedInputs& in,
                    const SignedConfig& config, AttentionWorkspace& workspace, const StateCall* state = nullptr);

}  // namespace unchain::attention
