#include "analysis/map_row.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace unchain::analysis {

void MapRow::on_maps(const attention::MapPanel& panel) {
  const int64_t r = row_ - panel.first_row;
  if (r < 0 || r >= panel.rows) return;
  LayerRow& layer = layers_.emplace_back();
  layer.layer = panel.layer;
  for (int h = 0; h < panel.heads; ++h) {
    const auto copy = [&](const float* row) { return std::vector<float>(row, row + row_ + 1); };
    const auto is_finite = [](const std::vector<float>& row) {
      return std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
    };
    bool finite = is_finite(layer.positive.emplace_back(copy(panel.positive_row(h, r))));
    if (panel.noise) {
      finite = is_finite(layer.noise.emplace_back(copy(panel.noise_row(h, r)))) && finite;
      finite = std::isfinite(layer.lambda.emplace_back(panel.lambda[h * panel.rows + r])) && finite;
    }
    if (!finite) fail(ErrorCode::numeric, "layer {} head {} row {}: a weight or λ is not finite", panel.layer, h, row_);
  }
}

}  // namespace unchain::analysis
