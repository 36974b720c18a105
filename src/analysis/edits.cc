#include "analysis/edits.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"
#include "simd/kernels.h"

namespace unchain::analysis {
namespace {

// A list as it is chosen from, 0 … count − 1 where it is empty.
std::vector<int> numbers_or_all(std::vector<int> numbers, int64_t count) {
  if (numbers.empty()) {
    numbers.resize(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

}  // namespace

ChosenHeads::ChosenHeads(const model::Transformer& model, const Where& where, bool with_noise)
    : heads_(model.layers.size()) {
  const auto layers = static_cast<int>(model.layers.size());
  bool any = false;
  for (const int layer : numbers_or_all(where.layers, layers)) {
    if (layer < 0 || layer >= layers)
      fail(ErrorCode::usage, "edit: layer {}, the model has layers 0 to {}", layer, layers - 1);
    if (with_noise && !model.layers[static_cast<size_t>(layer)].attention.family.has_noise()) {
      if (where.layers.empty()) continue;
      fail(ErrorCode::usage, "edit: layer {} has no noise term and so no λ; choose a layer that has one", layer);
    }
    const int64_t heads = model.layers[static_cast<size_t>(layer)].attention.shape.outputs();
    std::vector<int> chosen = numbers_or_all(where.heads, heads);
    for (const int head : {chosen.front(), chosen.back()}) {
      if (head < 0 || head >= heads)
        fail(ErrorCode::usage, "edit: head {} of layer {}, which has heads 0 to {}", head, layer, heads - 1);
    }
    heads_[static_cast<size_t>(layer)] = std::move(chosen);
    any = true;
  }
  if (!any) fail(ErrorCode::usage, "edit: no layer of the model has a noise term, so there is no λ to change");
}

bool ChosenHeads::has(int layer) const {
  return !heads(layer).empty();
}

const std::vector<int>& ChosenHeads::heads(int layer) const {
  static const std::vector<int> none;
  return layer >= 0 && layer < static_cast<int>(heads_.size()) ? heads_[static_cast<size_t>(layer)] : none;
}

ScaleLambda::ScaleLambda(const model::Transformer& model, double m, const Where& where)
    : chosen_(model, where, true), m_(static_cast<float>(m)) {}

void ScaleLambda::edit_maps(attention::MapPanel& panel) {
  for (const int head : chosen_.heads(panel.layer))
    simd::scale(panel.lambda + head * panel.rows, m_, static_cast<size_t>(panel.rows));
}

KnockOut::KnockOut(const model::Transformer& model, KeySpan keys, std::vector<int64_t> rows, const Where& where)
    : chosen_(model, where), keys_(keys), rows_(std::move(rows)) {
  if (keys.begin < 0 || keys.end < keys.begin)
    fail(ErrorCode::usage, "knock-out: keys {} to {}, expected 0 ≤ begin ≤ end", keys.begin, keys.end);
  std::sort(rows_.begin(), rows_.end());
  if (!rows_.empty() && rows_.front() < 0)
    fail(ErrorCode::usage, "knock-out: query row {}, expected positions from 0", rows_.front());
}

void KnockOut::edit_maps(attention::MapPanel& panel) {
  const int64_t begin = std::min(keys_.begin, panel.keys), end = std::min(keys_.end, panel.keys);
  for (int64_t r = 0; r < panel.rows; ++r) {
    if (!rows_.empty() && !std::binary_search(rows_.begin(), rows_.end(), panel.first_row + r)) continue;
    for (const int head : chosen_.heads(panel.layer)) {
      std::fill(panel.positive_row(head, r) + begin, panel.positive_row(head, r) + end, 0.0f);
      if (panel.noise) std::fill(panel.noise_row(head, r) + begin, panel.noise_row(head, r) + end, 0.0f);
    }
  }
}

ScaleHead::ScaleHead(const model::Transformer& model, double g, const Where& where)
    : chosen_(model, where), g_(static_cast<float>(g)) {}

void ScaleHead::edit_outputs(attention::OutputPanel& panel) {
  for (int64_t r = 0; r < panel.rows; ++r) {
    for (const int head : chosen_.heads(panel.layer)) {
      simd::scale(panel.output + r * panel.row_stride + head * panel.value_width, g_,
                  static_cast<size_t>(panel.value_width));
    }
  }
}

ZeroAttention::ZeroAttention(const model::Transformer& model, int layer) : chosen_(model, {{layer}, {}}) {}

void ZeroAttention::edit_outputs(attention::OutputPanel& panel) {
  for (int64_t r = 0; r < panel.rows; ++r)
    std::fill_n(panel.output + r * panel.row_stride, panel.heads * panel.value_width, 0.0f);
}

RandomChange::RandomChange(const model::Transformer& model, int layer, std::vector<double> norms, uint64_t seed,
                           uint64_t stream)
    : chosen_(model, {{layer}, {}}), norms_(std::move(norms)), seed_(seed), stream_(stream) {
  for (size_t i = 0; i < norms_.size(); ++i) {
    if (!std::isfinite(norms_[i]) || norms_[i] < 0)
      fail(ErrorCode::numeric, "random change: norm {} at position {}, expected a finite one from 0 up", norms_[i], i);
  }
}

void RandomChange::edit_outputs(attention::OutputPanel& panel) {
  if (panel.first_row + panel.rows > static_cast<int64_t>(norms_.size())) {
    fail(ErrorCode::usage, "random change: layer {}, position {}: norms are given for {} positions", panel.layer,
         panel.first_row + panel.rows - 1, norms_.size());
  }
  direction_.resize(static_cast<size_t>(panel.heads * panel.value_width));
  for (int64_t r = 0; r < panel.rows; ++r) {
    const auto position = static_cast<uint64_t>(panel.first_row + r);
    Rng rng(seed_, (stream_ << 32) + position);
    double squares = 0;
    for (double& x : direction_) {
      x = rng.normal();
      squares += x * x;
    }
    const double factor = norms_[position] / std::sqrt(squares);
    float* row = panel.output + r * panel.row_stride;
    for (size_t i = 0; i < direction_.size(); ++i) row[i] += static_cast<float>(factor * direction_[i]);
  }
}

}  // namespace unchain::analysis
