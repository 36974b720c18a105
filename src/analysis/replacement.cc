#include "analysis/replacement.h"

#include "base/check.h"
#include "base/thread.h"

namespace unchain::analysis {

void Replacement::edit_maps(attention::MapPanel& panel) {
  const bool there = options_.part == MapPart::positive || panel.noise != nullptr;
  if (!there && options_.layers.empty()) return;
  if (!there) {
    fail(ErrorCode::usage, "replacement: layer {} has no noise map; choose layers that have one, or the positive map",
         panel.layer);
  }
  if (!options_.heads.empty() && (*options_.heads.begin() < 0 || *options_.heads.rbegin() >= panel.heads)) {
    fail(ErrorCode::usage, "replacement: head {} of layer {}, which has heads 0 to {}",
         *options_.heads.begin() < 0 ? *options_.heads.begin() : *options_.heads.rbegin(), panel.layer,
         panel.heads - 1);
  }
  parallel_for(panel.heads, [&](int64_t h) {
    const int head = static_cast<int>(h);
    if (options_.heads.empty() || options_.heads.contains(head)) edit_head(panel, head);
  });
}

float* Replacement::row(const attention::MapPanel& panel, int head, int64_t r) const {
  return options_.part == MapPart::noise ? panel.noise_row(head, r) : panel.positive_row(head, r);
}

int64_t Replacement::first_key(const attention::MapPanel& panel, int64_t r) const {
  return options_.part == MapPart::noise ? panel.first_noise_key(r) : panel.first_key(r);
}

void OwnLowRank::edit_head(const attention::MapPanel& panel, int head) const {
  if (panel.first_row != 0) {
    fail(ErrorCode::usage, "replacement: rows from position {} on; read a whole text in one call, from position 0",
         panel.first_row);
  }
  const int64_t n = panel.rows;
  Factors factors{n, 0, {}, {}};
  if (rank_ != 0) {
    std::vector<double> map(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i) std::copy_n(row(panel, head, i), i + 1, map.data() + i * n);
    const bool limited = options().part == MapPart::positive || !panel.noise_is_state;
    const LowRank low_rank(std::move(map), n, limited ? panel.window : 0);
    factors = approximation_ == Approximation::fitted ? low_rank.fitted(rank_) : low_rank.truncated(rank_);
  }
  for (int64_t i = 0; i < n; ++i) write_row(row(panel, head, i), factors, i, first_key(panel, i), options().divide);
}

std::vector<FixedMaps> fixed_maps(const MeanMaps& mean, MapPart part, const std::vector<int64_t>& ranks) {
  const MapValue value = part == MapPart::noise ? MapValue::noise : MapValue::positive;
  std::vector<FixedMaps> out(ranks.size());
  for (const auto& entry : mean.layers()) {
    const MeanMaps::Layer& layer = entry.second;
    if (layer.sums[static_cast<size_t>(value)].empty()) continue;
    const int64_t window = part == MapPart::noise ? layer.noise_window : layer.window;
    for (FixedMaps& maps : out) maps[entry.first].resize(static_cast<size_t>(layer.heads));
    parallel_for(layer.heads, [&](int64_t h) {
      const LowRank low_rank(mean.mean(entry.first, static_cast<int>(h), value), mean.tokens(), window);
      for (size_t r = 0; r < ranks.size(); ++r)
        out[r].at(entry.first)[static_cast<size_t>(h)] = low_rank.fitted(ranks[r]);
    });
  }
  if (!out.empty() && out.front().empty()) {
    fail(ErrorCode::usage, "replacement: no mean {} map was seen; read texts with the observer first",
         part == MapPart::noise ? "noise" : "positive");
  }
  return out;
}

void FixedReplacement::edit_head(const attention::MapPanel& panel, int head) const {
  const std::vector<Factors>& maps = maps_->at(panel.layer);
  const int64_t end = panel.first_row + panel.rows;
  if (maps.size() != static_cast<size_t>(panel.heads) || end > maps[static_cast<size_t>(head)].tokens) {
    fail(ErrorCode::shape, "replacement: layer {}: {} heads, {} tokens; the fixed maps are {} of {} tokens",
         panel.layer, panel.heads, end, maps.size(), maps.empty() ? 0 : maps.front().tokens);
  }
  const Factors& factors = maps[static_cast<size_t>(head)];
  for (int64_t r = 0; r < panel.rows; ++r) {
    write_row(row(panel, head, r), factors, panel.first_row + r, first_key(panel, r), options().divide);
  }
}

}  // namespace unchain::analysis
