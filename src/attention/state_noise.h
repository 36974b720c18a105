// Noise maps that are states: A2 of lowrank_diff and fixed_diff, as r normalised running means of the values.
//   out_t −= λ_t Σ_m α_tm u_tm,   u_tm = keep_tm u_{t−1,m} + take_tm v_t,   keep + take = 1 (or sums: keep = 1)
// A prototype's softmax over the tokens so far is such a mean with take = e^{s_t − L_t}, L_t = logaddexp(L_{t−1}, s_t);
// the first token, the uniform row and decays are, with gates that depend on the position alone. Tokens are taken in
// chunks: within one, the means add up to one map of kChunk² entries, so that one product with the values serves all of
// them; between chunks the states carry. docs/math/lowrank_diff.md, docs/math/fixed_diff.md.
#pragma once

#include <span>

#include "attention/signed_softmax.h"

namespace unchain::attention {

// A number for each row, output head and mean: [.., O, R] at row·row_stride + head·head_stride + m. Stride 0: the same
// for all rows or heads.
struct NoiseRows {
  float* data = nullptr;
  int64_t row_stride = 0;
  int64_t head_stride = 0;

  float* at(int64_t row, int64_t head) const { return data + row * row_stride + head * head_stride; }
};

struct StateNoise {
  int64_t rank = 0;  // R
  NoiseRows take, keep, alpha;

  // The same with gates from this row on.
  StateNoise gates_from(int64_t row) const {
    StateNoise rest = *this;
    for (NoiseRows* gates : {&rest.take, &rest.keep}) gates->data += row * gates->row_stride;
    return rest;
  }
};

// Gates of prototypes from their scores s = scale · p_m·k̃_j, [.., O, R] (take may be where the scores are). log_sums
// [sequences, O, R] (nullptr: from nothing, thrown away) is L of the row in front of the first, and of the last on
// return. A row whose start is its own position begins anew, whatever came before.
void prototype_gates(const NoiseRows& take, const NoiseRows& keep, const NoiseRows& scores, double* log_sums,
                     const SignedInputs& in, int64_t outputs, int64_t rank);

// Gates of fixed rows, the same for all heads: the first token, the uniform row, then each decay γ with weights
// ∝ γ^{i−j}; positions count from the document's start. take, keep [.., 2 + decays].
void fixed_gates(const NoiseRows& take, const NoiseRows& keep, std::span<const float> decays, const SignedInputs& in);

// A frozen causal map of rank R a head, B_ij = U_i · V_j, each row divided by its sum, which counts as 0.1 where it is
// less; i and j count from the document's start. u, v [O, length, R].
struct CalibratedMap {
  const float *u = nullptr, *v = nullptr;
  int64_t length = 0, rank = 0;
};
// Its gates, take = V_i and keep = 1, and shares, alpha = U_i / max(U_i · Σ V, 0.1): sums in place of means. Error:
// shape if a document is longer than the map.
void calibrated_gates(const NoiseRows& take, const NoiseRows& keep, const NoiseRows& alpha, const CalibratedMap& map,
                      const SignedInputs& in, int64_t outputs);

struct StateWorkspace {
  Buffer<float> lanes;
};

// Takes λ·noise off out[.., O, W] f32. in.v, in.lambda, in.sequences, in.rows and in.starts count; the gates say where
// a document begins (keep = 0). states[sequences][O, R, W] (nullptr: from nothing, thrown away) hold u before the rows,
// and after them on return. saved (nullptr: no backward): u before each chunk, [sequences, ⌈rows/kChunk⌉, O, R, W].
void state_noise_forward(const HeadRows& out, float* states, float* saved, const StateNoise& noise,
                         const SignedInputs& in, const Layout& layout, StateWorkspace& workspace);

struct StateGradients {
  HeadRows d_v;               // f32, added to
  float* d_lambda = nullptr;  // [.., O], written
  NoiseRows d_alpha;          // [.., O, R], written
  NoiseRows d_scores;         // [.., O, R], written: by the scores that made `take`; for fixed gates without meaning
};

// From d_out[.., O, W] f32. The same bits for any number of threads.
void state_noise_backward(const StateGradients& gradients, const HeadRows& d_out, const float* saved,
                          const StateNoise& noise, const SignedInputs& in, const Layout& layout,
                          StateWorkspace& workspace);

// The noise map of a panel's rows, [O, rows, keys] in panel.noise, for taps. Gates are those of positions 0, 1, 2 …:
// unlike the means, a row of the map needs those of all tokens before it. alpha's row 0 is that of position
// alpha_first.
void state_noise_maps(const MapPanel& panel, const StateNoise& noise, int64_t alpha_first);

}  // namespace unchain::attention
