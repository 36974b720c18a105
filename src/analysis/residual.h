// What each layer's attention does to the residual stream x_i that it reads, by its two terms: with r_i the write of a
// term at row i (through W_O, × the factors of head norm, gate and post norm at that row),
//   cosine ⟨r_i, x_i⟩/(‖r_i‖‖x_i‖),   size ‖r_i‖/‖x_i‖,   removed −⟨r_i, x_i⟩/‖x_i‖²
// r_i = −λ_i (A2 V)_i W_O for the noise term, (A1 V)_i W_O for the positive one, all heads added up.
// docs/analyses/residual-stream.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/summary.h"
#include "attention/maps.h"

namespace unchain::analysis {

// Each window's mean over its rows, summarised over windows. Row 0, which sees itself alone, is left out, as are rows
// for which a figure is undefined (‖x_i‖ = 0; for the cosine also ‖r_i‖ = 0); absent where none is left.
struct WriteMeasures {
  std::optional<Summary> cosine, size, removed;
  std::vector<std::optional<double>> removed_by_window;
};

struct LayerWrites {
  int layer = 0;
  bool noise_term = false;
  WriteMeasures positive;       // A1's write
  WriteMeasures noise, random;  // the noise term's, and one in a random direction of the same ‖r_i‖; else absent
};

// An observer of forward passes, each a window; the rows of a window may come in several steps. Not thread-safe.
class ResidualWrites : public attention::Observer {
 public:
  // `seed`: of the random directions and of the bootstrap.
  explicit ResidualWrites(uint64_t seed);
  bool wants_writes() const override { return true; }
  void on_maps(const attention::MapPanel& /*panel*/) override {}
  // Error: numeric if a number is not finite, naming layer and position.
  void on_residual(const attention::ResidualPanel& panel) override;
  // Closes a window; the next rows belong to another one. Error: usage if it has no rows.
  void end_window();
  // Layers ascending. Error: usage if no window has ended.
  std::vector<LayerWrites> results() const;

 private:
  enum Term { kPositive, kNoise, kRandom, kTerms };
  struct Mean {
    double sum = 0;
    int64_t count = 0;
  };
  struct Sums {
    Mean cosine, size, removed;
  };
  struct Windows {
    std::vector<std::optional<double>> cosine, size, removed;
  };
  struct LayerState {
    bool noise_term = false;
    Sums sums[kTerms];        // of the open window
    Windows windows[kTerms];  // of those before
  };

  uint64_t seed_;
  uint64_t ended_ = 0;  // windows
  std::map<int, LayerState> layers_;
};

}  // namespace unchain::analysis
