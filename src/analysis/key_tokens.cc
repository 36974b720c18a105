#include "analysis/key_tokens.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/row_measures.h"
#include "base/check.h"
#include "base/thread.h"

namespace unchain::analysis {
namespace {

constexpr double kLeastRowSum = 0.1;

// Sum and sum of magnitudes of some weights.
struct Total {
  double sum = 0, magnitude = 0;
  void add(double x) {
    sum += x;
    magnitude += std::abs(x);
  }
};

std::optional<double> mean(double sum, int64_t count) {
  return count > 0 ? std::optional(sum / static_cast<double>(count)) : std::nullopt;
}

}  // namespace

KeysOfRow span_keys(TokenSpan rows, TokenSpan keys) {
  std::vector<int64_t> all(static_cast<size_t>(std::max<int64_t>(keys.count, 0)));
  std::iota(all.begin(), all.end(), keys.first);
  return [rows, all = std::move(all)](int64_t row) {
    return rows.contains(row) ? std::span<const int64_t>(all) : std::span<const int64_t>();
  };
}

KeysOfRow column_keys(std::vector<int64_t> columns) {
  return [columns = std::move(columns)](int64_t /*row*/) { return std::span<const int64_t>(columns); };
}

KeysOfRow induction_keys(std::span<const int32_t> tokens) {
  return [targets = InductionTargets(tokens)](int64_t row) { return targets.keys(row); };
}

void ColumnScores::on_maps(const attention::GradientPanel& panel) {
  const attention::MapPanel& maps = panel.maps;
  if (maps.keys > static_cast<int64_t>(scores_.size())) {
    fail(ErrorCode::shape, "key tokens: layer {}: a panel of {} keys, expected {} tokens at most", maps.layer,
         maps.keys, scores_.size());
  }
  std::vector<float> p(static_cast<size_t>(maps.keys));
  for (int h = 0; h < maps.heads; ++h) {
    for (int64_t r = 0; r < maps.rows; ++r) {
      maps.signed_row(h, r, p.data());
      for (size_t j = 0; j < p.size(); ++j)
        scores_[j] += std::abs(static_cast<double>(p[j]) * static_cast<double>(panel.d_row(h, r)[j]));
    }
  }
}

std::vector<int64_t> top_columns(std::span<const double> scores, double share) {
  std::vector<int64_t> columns(scores.size());
  std::iota(columns.begin(), columns.end(), 0);
  const auto score = [&](int64_t j) { return scores[static_cast<size_t>(j)]; };
  std::stable_sort(columns.begin(), columns.end(), [&](int64_t a, int64_t b) { return score(a) > score(b); });
  columns.resize(static_cast<size_t>(share * static_cast<double>(scores.size()) + 1e-9));
  std::erase_if(columns, [&](int64_t j) { return score(j) <= 0; });
  std::sort(columns.begin(), columns.end());
  return columns;
}

std::vector<int64_t> loss_columns(model::Trainable& model, std::span<const int32_t> window, double share) {
  if (window.size() < 2)
    fail(ErrorCode::usage, "key tokens: a window of {} tokens, expected two or more", window.size());
  const std::span<const int32_t> targets = window.subspan(1);
  const auto tokens = static_cast<int64_t>(targets.size());
  std::vector<double> nll(targets.size());
  ColumnScores scores(tokens);
  model.forward_backward(nll, {1, tokens, window.first(targets.size()), targets, {}, {}}, &scores);
  return top_columns(scores.scores(), share);
}

void KeyMass::add_row(Sums& sums, const attention::MapPanel& panel, int head, int64_t row,
                      std::span<const int64_t> keys) {
  const float *a1 = panel.positive_row(head, row), *a2 = panel.noise ? panel.noise_row(head, row) : nullptr;
  const double lambda = a2 ? static_cast<double>(panel.lambda[head * panel.rows + row]) : 0;
  const auto positive = [&](int64_t j) { return static_cast<double>(a1[j]); };
  const auto weight = [&](int64_t j) { return positive(j) - (a2 ? lambda * static_cast<double>(a2[j]) : 0); };
  const float* norms = panel.value_norm ? panel.value_norm + head * panel.value_norm_stride : nullptr;
  const auto written = [&](int64_t j) { return norms ? weight(j) * static_cast<double>(norms[j]) : 0; };
  Total map, map_positive, map_written, key, key_positive, key_written;
  for (int64_t j = 0; j <= panel.first_row + row; ++j) {
    map.add(weight(j));
    map_positive.add(positive(j));
    map_written.add(written(j));
  }
  if (!std::isfinite(map.magnitude + map_positive.magnitude + map_written.magnitude)) {
    fail(ErrorCode::numeric, "key tokens: layer {} head {} row {}: a weight is not finite", panel.layer, head,
         panel.first_row + row);
  }
  for (const int64_t j : keys) {
    key.add(weight(j));
    key_positive.add(positive(j));
    key_written.add(written(j));
  }
  ++sums.rows;
  sums.mass += key.sum;
  sums.mass_positive += key_positive.sum;
  sums.mass_rescaled += key.sum / std::max(1 - lambda, kLeastRowSum);
  if (map.magnitude > 0) {
    sums.share += key.sum / map.magnitude;
    ++sums.weighted;
  }
  if (map_positive.magnitude > 0) {
    sums.share_positive += key_positive.sum / map_positive.magnitude;
    ++sums.weighted_positive;
  }
  if (map_written.magnitude > 0) {
    sums.share_value_weighted += key_written.sum / map_written.magnitude;
    ++sums.value_weighted;
  }
}

void KeyMass::on_maps(const attention::MapPanel& panel) {
  if (layers_.empty() || layers_.back().layer != panel.layer)
    layers_.push_back({panel.layer, std::vector<Sums>(static_cast<size_t>(panel.heads))});
  std::vector<std::pair<int64_t, std::span<const int64_t>>> measured;
  for (int64_t r = 0; r < panel.rows; ++r) {
    const int64_t position = panel.first_row + r;
    const std::span<const int64_t> keys = keys_(position);
    const auto first = std::lower_bound(keys.begin(), keys.end(), panel.first_key(r));
    const auto last = std::upper_bound(keys.begin(), keys.end(), position);
    if (position > 0 && first < last) measured.push_back({r, {first, last}});
  }
  parallel_for(panel.heads, [&](int64_t h) {
    Sums& sums = layers_.back().heads[static_cast<size_t>(h)];
    for (const auto& [row, keys] : measured) add_row(sums, panel, static_cast<int>(h), row, keys);
  });
}

std::vector<LayerKeyMass> KeyMass::results() const {
  std::vector<LayerKeyMass> result;
  for (const LayerSums& layer : layers_) {
    LayerKeyMass& out = result.emplace_back();
    out.layer = layer.layer;
    for (const Sums& s : layer.heads) {
      out.heads.push_back({s.rows, mean(s.share, s.weighted), mean(s.share_positive, s.weighted_positive),
                           mean(s.share_value_weighted, s.value_weighted), mean(s.mass, s.rows),
                           mean(s.mass_positive, s.rows), mean(s.mass_rescaled, s.rows)});
    }
  }
  return result;
}

}  // namespace unchain::analysis
