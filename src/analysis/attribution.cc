#include "analysis/attribution.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace unchain::analysis {
namespace {

// Keeps one row of every head.
class RowObserver : public attention::GradientObserver {
 public:
  explicit RowObserver(int64_t row) : row_(row) {}

  void on_maps(const attention::GradientPanel& panel) override {
    const attention::MapPanel& maps = panel.maps;
    const int64_t r = row_ - maps.first_row;
    if (r < 0 || r >= maps.rows) return;
    LayerAttribution layer{maps.layer, maps.first_key(r), {}};
    std::vector<float> p(static_cast<size_t>(maps.keys));
    for (int h = 0; h < maps.heads; ++h) {
      maps.signed_row(h, r, p.data());
      std::vector<double>& head = layer.heads.emplace_back(static_cast<size_t>(row_ + 1));
      for (size_t j = 0; j < head.size(); ++j)
        head[j] = static_cast<double>(p[j]) * static_cast<double>(panel.d_row(h, r)[j]);
    }
    layers.push_back(std::move(layer));
  }

  std::vector<LayerAttribution> layers;

 private:
  int64_t row_;
};

std::optional<DirectedShare> directed(std::span<const std::vector<double>> heads, int64_t first_key, TokenSpan keys) {
  const int64_t row_keys = heads.empty() ? 0 : static_cast<int64_t>(heads[0].size());
  if (keys.first < 0 || keys.count < 1 || keys.end() > row_keys) {
    fail(ErrorCode::usage, "attribution: a span of {} keys from {} on, expected at least one, within the {} of the row",
         keys.count, keys.first, row_keys);
  }
  double on_span = 0, all = 0;
  for (const std::vector<double>& head : heads) {
    for (int64_t j = 0; j < row_keys; ++j) {
      const double size = std::abs(head[static_cast<size_t>(j)]);
      all += size;
      if (keys.contains(j)) on_span += size;
    }
  }
  if (all == 0) return std::nullopt;
  const int64_t seen = std::max<int64_t>(0, keys.end() - std::max(keys.first, first_key));
  return DirectedShare{on_span / all, static_cast<double>(seen) / static_cast<double>(row_keys - first_key)};
}

}  // namespace

std::vector<LayerAttribution> attribute(model::Trainable& model, std::span<const int32_t> prompt, int32_t answer) {
  if (prompt.empty()) fail(ErrorCode::usage, "attribution: an empty prompt, expected at least one token");
  const auto tokens = static_cast<int64_t>(prompt.size());
  std::vector<int32_t> targets(prompt.size(), -1);
  targets.back() = answer;
  std::vector<double> nll(prompt.size());
  RowObserver row(tokens - 1);
  model.forward_backward(nll, {1, tokens, prompt, targets, {}, {}}, &row);
  std::reverse(row.layers.begin(), row.layers.end());  // backward began with the last
  return std::move(row.layers);
}

std::optional<DirectedShare> directed_share(const LayerAttribution& layer, TokenSpan keys) {
  return directed(layer.heads, layer.first_key, keys);
}

std::optional<DirectedShare> directed_share(const LayerAttribution& layer, int head, TokenSpan keys) {
  if (head < 0 || static_cast<size_t>(head) >= layer.heads.size())
    fail(ErrorCode::usage, "attribution: head {} of layer {}, which has {}", head, layer.layer, layer.heads.size());
  return directed(std::span(layer.heads).subspan(static_cast<size_t>(head), 1), layer.first_key, keys);
}

}  // namespace unchain::analysis
