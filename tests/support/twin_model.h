// One model of the family twice, with the same weights: as it learns, and as it is read, where editors can change its
// maps. Differences of the second's loss are what gradients of the first are held against.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/context.h"
#include "model/model_file.h"
#include "support/family_model.h"
#include "support/temporary_folder.h"

namespace unchain::test {

// A random text, every seventh token of which is scored, with a weight of its own.
struct ScoredText {
  std::vector<int32_t> ids, targets;
  std::vector<float> weights;

  explicit ScoredText(int64_t tokens, uint64_t seed = 7) {
    Rng rng(seed);
    for (int64_t t = 0; t < tokens; ++t) {
      ids.push_back(static_cast<int32_t>(rng.below(50)));
      targets.push_back(t % 7 == 3 ? static_cast<int32_t>(rng.below(50)) : -1);
      weights.push_back(0.5f + static_cast<float>(rng.uniform()));
    }
  }
  model::TrainRows rows() const { return {1, static_cast<int64_t>(ids.size()), ids, targets, {}, weights}; }
};

struct TwinModel {
  model::Trainable learns;
  std::shared_ptr<const model::Transformer> loaded, reads;

  // `change` may set weights before the second is made.
  explicit TwinModel(const model::Config& config, const std::function<void(model::Trainable&)>& change = {})
      : learns(config, DType::f32, 1) {
    stir(learns);
    if (change) change(learns);
    TemporaryFolder folder;
    write_folder(folder.path() / "m", learns);
    loaded = model::load(folder.path() / "m", DType::f32);
    // A file of this architecture has no place for windows.
    const auto windowed = std::make_shared<model::Transformer>(*loaded);
    for (size_t i = 0; i < config.layers.size(); ++i)
      windowed->layers[i].attention.kernel.window = config.layers[i].window;
    reads = windowed;
  }

  double loss(const ScoredText& text, attention::Editor* editor = nullptr,
              attention::Observer* observer = nullptr) const {
    attention::Taps taps;
    if (editor) taps.editors = {editor};
    if (observer) taps.observers = {observer};
    model::Context context(reads, static_cast<int64_t>(text.ids.size()));
    context.extend(text.ids, -1, &taps);
    std::vector<double> nll(text.ids.size());
    context.nll(nll, text.targets);
    double sum = 0;
    for (size_t i = 0; i < nll.size(); ++i) sum += nll[i] * static_cast<double>(text.weights[i]);
    return sum;
  }
};

// The slope of loss(step) at 0: central differences over steps h and h/2 with Richardson's combination, whose error is
// of order h⁴. Losses off by δ make it off by up to (4·2δ/h + δ/h)/3 = 3δ/h.
inline double slope_at_zero(const std::function<double(double)>& loss, double h) {
  const auto central = [&](double step) { return (loss(step) - loss(-step)) / (2 * step); };
  return (4 * central(h / 2) - central(h)) / 3;
}

// Scales one head's output on its way to W_O.
struct ScaleOutput : attention::Editor {
  bool wants(int l) const override { return l == layer; }
  void edit_outputs(attention::OutputPanel& panel) override {
    for (int64_t r = 0; r < panel.rows; ++r) {
      float* output = panel.output + r * panel.row_stride + head * panel.value_width;
      for (int64_t w = 0; w < panel.value_width; ++w) output[w] *= factor;
    }
  }
  int layer = 0, head = 0;
  float factor = 1;
};

struct Slope {
  double slope = 0;
  double loss = 0;  // near it
};

// The slope of the loss in an editor's `factor` at 1, by slope_at_zero().
template <class Scale>
Slope slope_in_factor(const TwinModel& twin, const ScoredText& text, Scale& scale, double h) {
  Slope found;
  found.slope = slope_at_zero(
      [&](double step) {
        scale.factor = static_cast<float>(1 + step);
        return found.loss = twin.loss(text, &scale);
      },
      h);
  return found;
}

// What the f32 arithmetic of such a model does to a loss of this size: about 16 roundings, 16·2⁻²⁴ = 1e-6 of it.
inline double loss_rounding(double loss) {
  return 1e-6 * std::abs(loss);
}

}  // namespace unchain::test
