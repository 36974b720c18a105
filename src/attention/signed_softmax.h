// The fused kernel of every attention whose maps are softmaxes: causal, on panels of rows, one product with the values.
//   out_t = Σ_j P_tj v_j,   P = A1 − λ_t A2,
//   A1_tj = e^{s1_tj}/(e^{x} + Σ e^{s1}),  A2_tj = e^{s2_tj}/Σ e^{s2},  s = cap(scale · q_t·k_j),  j visible to t.
// Which heads q1, k1, q2, k2, v an output uses is its layout's matter; without second maps P = A1. Formulas and their
// derivation: docs/math/softmax.md, diff_v1.md, diff_v2.md. Sources: arXiv 2410.05258 (difference of two maps).
#pragma once

#include <functional>

#include "attention/layout.h"
#include "attention/maps.h"
#include "tensor/matrix.h"
#include "tensor/tensor.h"

namespace unchain::attention {

// Heads in rows of numbers: head a of row t is the `width` numbers at data + a·head_stride + t·row_stride. Not owning.
struct HeadRows {
  void* data = nullptr;
  DType type = DType::f32;
  int64_t heads = 0;
  int64_t width = 0;
  int64_t head_stride = 0;
  int64_t row_stride = 0;

  // Rows in which the heads lie side by side: [rows, heads·width].
  static HeadRows side_by_side(const Matrix& m, int64_t heads) {
    return {m.data, m.type, heads, heads > 0 ? m.cols / heads : 0, heads > 0 ? m.cols / heads : 0, m.stride};
  }
  // rows[count, width] of one head, from row `first` on.
  Matrix rows(int64_t head, int64_t first, int64_t count) const;
};

// What is computed; see above.
struct SignedConfig {
  Layout layout;
  float scale = 1;     // of the scores, usually 1/√E
  int64_t window = 0;  // positions that a row sees, itself among them; 0: all
  float soft_cap = 0;  // scores ← cap·tanh(scores/cap); 0: none
};

// `sequences` texts of `rows` query rows each; row t of text b is row b·rows + t of q, lambda, starts and the output,
// and stands at position first_row + t, whose key and value are row b·key_rows + first_row + t of k and v.
struct SignedInputs {
  HeadRows q;     // [.., Q, E] f32, rotated, not scaled
  HeadRows k, v;  // [.., K, E], [.., V, W], both f32 or both bf16
  int64_t sequences = 1;
  int64_t rows = 0;  // T
  int64_t first_row = 0;
  int64_t key_rows = 0;             // ≥ first_row + rows
  const float* lambda = nullptr;    // [.., O]; nullptr without second maps
  const float* extra = nullptr;     // x of each output [O]: 0 for off_by_one, s for sink; nullptr: no such term
  const int32_t* starts = nullptr;  // [..] first position that a row may see; nullptr: 0. Never falls along a text.

  int64_t keys() const { return first_row + rows; }
};

// What backward needs of forward: logarithms of the normalisers of both maps, [2, sequences·rows, O].
struct SignedSaved {
  float* log_sums = nullptr;
};

// Memory of one call that the next one uses again; grows to O(threads · panel · keys), and a copy of keys and values.
struct SignedWorkspace {
  Buffer<float> scores, query_f32, output, inverse_sums;
  Buffer<bf16> weights, query_bf16;
  Buffer<float> heads_f32, d_heads;  // heads of keys and values, and their gradients, each by itself
  Buffer<bf16> heads_bf16;
  Buffer<float> d_maps, weights_f32, d_out_f32, d_extra;  // of backward
  Buffer<bf16> d_scores_bf16, d_out_bf16;
};

// Rows of a panel. Fewer make slower products, and keys are read more often; more compute a larger part of the map that
// no row sees.
inline constexpr int64_t kPanelRows = 128;

// out[.., O, W] (f32 or bf16). out aliases nothing. A row that sees no key gives 0. |error| ≤ c·(keys + E)·2⁻²⁴·max|v|
// in f32, c derived in tests/attention; bf16 adds the rounding of scaled q, k, v and the weights. Up to
// simd::kMaxVectors rows of f32 outputs (decoding) are computed in f32 products throughout. Errors: shape.
void signed_softmax_forward(const HeadRows& out, const SignedSaved& saved, const SignedInputs& in,
                            const SignedConfig& config, SignedWorkspace& workspace);

// Gradients, all f32, in the shapes of their inputs; overwritten, except d_extra[O], which is added to.
struct SignedGradients {
  HeadRows d_q, d_k, d_v;
  float* d_lambda = nullptr;  // nullptr without second maps
  float* d_extra = nullptr;   // nullptr: not wanted
};

// From d_out[.., O, W] f32 and what forward saved. The same bits for any number of threads: the gradients of heads that
// outputs share are added up by one thread. bf16 inputs: dO, the maps and their gradients are rounded to bf16 for the
// products. Work a head: N²/2·(6E + 2W) multiply-adds with two maps. Errors: shape; unsupported (soft cap).
void signed_softmax_backward(const SignedGradients& gradients, const HeadRows& d_out, const SignedSaved& saved,
                             const SignedInputs& in, const SignedConfig& config, SignedWorkspace& workspace);

// The maps of all outputs for rows first … first + panel.rows − 1 (counted from 0) of one text, normalised, into
// panel.positive and panel.noise (where it is not nullptr); entries that a row may not see are 0.
void signed_softmax_maps(const MapPanel& panel, int64_t first, const SignedInputs& in, const SignedConfig& config,
                         SignedWorkspace& workspace);

// Rows first … of out = (positive − lambda · noise) · v, from the maps of a panel, whatever an editor made of them; the
// panel's positive map is overwritten with the difference.
void signed_softmax_apply(const HeadRows& out, const MapPanel& panel, int64_t first, const SignedInputs& in,
                          const SignedConfig& config, SignedWorkspace& workspace);

}  // namespace unchain::attention
