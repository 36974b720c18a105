#include "analysis/head_importance.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/context.h"

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

// Sets the output of one head of a layer to 0; of none for head −1, so that both losses come from the same arithmetic.
class Silence : public attention::Editor {
 public:
  Silence(int64_t layer, int64_t head) : layer_(layer), head_(head) {}
  bool wants(int layer) const override { return layer == layer_; }
  void edit_outputs(attention::OutputPanel& panel) override {
    for (int64_t r = 0; r < panel.rows && head_ >= 0; ++r)
      std::fill_n(panel.output + r * panel.row_stride + head_ * panel.value_width, panel.value_width, 0.0f);
  }

 private:
  int64_t layer_, head_;
};

double mean_nll(model::Context& context, std::span<const int32_t> window, Silence& silence) {
  const attention::Taps taps{{}, {&silence}};
  const std::span<const int32_t> targets = window.subspan(1);
  std::vector<double> nll(targets.size());
  context.truncate(0);
  context.extend(window.first(targets.size()), -1, &taps);
  context.nll(nll, targets);
  double sum = 0;
  for (const double x : nll) sum += x;
  return sum / static_cast<double>(nll.size());
}

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
  for (const std::vector<int32_t>& window : windows) {
    model::Context context(model, static_cast<int64_t>(window.size()));
    for (size_t layer = 0; layer < model->layers.size(); ++layer) {
      const auto heads = static_cast<size_t>(model->layers[layer].attention.shape.outputs());
      const auto loss_without = [&](int64_t head) {
        Silence silence(static_cast<int64_t>(layer), head);
        return mean_nll(context, window, silence);
      };
      const double whole = loss_without(-1);
      for (size_t h = 0; h < heads; ++h) append(effects, layer, h, loss_without(static_cast<int64_t>(h)) - whole);
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
