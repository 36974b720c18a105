// Effective ranks of a matrix of attention weights, from its singular values σ_1 ≥ σ_2 ≥ … in f64:
//   entropy          exp(−Σ p_k ln p_k), p = σ_k/Σσ          (Roy & Vetterli, "The effective rank", EUSIPCO 2007)
//   entropy_squared  the same with p = σ_k²/Σσ²
//   stable           Σσ²/σ_1² = ‖A‖_F²/‖A‖₂²
//   r90, r99         the fewest singular values that hold 90 % or 99 % (less 1e-12) of Σσ²
// All five are n for n equal singular values (r90 ⌈0.9n⌉, r99 ⌈0.99n⌉), 1 for rank one, 0 for the zero matrix.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace unchain::analysis {

struct RankMeasures {
  double entropy = 0;
  double entropy_squared = 0;
  double stable = 0;
  double r90 = 0;
  double r99 = 0;
};

// `sigma`: singular values, not negative, largest first.
RankMeasures rank_measures(std::span<const double> sigma);

// All min(rows, cols) singular values of a[rows, cols] (rows `stride` elements apart), largest first, in f64.
// Accuracy: absolute, a small multiple of f64's epsilon times the largest (Householder bidiagonalisation, then implicit
// QR). Work: about 8/3 n³ operations for n × n. Errors: numeric if an element is not finite. Safe to call from several
// threads.
std::vector<double> singular_values(const float* a, int64_t rows, int64_t cols, int64_t stride);

// The singular values of the bidiagonal matrix with this diagonal and superdiagonal (one shorter), largest first.
std::vector<double> bidiagonal_singular_values(std::vector<double> diagonal, std::vector<double> super);

// The part of an N × N causal map in which every row sees every key: columns 0 … 3N/4 − 1, and of the last N/4 rows at
// most 256, evenly spaced. A triangle has full rank whatever it holds; this part has not.
struct Block {
  int64_t columns = 0;
  std::vector<int64_t> rows;  // ascending row numbers of the map; empty if N < 2
};
Block rank_block(int64_t tokens);

// map[N, N], contiguous, becomes the reference whose rows hold the same visible weights in random order (row i sees
// keys first_key … i for first_key = max(0, i − window + 1), window 0: all). Row entropies stay as they are.
void permute_visible(float* map, int64_t tokens, int64_t window, uint64_t seed, uint64_t stream);

// map[N, N] = the uniform map over the keys that each row sees.
void fill_uniform(float* map, int64_t tokens, int64_t window);

}  // namespace unchain::analysis
