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

// c[M, N] = aᵀ · b, or c += …, from a[K, M] and b[K, N]: the gradient of a weight, a sum over rows. Otherwise as
// gemm().
void gemm_transposed(const Matrix& c, const Matrix& a, const Matrix& b, Store store = Store::overwrite);

// Weights [N, K] in the order in which products on this machine read them fastest: panels of 64 outputs, one after the
// other; in a panel, for each input (bf16: for each pair of inputs) the 64 outputs' weights. N is padded to 64, K to 16
// (bf16: 32), with zeros. Not owning. Saves the copy that every product makes of weights that lie row by row (4 to 5
// %).
struct PackedMatrix {
  const void* data = nullptr;
  DType type = DType::f32;
  int64_t outputs = 0;  // N
  int64_t inputs = 0;   // K

  int64_t padded_inputs() const { return type == DType::bf16 ? (inputs + 31) / 32 * 32 : (inputs + 15) / 16 * 16; }
  int64_t panels() const { return (outputs + kPanelOutputs - 1) / kPanelOutputs; }
  int64_t panel_elements() const { return padded_inputs() * kPanelOutputs; }
  static constexpr int64_t kPanelOutputs = 64;
};

// Whether products with weights of this type and size are fastest on this machine in that order.
bool prefers_packed(DType type, int64_t outputs, int64_t inputs);
// Packs rows 64·panel … of a weight into that panel; `rows` are up to 64 of them, f32 or bf16 like the result. `out` is
// the start of the panel, zeroed memory.
void pack_panel(void* out, const Matrix& rows);
// c[M, N] = a[M, K] · Wᵀ, or c += …. As gemm(); only where prefers_packed(). Rows of c that do not lie one right behind
// the other cost a copy: the library has no fast product for them.
void gemm(const Matrix& c, const Matrix& a, const PackedMatrix& w, Store store = Store::overwrite);

// Whether bf16 products run in hardware here.
bool has_fast_bf16();
// The instruction set that products run on, and the library's version, for reports: "avx512_core_bf16, oneDNN 2.6.3".
std::string gemm_backend();

}  // namespace unchain::ops
