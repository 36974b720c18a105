// How far signed maps leave the simplex of softmax, counted: rows that do not sum to 1, weights above 1, and weights on
// other than key tokens that are near zero or negative. An observer of attention maps. docs/measures.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/row_measures.h"
#include "attention/maps.h"

namespace unchain::analysis {

// Counts over rows 1 … N − 1 and the keys that they see. Non-key entries are those of rows with an induction target, on
// other keys than its targets; small ones have |P_ij| < 1/(10(i + 1)). Above 1 is above 1 + 1e-5, beyond rounding.
struct SimplexCounts {
  int64_t rows = 0, rows_off = 0;  // |Σ_j P_ij − 1| > 0.05
  int64_t entries = 0, over_one = 0;
  int64_t rescaled = 0, rescaled_over_one = 0;  // P_ij/(1 − λ_i) > 1, in rows with λ_i ≠ 1
  int64_t non_key = 0, small = 0, small_or_negative = 0;

  void add(const SimplexCounts& other);
};

// Use: begin_window, then one forward pass with this observer; again; counts. Not thread-safe.
class SimplexObserver : public attention::Observer {
 public:
  // A window of these tokens; counting goes on.
  void begin_window(std::span<const int32_t> tokens) { induction_ = InductionTargets(tokens); }
  // [layer][head]; layers that were never seen are empty.
  const std::vector<std::vector<SimplexCounts>>& counts() const { return counts_; }
  // Over all layers and heads.
  SimplexCounts total() const;

  // Error: numeric if a weight is not finite, naming layer, head, row and key.
  void on_maps(const attention::MapPanel& panel) override;

 private:
  InductionTargets induction_;
  std::vector<std::vector<SimplexCounts>> counts_;
};

}  // namespace unchain::analysis
