// The vector kernels of noise that is a state (attention/state_noise.h): within a chunk of tokens, r normalised running
// means add up to one small map. w_m(i, j) is the weight that mean m gives token j at token i of the chunk:
//   w_m(i, i) = take_im,   w_m(i, j) = keep_im · w_m(i − 1, j);   c_m(i) = Π_{l ≤ i} keep_lm, what is left of the past.
#pragma once

#include <cstddef>

namespace unchain::simd {

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

// map[n, kChunk] = Σ_m alpha_im w_m(i, j), 0 for j > i;  past[n, rank] = alpha_im c_m(i);
// last[rank, kChunk] = w_m(n − 1, j);  left[rank] = c_m(n − 1).
void state_chunk(float* map, float* past, float* last, float* left, const ChunkGates& gates, size_t n);

// The chunk's part of backward. With G = −d_out of the output that λ·noise was taken from: d_map[n, kChunk] = G vᵀ,
// past_dot[n, rank] = G_i · u_m before the chunk, next_dot[n, rank] = v_j · R_m after it, lambda[i·lambda_stride].
//   dot[n, rank] = G_i · u_im = Σ_j w_m(i, j) d_map_ij + c_m(i)·past_dot_im
//   reach[n, rank] = Σ_i w_m(i, j) λ_i alpha_im d_map_ij + w_m(n − 1, j)·next_dot_jm
void state_chunk_backward(float* dot, float* reach, const float* d_map, const float* past_dot, const float* next_dot,
                          const float* lambda, size_t lambda_stride, const ChunkGates& gates, size_t n);

}  // namespace unchain::simd
