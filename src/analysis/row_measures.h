// Measures of single rows of an attention map, averaged over rows: entropy, sums and shares of the weights' magnitude.
// Row 0 has one entry and is left out of all of them. P_ij may be negative: shares are of Σ_j |P_ij|.
// Formulas and ranges: docs/measures.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "analysis/measures.h"

namespace unchain::analysis {

// Of every row of a window, the keys that induction would look at: j ≤ i such that token j − 1 equals token i and token
// j equals token i + 1, the one to predict. Immutable after construction.
class InductionTargets {
 public:
  InductionTargets() = default;
  explicit InductionTargets(std::span<const int32_t> tokens);
  // Ascending; empty for a row without a target.
  std::span<const int64_t> keys(int64_t row) const;

 private:
  std::vector<std::vector<int64_t>> keys_;         // by pair of tokens: every j of that pair
  std::vector<std::pair<int32_t, int32_t>> rows_;  // by row: which entry of keys_ (−1: none), how many of it are ≤ row
};

// Counts of log10 |P_ij| over visible entries, and of the rows' normalised entropy; values beyond an end count in the
// last bin there.
struct Histograms {
  static constexpr int kWeightBins = 32;   // 0.25 decades each, from 1e-8 to 1
  static constexpr int kEntropyBins = 25;  // 0.04 each, from 0 to 1
  std::array<uint64_t, kWeightBins> log10_weight{};
  std::array<uint64_t, kEntropyBins> entropy_normalised{};
  void add(const Histograms& other);
};

// One row: query position i sees keys first … i; p[0 … i] are its weights (0 before `first`).
struct RowInput {
  const float* p = nullptr;
  int64_t position = 0;
  int64_t first = 0;
  const float* value_norm = nullptr;          // ‖v_j W_O‖ for keys 0 … i, or nullptr
  std::span<const int64_t> induction_keys{};  // targets, ascending
};

// Sums over the rows of one head in one window. Not thread-safe; several heads can be summed at the same time.
// Accuracy: f32 within 256 keys (64 additions a lane: relative 64·2^-24 = 3.8e-6 at worst), f64 beyond; hence entropies
// within 1e-5·(1 + ln keys) nats where Σ|P| ≤ 1, shares within 1e-5.
class RowAccumulator {
 public:
  // Row 0 is ignored. Returns false, and adds nothing, if a weight (or a value's norm) is not finite.
  bool add(const RowInput& row);
  // Means over the rows for which each measure is defined; entropy_clipped only if a weight was negative.
  void write(Values& values) const;
  const Histograms& histograms() const { return histograms_; }

 private:
  struct Mean {
    double sum = 0;
    int64_t count = 0;
    void add(double x) {
      sum += x;
      ++count;
    }
  };
  std::array<Mean, kMeasureCount> means_{};
  bool any_negative_ = false;
  Histograms histograms_;
  std::vector<float> logs_, magnitudes_;  // scratch of a row
};

}  // namespace unchain::analysis
