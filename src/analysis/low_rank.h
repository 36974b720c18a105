// Maps of low rank in place of an attention map: B_ij = U_i · V_j over the keys that row i sees, 0 elsewhere. Such a
// map is a triangle and so of full numerical rank, but R numbers a token hold it. What it is for:
// docs/analyses/functional-rank.md.
#pragma once

#include <cstdint>
#include <vector>

namespace unchain::analysis {

struct Factors {
  int64_t tokens = 0, rank = 0;
  std::vector<double> u, v;  // [N, R]
};

struct FitOptions {
  int sweeps = 20;
  double ridge = 1e-6;  // what is added to the diagonal of every R × R system
};

// A map, decomposed once, from which factors of any rank come. Holds 3 N² numbers in f64. Immutable after construction.
class LowRank {
 public:
  // map[N, N], row-major, 0 where a row sees nothing: row i sees keys j ≤ i and, with a window, j > i − window. Work:
  // eigenvectors of mapᵀ map, about 10 N³. Errors: shape (not N² numbers); numeric (a number that is not finite).
  LowRank(std::vector<double> map, int64_t tokens, int64_t window = 0);

  // The R largest singular triples, √σ on both sides; the map that they make is cut to what rows see. Optimal before
  // that cut (Eckart & Young, Psychometrika 1 (1936)), not after it. Error: usage (rank below 0). R above N counts as
  // N.
  Factors truncated(int64_t rank) const;

  // U, V that make Σ (A_ij − U_i · V_j)² small over the visible entries alone: from truncated(), `sweeps` times U by
  // least squares from V, then V from U. Each half sweep solves N systems of R × R whose matrices are sums of the other
  // side that run along with i: O(N² R + N R³), with two more copies of the map in memory. At R = N the truncation is
  // exact and stands. Source: alternating least squares with missing entries, Koren, Bell & Volinsky, Computer 42(8),
  // 2009. Errors: as truncated().
  Factors fitted(int64_t rank, const FitOptions& options = {}) const;

 private:
  int64_t tokens_ = 0, window_ = 0;
  std::vector<double> map_;           // [N, N]
  std::vector<double> right_, left_;  // [N, N], column k of both belongs to the k-th largest σ: √σ v_k, √σ u_k
};

// row[0 … position] = that row of the factors' map, 0 before first_key; with `divide` over the larger of its sum and
// 0.1 (the rule of `calibrated`, docs/math/fixed_diff.md). position < N.
void write_row(float* row, const Factors& factors, int64_t position, int64_t first_key, bool divide);

// What write_row() divides by: a row's sum, but at least 0.1.
double row_divisor(double sum);

}  // namespace unchain::analysis
