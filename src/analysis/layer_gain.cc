#include "analysis/layer_gain.h"

#include <cmath>
#include <map>

#include "analysis/edits.h"

namespace unchain::analysis {
namespace {

// Keeps the heads' outputs [T, O·W] of one layer, or of all.
class OutputRecorder : public attention::Observer {
 public:
  explicit OutputRecorder(std::optional<int> layer) : layer_(layer) {}
  bool wants(int layer) const override { return !layer_ || layer == *layer_; }
  void on_maps(const attention::MapPanel& /*panel*/) override {}
  void on_outputs(const attention::OutputPanel& panel) override {
    std::vector<float>& rows = outputs_[panel.layer];
    if (panel.first_row == 0) rows.clear();
    for (int64_t r = 0; r < panel.rows; ++r) {
      const float* row = panel.output + r * panel.row_stride;
      rows.insert(rows.end(), row, row + panel.heads * panel.value_width);
    }
  }
  const std::vector<float>& outputs(int layer) const { return outputs_.at(layer); }

 private:
  std::optional<int> layer_;
  std::map<int, std::vector<float>> outputs_;
};

// ‖b_t − a_t‖ of each row, and the mean of it over ‖a_t‖, of rows that are not 0.
struct Change {
  std::vector<double> norms;
  double relative = 0;
};

Change change_of(const std::vector<float>& a, const std::vector<float>& b, size_t width) {
  Change change;
  double counted = 0;
  for (size_t at = 0; at < a.size(); at += width) {
    double difference = 0, squares = 0;
    for (size_t i = at; i < at + width; ++i) {
      const double before = a[i], after = b[i];
      difference += (after - before) * (after - before);
      squares += before * before;
    }
    change.norms.push_back(std::sqrt(difference));
    if (squares == 0) continue;
    change.relative += std::sqrt(difference / squares);
    ++counted;
  }
  if (counted > 0) change.relative /= counted;
  return change;
}

using Windows = std::vector<std::optional<double>>;

}  // namespace

std::vector<LayerGain> layer_gains(WindowLoss& loss, uint64_t seed) {
  const model::Transformer& model = loss.model();
  const ChosenHeads with_noise(model, {}, true);
  const size_t layers = model.layers.size();
  std::vector<Windows> gain(layers), random(layers), excess(layers), relative(layers);
  for (size_t w = 0; w < loss.windows(); ++w) {
    OutputRecorder before(std::nullopt);
    const double plain = *loss.of_window(w, {{&before}, {}});
    for (size_t l = 0; l < layers; ++l) {
      const int layer = static_cast<int>(l);
      if (!with_noise.has(layer)) continue;
      OutputRecorder after(layer);
      ScaleLambda zero(model, 0, {{layer}, {}});
      const double without = *loss.of_window(w, {{&after}, {&zero}});
      // The layers below are as they were, so this is the change of this layer's outputs and of nothing else.
      const auto width = static_cast<size_t>(model.layers[l].attention.shape.output_width());
      Change change = change_of(before.outputs(layer), after.outputs(layer), width);
      RandomChange control(model, layer, std::move(change.norms), seed, w);
      const double disturbed = *loss.of_window(w, {{}, {&control}});
      gain[l].emplace_back(without - plain);
      random[l].emplace_back(disturbed - plain);
      excess[l].emplace_back(without - disturbed);
      relative[l].emplace_back(change.relative);
    }
  }
  Bootstrap bootstrap(seed);
  std::vector<LayerGain> gains;
  for (size_t l = 0; l < layers; ++l) {
    if (gain[l].empty()) continue;
    gains.push_back({static_cast<int>(l),
                     *bootstrap.summarise(gain[l]),
                     *bootstrap.summarise(random[l]),
                     *bootstrap.summarise(excess[l]),
                     *bootstrap.summarise(relative[l]),
                     {}});
    for (const auto& of_window : gain[l]) gains.back().gain_by_window.push_back(*of_window);
  }
  return gains;
}

std::vector<LayerSensitivity> layer_sensitivity(WindowLoss& loss, uint64_t seed) {
  const size_t layers = loss.model().layers.size();
  std::vector<LayerSensitivity> result(layers);
  for (size_t w = 0; w < loss.windows(); ++w) {
    const std::optional<double> plain = loss.of_window(w, {}, Scored::induction);
    for (size_t l = 0; l < layers; ++l) {
      std::optional<double>& rise = result[l].rise_by_window.emplace_back();
      if (!plain) continue;
      ZeroAttention zero(loss.model(), static_cast<int>(l));
      rise = *loss.of_window(w, {{}, {&zero}}, Scored::induction) - *plain;
    }
  }
  Bootstrap bootstrap(seed);
  for (LayerSensitivity& layer : result) layer.rise = bootstrap.summarise(layer.rise_by_window);
  return result;
}

}  // namespace unchain::analysis
