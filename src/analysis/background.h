// Background: how much of a map is the same for all texts. Share of the variance of its entries on unseen texts that
// the calibration texts' mean explains, at the same place (i, j), at the same key j, and in the same row i:
//   R² = 1 − Σ (a_ij − m)²/Σ (a_ij − ā)²,   ā: the mean of all a_ij that are summed
// over the visible entries of rows i ≥ 1 of all unseen windows. At most 1, and below 0 where the mean misleads.
// How to read it: docs/analyses/background.md.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/mean_map.h"
#include "attention/maps.h"

namespace unchain::analysis {

// What one window adds to the sums of R²: of the squared distances from each mean, and from the mean of all windows.
struct ExplainedWindow {
  double place = 0, key = 0, row = 0, variation = 0;
};

// R² of each mean; absent where the entries do not vary or there are none.
struct Explained {
  std::optional<double> place, key, row;
  int64_t entries = 0;
  std::vector<ExplainedWindow> windows;  // none where R² is absent, or windows were not told apart
};

struct BackgroundHead {
  std::array<Explained, kMapValues> of;  // by MapValue; no entries where there is no such map or no logarithms
  const Explained& operator[](MapValue value) const { return of[static_cast<size_t>(value)]; }
};

struct BackgroundLayer {
  int layer = 0;
  std::vector<BackgroundHead> heads;
};

// Holds a mean a row and key of each head beside the calibration's maps, and sums; never a window. Not thread-safe;
// uses the process's threads inside.
class Background : public attention::Observer {
 public:
  // `calibration` outlives this and changes no more. Error: usage (a window of it is not at its end).
  explicit Background(const MeanMaps& calibration);

  bool wants(int layer) const override { return layers_.contains(layer); }
  // Maps of unseen windows, of at most as many tokens as the calibration's. Errors: shape (more tokens, other heads or
  // windows); numeric (a weight that is not finite, with layer, head and row).
  void on_maps(const attention::MapPanel& panel) override;
  // After the last panel of a window, where results are to tell windows apart.
  void end_window();
  std::vector<BackgroundLayer> results() const;

 private:
  struct Totals {
    double sum = 0, squares = 0;         // of the entries
    double place = 0, key = 0, row = 0;  // squared distances from the means
    int64_t entries = 0;
  };
  struct Sums : Totals {
    std::vector<double> places;      // [N(N + 1)/2], means of the calibration
    std::vector<double> keys, rows;  // [N], means of those
    std::vector<Totals> after;       // each window that has ended
  };
  static Explained explained(const Sums& sums);
  struct Layer {
    int64_t window = 0, noise_window = 0;
    std::vector<std::array<Sums, kMapValues>> heads;
  };
  int64_t tokens_;
  std::map<int, Layer> layers_;
};

}  // namespace unchain::analysis
