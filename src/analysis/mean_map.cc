#include "analysis/mean_map.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"

namespace unchain::analysis {
namespace {

bool is_of_noise(MapValue value) {
  return value == MapValue::noise || value == MapValue::log_noise;
}

bool is_log(MapValue value) {
  return value == MapValue::log_positive || value == MapValue::log_noise;
}

}  // namespace

WeightRow weight_row(const attention::MapPanel& panel, MapValue value, int head, int64_t row) {
  const int64_t position = panel.first_row + row;
  if (!is_of_noise(value)) return {panel.positive_row(head, row), position, panel.first_key(row)};
  return {panel.noise ? panel.noise_row(head, row) : nullptr, position, panel.first_noise_key(row)};
}

double map_value(MapValue value, float weight) {
  const double a = weight;
  return is_log(value) ? std::log(std::max(a, 1e-8)) : a;
}

MeanMaps::MeanMaps(int64_t tokens, std::set<int> layers, bool logs)
    : tokens_(tokens), wanted_(std::move(layers)), logs_(logs) {
  if (tokens < 1) fail(ErrorCode::usage, "mean maps: windows of {} tokens, expected at least 1", tokens);
}

MeanMaps::Layer& MeanMaps::layer_of(const attention::MapPanel& panel) {
  const auto [entry, fresh] = layers_.try_emplace(panel.layer);
  Layer& layer = entry->second;
  if (fresh) {
    layer.heads = panel.heads;
    layer.window = panel.window;
    layer.noise_window = panel.noise_is_state ? 0 : panel.window;
    for (size_t k = 0; k < kMapValues; ++k) {
      const auto value = static_cast<MapValue>(k);
      if ((is_of_noise(value) && !panel.noise) || (is_log(value) && !logs_)) continue;
      layer.sums[k].resize(static_cast<size_t>(panel.heads * (tokens_ * (tokens_ + 1) / 2)));
    }
  }
  const bool noise = !layer.sums[static_cast<size_t>(MapValue::noise)].empty();
  if (panel.heads != layer.heads || noise != (panel.noise != nullptr) || panel.first_row != layer.rows ||
      panel.first_row + panel.rows > tokens_) {
    fail(ErrorCode::shape,
         "mean maps: layer {}: {} heads{}, rows {} … {}; expected {} heads{}, rows from {} on, in windows of {} tokens",
         panel.layer, panel.heads, panel.noise ? " with noise" : "", panel.first_row, panel.first_row + panel.rows - 1,
         layer.heads, noise ? " with noise" : "", layer.rows, tokens_);
  }
  return layer;
}

void MeanMaps::on_maps(const attention::MapPanel& panel) {
  Layer& layer = layer_of(panel);
  parallel_for(panel.heads, [&](int64_t h) {
    const int head = static_cast<int>(h);
    for (size_t k = 0; k < kMapValues; ++k) {
      if (layer.sums[k].empty()) continue;
      for (int64_t r = 0; r < panel.rows; ++r) {
        const auto value = static_cast<MapValue>(k);
        const WeightRow row = weight_row(panel, value, head, r);
        double* sums = layer.sums[k].data() + h * (tokens_ * (tokens_ + 1) / 2) + row.position * (row.position + 1) / 2;
        double total = 0;
        for (int64_t j = row.first; j <= row.position; ++j) {
          total += row.weights[j];
          sums[j] += map_value(value, row.weights[j]);
        }
        if (!std::isfinite(total)) {
          fail(ErrorCode::numeric, "mean maps: layer {} head {} row {}: a weight is not finite", panel.layer, head,
               row.position);
        }
      }
    }
  });
  layer.rows += panel.rows;
  if (layer.rows < tokens_) return;
  layer.rows = 0;
  ++layer.windows;
}

std::vector<double> MeanMaps::mean(int layer, int head, MapValue value) const {
  const auto found = layers_.find(layer);
  if (found == layers_.end() || head < 0 || head >= found->second.heads ||
      found->second.sums[static_cast<size_t>(value)].empty() || found->second.rows != 0) {
    fail(ErrorCode::usage, "mean maps: layer {} head {}: {}", layer, head,
         found == layers_.end()       ? "that layer was not seen"
         : found->second.rows != 0    ? "its last window is not at its end"
         : head < found->second.heads ? "that value was not kept"
                                      : "that head was not seen");
  }
  const double* sums = found->second.sums[static_cast<size_t>(value)].data() + head * (tokens_ * (tokens_ + 1) / 2);
  std::vector<double> out(static_cast<size_t>(tokens_ * tokens_));
  for (int64_t i = 0; i < tokens_; ++i) {
    for (int64_t j = 0; j <= i; ++j)
      out[static_cast<size_t>(i * tokens_ + j)] = *sums++ / static_cast<double>(found->second.windows);
  }
  return out;
}

}  // namespace unchain::analysis
