// One query row of every map, copied as it is: A1_i·, A2_i· and λ_i of each layer and head.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/maps.h"

namespace unchain::analysis {

// A layer's rows: [heads][row + 1], keys 0 … row; those in front of a window are 0. noise and lambda [heads] are empty
// for a map without a noise term.
struct LayerRow {
  int layer = 0;
  std::vector<std::vector<float>> positive, noise;
  std::vector<float> lambda;
};

// Use: one forward pass that reads position `row`, with this observer; layers. Not thread-safe.
class MapRow : public attention::Observer {
 public:
  explicit MapRow(int64_t row) : row_(row) {}
  // Error: numeric if a weight or λ of the row is not finite, naming layer, head and row.
  void on_maps(const attention::MapPanel& panel) override;
  const std::vector<LayerRow>& layers() const { return layers_; }  // in the order in which they were seen

 private:
  int64_t row_;
  std::vector<LayerRow> layers_;
};

}  // namespace unchain::analysis
