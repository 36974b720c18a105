// How alike the heads of one layer are: mean pairwise cosine distance of their maps, and linear CKA of their outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace unchain::analysis {

// ⟨P_a, P_b⟩ of all pairs of heads over the visible entries, summed panel by panel: heads² numbers, f32 within a row,
// f64 across rows. Not thread-safe.
class MapProducts {
 public:
  MapProducts() = default;
  explicit MapProducts(int heads);
  // Adds rows [rows, keys] of all heads; entries that a row does not see are 0.
  void add(const float* p, int64_t rows, int64_t keys, int64_t row_stride, int64_t head_stride);
  // The mean of 1 − cos(P_a, P_b) over pairs of different heads; pairs with a zero map are left out; absent if none is
  // left. Range [0, 2], for maps without negative weights [0, 1].
  std::optional<double> mean_cosine_distance() const;

 private:
  int heads_ = 0;
  std::vector<double> products_;  // [heads, heads]
};

// Linear CKA of x[tokens, width_x] and y[tokens, width_y], rows `stride` elements apart, with the unbiased HSIC₁:
//   HSIC(K, L) = [tr KL + 1ᵀK1·1ᵀL1/((n−1)(n−2)) − 2·1ᵀKL1/(n−2)] / (n(n−3)), K = XXᵀ and L = YYᵀ with diagonals 0,
//   CKA = HSIC(K, L)/√(HSIC(K, K)·HSIC(L, L)).
// 1 for y = x, about 0 for independent data, slightly negative at times; absent if n < 4 or HSIC of a side with itself
// is ≤ 0. Work n·width_x·width_y: no n × n matrix is formed. Sources: Song et al., JMLR 13 (2012), eq. 5; Kornblith et
// al., ICML 2019.
std::optional<double> linear_cka(const float* x, int64_t width_x, const float* y, int64_t width_y, int64_t tokens,
                                 int64_t stride);

// The mean CKA over pairs of different heads of outputs[tokens, heads, width]; undefined pairs are left out; absent if
// none is left. Parallel over pairs.
std::optional<double> mean_cka(const float* outputs, int64_t tokens, int heads, int64_t width);

}  // namespace unchain::analysis
