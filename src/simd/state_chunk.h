// The vector kernels of noise that is a state (attention/state_noise.h): scores and gates of its means, and chunks.
// Within a chunk of tokens, r normalised running means add up to one small map. w_m(i, j) is the weight that mean m
// gives token j at token i of the chunk:
//   w_m(i, i) = take_im,   w_m(i, j) = keep_im · w_m(i − 1, j);   c_m(i) = Π_{l ≤ i} keep_lm, what is left of the past.
#pragma once

#include <cstddef>

namespace unchain::simd {

// Prototypes in one vector of prototype_scores().
inline constexpr size_t kPrototypes = 4;

// scores[i·score_stride + m] = scale · Σ_e x[i·x_stride + e]·p[e·padded + m] for i < n, m < rank: p [width, padded]
// holds the prototypes as columns, `padded` is rank rounded up to a multiple of kPrototypes. Each sum is taken in the
// order of e, by fused multiply-adds where there are any, so that a token's scores do not depend on those beside it.
void prototype_scores(float* scores, size_t score_stride, const float* x, size_t x_stride, const float* p,
                      size_t padded, size_t width, float scale, size_t n, size_t rank);

// The next score of each of n running sums of exponentials, L = log Σ e^score = largest + log(total), in double:
//   L_i ← logaddexp(L_i, s_i),   take_i = e^(s_i − L_i),   keep_i = e^(L_i before − L_i)
// take may be score. The exponentials have a relative error below 2⁻⁵², and are 0 below e^−708; a NaN stays one.
void running_softmax(float* take, float* keep, double* largest, double* total, const float* score, size_t n);

// Tokens of a chunk. 32 keep a row of the map in two to eight registers; the map's work grows with it, the number of
// small products falls.
inline constexpr size_t kChunk = 32;

// Of n ≤ kChunk tokens and `rank` means: take, keep and alpha of token i begin at i·stride numbers from their starts
// (one stride each).
struct ChunkGates {
  const float* take = nullptr;
  const float* keep = nullptr;
  const float* alpha = nullptr;
  size_t gate_stride = 0;
  size_t alpha_stride = 0;
  size_t rank = 0;
};

// The whole chunk as one matrix T[kChunk + rank, kChunk + rank], rows `stride` numbers apart, that takes the tokens'
// values and the means before the chunk, below each other, to the noise of every token and the means after it:
//   T = | Σ_m alpha_im w_m(i, j)   alpha_im c_m(i) |      w_m(i, j) = 0 for j > i; tokens from n on: 0
//       |     w_m(n − 1, j)         c_m(n − 1) δ   |
void state_chunk(float* t, size_t stride, const ChunkGates& gates, size_t n);

// The chunk's part of backward, from d_t = [G; R] · [v; u]ᵀ of the same shape: G = −d_out of the output that λ·noise
// was taken from, R the gradient of the means after the chunk, u the means before it; lambda[i·lambda_stride].
//   dot[n, rank] = G_i · u_im = Σ_j w_m(i, j) d_t_ij + c_m(i)·d_t_im
//   reach[n, rank] = Σ_i w_m(i, j) λ_i alpha_im d_t_ij + w_m(n − 1, j)·d_t_mj
void state_chunk_backward(float* dot, float* reach, const float* d_t, size_t stride, const float* lambda,
                          size_t lambda_stride, const ChunkGates& gates, size_t n);

}  // namespace unchain::simd
