// Matrix products: the one place that includes oneDNN (2.6 and 3.x).
#pragma once

#include <string>

#include "tensor/matrix.h"

namespace unchain::ops {

enum class Transpose { no, yes };
enum class Store { overwrite, accumulate };

// c[M, N] = a[M, K] · b, or c += …; b is [K, N], or [N, K] with Transpose::yes. a and b of one type (f32, or bf16 with
// f32 accumulation); c f32 or bf16. Uses all threads of the pool, or the calling thread alone inside a parallel region.
// Prepared products are kept per thread and shape, so repeated shapes cost no set-up. Aliasing: c overlaps neither
// input. |error| ≤ K·eps_f32·Σ_k|a_k b_k| per entry, eps = 2⁻²⁴ (plus one rounding to bf16 where c is bf16). A machine
// without bf16 products gets them through f32 copies: correct, slow. Errors: shape if the sizes disagree; internal.
void gemm(const Matrix& c, const Matrix& a, const Matrix& b, Transpose transpose_b, Store store = Store::overwrite);

// Whether bf16 products run in hardware here.
bool has_fast_bf16();
// The instruction set that products run on, and the library's version, for reports: "avx512_core_bf16, oneDNN 2.6.3".
std::string gemm_backend();

}  // namespace unchain::ops
