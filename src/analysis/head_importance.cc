#include "analysis/head_importance.h"

#include <algorithm>
#include <cmath>

#include "analysis/edits.h"
#include "analysis/window_loss.h"
#include "base/check.h"

namespace unchain::analysis {
namespace {

void check(Windows windows) {
  if (windows.empty()) fail(ErrorCode::usage, "head importance: no window, expected at least one");
  for (const std::vector<int32_t>& window : windows) {
    if (window.size() < 2)
      fail(ErrorCode::usage, "head importance: a window of {} tokens, expected two or more", window.size());
  }
}

// The values of one window more.
void append(HeadEffects& effects, size_t layer, size_t head, double value) {
  auto& layers = effects.values;
  layers.resize(std::max(layers.size(), layer + 1));
  layers[layer].resize(std::max(layers[layer].size(), head + 1));
  layers[layer][head].push_back(value);
}

class GateObserver : public attention::GradientObserver {
 public:
  bool wants_maps(int /*layer*/) const override { return false; }
  void on_gates(int layer, std::span<const double> d_gate) override {
    for (size_t h = 0; h < d_gate.size(); ++h) append(effects, static_cast<size_t>(layer), h, std::abs(d_gate[h]));
  }
  HeadEffects effects;
};

}  // namespace

std::vector<double> HeadEffects::means() const {
  std::vector<double> result;
  for (const auto& layer : values) {
    for (const std::vector<double>& head : layer) {
      double sum = 0;
      for (const double x : head) sum += x;
      result.push_back(sum / static_cast<double>(head.size()));
    }
  }
  return result;
}

HeadEffects gate_importance(model::Trainable& model, Windows windows) {
  check(windows);
  GateObserver gates;
  for (const std::vector<int32_t>& window : windows) {
    const std::span<const int32_t> all(window), targets = all.subspan(1);
    const std::vector<float> weights(targets.size(), 1 / static_cast<float>(targets.size()));
    std::vector<double> nll(targets.size());
    const auto tokens = static_cast<int64_t>(targets.size());
    model.forward_backward(nll, {1, tokens, all.first(targets.size()), targets, {}, weights}, &gates);
  }
  return std::move(gates.effects);
}

HeadEffects ablation(const std::shared_ptr<const model::Transformer>& model, Windows windows) {
  check(windows);
  HeadEffects effects;
  WindowLoss loss(model, {windows.begin(), windows.end()});
  for (size_t w = 0; w < windows.size(); ++w) {
    for (size_t layer = 0; layer < model->layers.size(); ++layer) {
      // A factor of 1 changes nothing, and is there so that both losses come from the same arithmetic.
      const auto loss_with = [&](int head, double factor) {
        ScaleHead scale(*model, factor, {{static_cast<int>(layer)}, {head}});
        return *loss.of_window(w, {{}, {&scale}});
      };
      const double whole = loss_with(0, 1);
      const auto heads = static_cast<int>(model->layers[layer].attention.shape.outputs());
      for (int head = 0; head < heads; ++head)
        append(effects, layer, static_cast<size_t>(head), loss_with(head, 0) - whole);
    }
  }
  return effects;
}

std::optional<double> gini(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  double sum = 0;
  for (const double x : sorted) {
    if (!std::isfinite(x) || x < 0) fail(ErrorCode::usage, "gini: the value {}, expected finite ones from 0 on", x);
    sum += x;
  }
  if (sum == 0) return std::nullopt;
  std::sort(sorted.begin(), sorted.end());
  // Σ_i Σ_j |x_i − x_j| = 2 Σ_i (2i − n + 1) x_i for ascending x_0 … x_{n−1}.
  const auto n = static_cast<double>(sorted.size());
  double differences = 0;
  for (size_t i = 0; i < sorted.size(); ++i) differences += (2 * static_cast<double>(i) - n + 1) * sorted[i];
  return differences / (n * sum);
}

}  // namespace unchain::analysis
