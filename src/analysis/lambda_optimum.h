// The λ that would take the most off A1: λ* = ⟨A1, A2⟩/⟨A2, A2⟩, the projection of A1 on A2, so that A1 − λ*·A2 has the
// least norm. Over the visible entries of rows i ≥ 1 that are no induction targets (InductionTargets): what the text
// calls for shall stay. An observer. How to read it: docs/analyses/lambda-optimum.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "analysis/row_measures.h"
#include "attention/maps.h"

namespace unchain::analysis {

struct LambdaProjection {
  std::optional<double> optimum;  // λ*; absent where A2 is 0
  std::optional<double> cosine;  // ⟨A1, A2⟩/(‖A1‖ ‖A2‖): 1 − cosine² of ‖A1‖² remains at λ*; absent where one is 0
  double lambda = 0;  // the mean of the λ that the model used, over the same rows
};

struct LayerLambda {
  int layer = 0;
  LambdaProjection all;                 // summed over heads: for λ that a layer shares
  std::vector<LambdaProjection> heads;  // for λ of their own
};

// Use: begin_window, then one forward pass with this observer; again; results. Holds sums alone. Not thread-safe; uses
// the process's threads inside.
class LambdaOptimum : public attention::Observer {
 public:
  // The ids of the next window; empty where unknown: then no entry is left out.
  void begin_window(std::span<const int32_t> tokens) { targets_ = InductionTargets(tokens); }
  // Layers without a noise map pass by. Errors: shape (a layer whose heads change); numeric (a weight or λ that is not
  // finite, with layer, head and row).
  void on_maps(const attention::MapPanel& panel) override;
  std::vector<LayerLambda> results() const;

 private:
  struct Sums {
    double both = 0, positive = 0, noise = 0;  // ⟨A1, A2⟩, ⟨A1, A1⟩, ⟨A2, A2⟩
    double lambda = 0;
    int64_t rows = 0;
    void add(const Sums& other);
    LambdaProjection projection() const;
  };
  InductionTargets targets_;
  std::map<int, std::vector<Sums>> layers_;  // [heads]
};

}  // namespace unchain::analysis
