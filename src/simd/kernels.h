// The vector kernels: each picks, once per process, the best instruction set of the machine (Highway's dynamic
// dispatch). All work on contiguous arrays, need no alignment, accept any length including 0, and never allocate or
// throw. Sums are accumulated in f32 in several lanes, so their rounding error grows with n/16 rather than n. This
// folder alone includes Highway. Every kernel is checked, on every instruction set of the machine, against plain
// double-precision loops in tests/simd.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace unchain::simd {

// The instruction set that the kernels run on, for example "AVX3_DL".
const char* target_name();

// --- reductions ------------------------------------------------------------------------------------------------------
// Largest of n numbers; −infinity for n = 0. NaNs may be ignored.
float max(const float* x, size_t n);
// Σ x_i.
float sum(const float* x, size_t n);
// Σ x_i·y_i.
float dot(const float* x, const float* y, size_t n);
float dot(const bf16* x, const float* y, size_t n);
// Σ x_i².
float sum_squares(const float* x, size_t n);

// --- softmax rows ----------------------------------------------------------------------------------------------------
// out_i = e^(x_i − offset), returns Σ out_i. out may be x. Relative error of an entry below 4e-7 for arguments in
// [−87, 0]; below −87.4 the entry is 0. A NaN stays one, and makes one of the sum.
float exp_sum(const float* x, float offset, float* out, size_t n);
// The same with each entry rounded to bf16, whose rounding hides an exponential of relative error 1e-5. The sum is that
// of the rounded entries, so that they sum to 1 after division.
float exp_sum(const float* x, float offset, bf16* out, size_t n);
// The exponentials of the bf16 form, not rounded, for entries that are combined before they are: half the time.
float exp_sum_quick(const float* x, float offset, float* out, size_t n);

// --- element by element ----------------------------------------------------------------------------------------------
// x_i ← x_i·factor.
void scale(float* x, float factor, size_t n);
// out_i = x_i·factor, rounded to the type of out.
void scaled(const float* x, float factor, float* out, size_t n);
void scaled(const float* x, float factor, bf16* out, size_t n);
// out_i ← out_i + x_i.
void add(float* out, const float* x, size_t n);
// out_i ← out_i + factor·x_i.
void axpy(float* out, float factor, const float* x, size_t n);
void axpy(float* out, float factor, const bf16* x, size_t n);
// out_i = a·x_i + b·y_i; out may be x or y.
void combination(float a, const float* x, float b, const float* y, float* out, size_t n);
void combination(float a, const float* x, float b, const float* y, bf16* out, size_t n);
// out_i = x_i·factor·weight_i: the second pass of RMSNorm.
void scaled_by(const float* x, float factor, const float* weight, float* out, size_t n);
void scaled_by(const float* x, float factor, const float* weight, bf16* out, size_t n);
// Conversions; to bf16 rounds to nearest, ties to even; a NaN stays a NaN.
void convert(const float* x, bf16* out, size_t n);
void convert(const bf16* x, float* out, size_t n);

// --- gated feed-forward ----------------------------------------------------------------------------------------------
// Relative error 7e-7 of silu and gelu (beyond that of rounding gelu's argument); 1.1e-5 before the rounding to bf16.
// out_i = silu(gate_i)·up_i, silu(x) = x/(1 + e^−x).
void silu_mul(const float* gate, const float* up, float* out, size_t n);
void silu_mul(const float* gate, const float* up, bf16* out, size_t n);
// out_i = gelu(gate_i)·up_i, gelu(x) = x/2·(1 + tanh(√(2/π)(x + 0.044715x³))) = x·σ(2√(2/π)(x + 0.044715x³)).
void gelu_tanh_mul(const float* gate, const float* up, float* out, size_t n);
void gelu_tanh_mul(const float* gate, const float* up, bf16* out, size_t n);

// --- rotary position -------------------------------------------------------------------------------------------------
// Rotates the n/2 pairs (x_i, x_{i+n/2}) by the angles whose cosines and sines are given [n/2]. out may be x.
void rotate_halves(const float* x, const float* cosine, const float* sine, float* out, size_t n);
// Rotates the n/2 pairs (x_2i, x_2i+1).
void rotate_neighbours(const float* x, const float* cosine, const float* sine, float* out, size_t n);
// The same by the negative angles: back, which is also the gradient.
void unrotate_halves(const float* x, const float* cosine, const float* sine, float* out, size_t n);
void unrotate_neighbours(const float* x, const float* cosine, const float* sine, float* out, size_t n);

// --- matrix times few vectors ----------------------------------------------------------------------------------------
// out[m][r] = Σ_k w[r][k]·x[m][k] for r < rows, m < count ≤ kMaxVectors: a block of rows of y = x Wᵀ, bound by reading
// w. w rows are `stride` elements apart, x rows k, out rows out_stride. bf16 weights keep x in f32.
inline constexpr size_t kMaxVectors = 4;
void matrix_vectors(const float* w, size_t stride, const float* x, size_t count, float* out, size_t out_stride,
                    size_t rows, size_t k);
void matrix_vectors(const bf16* w, size_t stride, const float* x, size_t count, float* out, size_t out_stride,
                    size_t rows, size_t k);

// The same for packed weights (ops/gemm.h): panels of 64 outputs, w[k][64] in f32, w[k/2][64][2] in bf16, where k is
// padded to an even number with zeros. out[m][i] for the `width` outputs (32 or 64) of the panel from `first` (0 or 32)
// on.
void panel_vectors(const float* w, const float* x, size_t count, float* out, size_t out_stride, size_t first,
                   size_t width, size_t k);
void panel_vectors(const bf16* w, const float* x, size_t count, float* out, size_t out_stride, size_t first,
                   size_t width, size_t k);
// out[i] = Σ_j p[j]·v[j][i] for i < width: a weighted sum of `rows` rows, `stride` elements apart.
void weighted_rows(const float* p, const float* v, size_t stride, float* out, size_t rows, size_t width);
void weighted_rows(const float* p, const bf16* v, size_t stride, float* out, size_t rows, size_t width);

}  // namespace unchain::simd
