#include "analysis/background.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"

namespace unchain::analysis {

Background::Background(const MeanMaps& calibration) : tokens_(calibration.tokens()) {
  const int64_t n = tokens_;
  for (const auto& [number, from] : calibration.layers()) {
    Layer& layer = layers_[number];
    layer.window = from.window;
    layer.noise_window = from.noise_window;
    layer.heads.resize(static_cast<size_t>(from.heads));
    for (int head = 0; head < from.heads; ++head) {
      for (size_t k = 0; k < kMapValues; ++k) {
        if (from.sums[k].empty()) continue;
        const auto value = static_cast<MapValue>(k);
        const std::vector<double> mean = calibration.mean(number, head, value);
        const bool of_noise = value == MapValue::noise || value == MapValue::log_noise;
        const int64_t window = of_noise ? from.noise_window : from.window;
        Sums& to = layer.heads[static_cast<size_t>(head)][k];
        to.keys.resize(static_cast<size_t>(n));
        to.rows.resize(static_cast<size_t>(n));
        std::vector<int64_t> seen(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) {
          const int64_t first = window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
          const double* row = mean.data() + i * n;
          to.places.insert(to.places.end(), row, row + i + 1);
          if (i == 0) continue;
          for (int64_t j = first; j <= i; ++j) {
            to.rows[static_cast<size_t>(i)] += row[j] / static_cast<double>(i + 1 - first);
            to.keys[static_cast<size_t>(j)] += row[j];
            ++seen[static_cast<size_t>(j)];
          }
        }
        for (size_t j = 0; j < seen.size(); ++j) to.keys[j] /= static_cast<double>(std::max<int64_t>(seen[j], 1));
      }
    }
  }
}

void Background::on_maps(const attention::MapPanel& panel) {
  Layer& layer = layers_.at(panel.layer);
  const int64_t end = panel.first_row + panel.rows;
  const bool noise = !layer.heads.empty() && !layer.heads[0][static_cast<size_t>(MapValue::noise)].places.empty();
  if (static_cast<size_t>(panel.heads) != layer.heads.size() || end > tokens_ || panel.window != layer.window ||
      (panel.noise != nullptr) != noise) {
    fail(ErrorCode::shape,
         "background: layer {}: {} heads{}, window {}, {} tokens; the calibration has {} heads{}, window {}, {} tokens",
         panel.layer, panel.heads, panel.noise ? " with noise" : "", panel.window, end, layer.heads.size(),
         noise ? " with noise" : "", layer.window, tokens_);
  }
  parallel_for(panel.heads, [&](int64_t h) {
    const int head = static_cast<int>(h);
    for (size_t k = 0; k < kMapValues; ++k) {
      Sums& sums = layer.heads[static_cast<size_t>(head)][k];
      if (sums.places.empty()) continue;
      const auto value = static_cast<MapValue>(k);
      for (int64_t r = 0; r < panel.rows; ++r) {
        const WeightRow row = weight_row(panel, value, head, r);
        const int64_t i = row.position;
        if (i == 0) continue;
        const double* places = sums.places.data() + i * (i + 1) / 2;
        double total = 0;
        for (int64_t j = row.first; j <= i; ++j) {
          const double a = map_value(value, row.weights[j]);
          const auto squared = [a](double mean) { return (a - mean) * (a - mean); };
          total += row.weights[j];
          sums.sum += a;
          sums.squares += a * a;
          sums.place += squared(places[j]);
          sums.key += squared(sums.keys[static_cast<size_t>(j)]);
          sums.row += squared(sums.rows[static_cast<size_t>(i)]);
        }
        sums.entries += i + 1 - row.first;
        if (!std::isfinite(total)) {
          fail(ErrorCode::numeric, "background: layer {} head {} row {}: a weight is not finite", panel.layer, head, i);
        }
      }
    }
  });
}

void Background::end_window() {
  for (auto& [number, layer] : layers_)
    for (auto& values : layer.heads)
      for (Sums& sums : values) sums.after.push_back(sums);
}

Explained Background::explained(const Sums& sums) {
  Explained out;
  out.entries = sums.entries;
  const double mean = sums.sum / static_cast<double>(std::max<int64_t>(sums.entries, 1));
  const double variation = sums.squares - sums.sum * mean;
  // What rounding leaves of entries that are all alike: about 1e-16 an addition, of at most 1e6 in a row.
  if (variation <= 1e-10 * sums.squares) return out;
  out.place = 1 - sums.place / variation;
  out.key = 1 - sums.key / variation;
  out.row = 1 - sums.row / variation;
  Totals before;
  for (const Totals& after : sums.after) {
    const double sum = after.sum - before.sum, entries = static_cast<double>(after.entries - before.entries);
    out.windows.push_back({after.place - before.place, after.key - before.key, after.row - before.row,
                           after.squares - before.squares - 2 * mean * sum + entries * mean * mean});
    before = after;
  }
  return out;
}

std::vector<BackgroundLayer> Background::results() const {
  std::vector<BackgroundLayer> out;
  for (const auto& [number, layer] : layers_) {
    BackgroundLayer& layer_out = out.emplace_back(BackgroundLayer{number, {}});
    for (const auto& values : layer.heads) {
      BackgroundHead& head = layer_out.heads.emplace_back();
      for (size_t k = 0; k < kMapValues; ++k) head.of[k] = explained(values[k]);
    }
  }
  return out;
}

}  // namespace unchain::analysis
