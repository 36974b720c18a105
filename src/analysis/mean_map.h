// The mean of each head's maps over the windows of a text, at every place (i, j): an observer. What the means are for:
// docs/analyses/background.md and docs/analyses/functional-rank.md.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "attention/maps.h"

namespace unchain::analysis {

// What is averaged: entries of A1 and A2, and their logarithms.
enum class MapValue : uint8_t { positive, noise, log_positive, log_noise };
inline constexpr size_t kMapValues = 4;

// Visible entries of one row of a panel.
struct WeightRow {
  const float* weights = nullptr;  // of keys 0 … position
  int64_t position = 0, first = 0;
};
// The row of A1 or A2 that a value is of. Without a noise map `weights` of a noise value is nullptr.
WeightRow weight_row(const attention::MapPanel& panel, MapValue value, int head, int64_t row);

// ln a, but that of 1e-8 for less: so little changes no sum of f32 weights that is 1, and softmax ends at 0 somewhere.
double map_value(MapValue value, float weight);

// Not thread-safe; uses the process's threads inside. Holds N(N + 1)/2 f64 numbers a head, layer and value, whatever
// the number of windows; choose layers where that is too much.
class MeanMaps : public attention::Observer {
 public:
  // Of windows of `tokens` tokens each. `layers`: which ones; empty: all. `logs`: the logarithms too. Error: usage
  // (tokens below 1).
  explicit MeanMaps(int64_t tokens, std::set<int> layers = {}, bool logs = false);

  bool wants(int layer) const override { return wanted_.empty() || wanted_.contains(layer); }
  // Errors: shape (rows that do not follow each other, a window of another length, a layer that changes); numeric (a
  // weight that is not finite, with layer, head and row).
  void on_maps(const attention::MapPanel& panel) override;

  struct Layer {
    int heads = 0;
    int64_t window = 0, noise_window = 0;  // 0: none
    int64_t rows = 0;                      // of the window that is being seen
    int64_t windows = 0;
    std::array<std::vector<double>, kMapValues> sums;  // [heads, N(N + 1)/2], rows after one another; empty: not seen
  };
  int64_t tokens() const { return tokens_; }
  const std::map<int, Layer>& layers() const { return layers_; }

  // The mean map [N, N] of a head, 0 where rows see nothing. Errors: usage (a layer, head or value that was not seen,
  // or a window that is not at its end).
  std::vector<double> mean(int layer, int head, MapValue value) const;

 private:
  Layer& layer_of(const attention::MapPanel& panel);

  int64_t tokens_;
  std::set<int> wanted_;
  bool logs_;
  std::map<int, Layer> layers_;
};

}  // namespace unchain::analysis
