// What the two terms of attention do, and how much each head matters: src/study/measure.h.
#include <algorithm>

#include "analysis/background.h"
#include "analysis/functional_rank.h"
#include "analysis/head_importance.h"
#include "analysis/layer_gain.h"
#include "analysis/mean_map.h"
#include "analysis/residual.h"
#include "base/check.h"
#include "model/context.h"
#include "study/measure.h"
#include "study/measure_windows.h"

namespace unchain::study {
namespace {

using analysis::MapPart;
using analysis::MapValue;

// The mean over all heads of those that have a value; by window the head's squared distances from the means `by`, and
// from the mean of all.
Measured explained(const MeasureInputs& in, const std::vector<analysis::BackgroundLayer>& layers, MapValue value,
                   std::optional<double> analysis::Explained::*by, double analysis::ExplainedWindow::*residual) {
  std::vector<double> values;
  std::vector<Window> windows;
  for (const analysis::BackgroundLayer& layer : layers) {
    for (const analysis::BackgroundHead& head : layer.heads) {
      const analysis::Explained& found = head[value];
      if (!(found.*by)) continue;
      values.push_back(*(found.*by));
      windows.resize(found.windows.size());
      for (size_t w = 0; w < windows.size(); ++w)
        windows[w].insert(windows[w].end(), {found.windows[w].*residual, found.windows[w].variation});
    }
  }
  return {mean_of(values), windows.empty() ? Windows() : by_text(in, room(in), in.keys.windows, windows)};
}

// By window, what each head means to it.
std::vector<Window> by_window(const analysis::HeadEffects& effects) {
  std::vector<Window> windows;
  for (const auto& layer : effects.values) {
    for (const std::vector<double>& head : layer) {
      windows.resize(head.size());
      for (size_t w = 0; w < head.size(); ++w) windows[w].push_back(head[w]);
    }
  }
  return windows;
}

// Empty if a window has none.
Windows by_text_if_all(const MeasureInputs& in, const std::vector<std::optional<double>>& values) {
  std::vector<Window> windows;
  for (const auto& value : values)
    if (value) windows.push_back({*value});
  return windows.size() == values.size() ? by_text(in, room(in) + 1, in.keys.windows, windows) : Windows();
}

void measure_background(Measures& measures, const MeasureInputs& in, const analysis::MeanMaps& calibration) {
  analysis::Background background(calibration);
  observe(in, all_windows(in, room(in), in.keys.windows), background, {}, [&] { background.end_window(); });
  const auto layers = background.results();
  using analysis::Explained, analysis::ExplainedWindow;
  const auto by_place = [&](MapValue value) {
    return explained(in, layers, value, &Explained::place, &ExplainedWindow::place);
  };
  measures["a1_explained_by_place"] = by_place(MapValue::positive);
  measures["a2_explained_by_place"] = by_place(MapValue::noise);
  measures["log_a2_explained_by_place"] = by_place(MapValue::log_noise);
  measures["a2_explained_by_key"] = explained(in, layers, MapValue::noise, &Explained::key, &ExplainedWindow::key);
}

// The loss with all maps of one part replaced: by their own best map of rank kFixedRank, by one that is fixed, and by
// fixed_diff's rows.
void measure_replacement(Measures& measures, const MeasureInputs& in, const analysis::MeanMaps& calibration) {
  const auto windows = all_windows(in, room(in) + 1, in.keys.windows);
  const bool noise = has_noise(*in.model);
  for (const auto& [part, name] : {std::pair{MapPart::positive, "a1"}, std::pair{MapPart::noise, "a2"}}) {
    const std::string fixed = fmt::format("loss_fixed_{}_nats", name), own = fmt::format("loss_masked_{}_nats", name),
                      rows = fmt::format("loss_rows_{}_nats", name);
    measures[fixed] = measures[own] = measures[rows] = {};
    if (part == MapPart::noise && !noise) continue;
    analysis::FunctionalRankOptions options;
    options.part = part;
    options.methods = {analysis::RankMethod::fitted, analysis::RankMethod::mean, analysis::RankMethod::fixed_rows};
    options.ranks = {kFixedRank};
    options.divide = {true};  // as `calibrated` does
    const auto result = analysis::functional_rank(in.model, windows, &calibration, options);
    const auto set = [&](const std::string& measure, const std::vector<double>& nll) {
      measures[measure] = {mean_of(nll), by_text(in, room(in) + 1, in.keys.windows, singles(nll))};
    };
    set("loss_full_maps_nats", result.nll_nats);
    for (const analysis::FunctionalRankPoint& point : result.points) {
      if (!point.rank) continue;
      using Method = analysis::RankMethod;
      set(point.method == Method::mean ? fixed : point.method == Method::fixed_rows ? rows : own, point.nll_nats);
    }
  }
}

void measure_writes(Measures& measures, const MeasureInputs& in) {
  analysis::ResidualWrites writes(in.seed);
  observe(in, all_windows(in, room(in), in.keys.windows), writes, {}, [&] { writes.end_window(); });
  const std::vector<analysis::LayerWrites> layers = writes.results();
  for (const auto& [name, term] : {std::pair{"a1_removes_share", &analysis::LayerWrites::positive},
                                   std::pair{"noise_removes_share", &analysis::LayerWrites::noise},
                                   std::pair{"random_removes_share", &analysis::LayerWrites::random}}) {
    std::vector<double> means;
    std::vector<std::vector<double>> windows;  // [window][layer]
    for (const analysis::LayerWrites& layer : layers) {
      const analysis::WriteMeasures& write = layer.*term;
      if (!layer.noise_term || !write.removed) continue;
      means.push_back(write.removed->mean);
      windows.resize(write.removed_by_window.size());
      for (size_t w = 0; w < windows.size(); ++w)
        if (write.removed_by_window[w]) windows[w].push_back(*write.removed_by_window[w]);
    }
    std::vector<double> of_windows;
    for (const auto& layers_of : windows)
      if (const auto mean = mean_of(layers_of)) of_windows.push_back(*mean);
    measures[name] = {mean_of(means), {}};
    if (!of_windows.empty() && of_windows.size() == windows.size())
      measures[name].windows = by_text(in, room(in), in.keys.windows, singles(of_windows));
  }
}

}  // namespace

bool has_noise(const model::Transformer& model) {
  return std::any_of(model.layers.begin(), model.layers.end(),
                     [](const model::Layer& layer) { return layer.attention.family.has_noise(); });
}

analysis::MeanMaps mean_maps(const MeasureInputs& in) {
  analysis::MeanMaps maps(in.context, {}, true);
  observe(in, even_windows(in.calibration, in.bos, room(in), in.keys.calibration_windows, "training text"), maps);
  return maps;
}

void measure_terms(Measures& measures, const MeasureInputs& in, const analysis::MeanMaps& calibration) {
  measure_background(measures, in, calibration);
  measure_replacement(measures, in, calibration);
  measure_writes(measures, in);
}

void measure_heads(Measures& measures, model::Trainable& trainable, const MeasureInputs& in) {
  const auto windows = all_windows(in, room(in) + 1, in.keys.windows);
  const auto set = [&](const char* measure, const analysis::HeadEffects& effects) {
    const Windows kept = by_text(in, room(in) + 1, in.keys.windows, by_window(effects));
    measures[measure] = {over_windows(OverWindows::gini, kept), kept};
  };
  set("head_importance_gini", analysis::gate_importance(trainable, windows));
  set("head_ablation_gini", analysis::ablation(in.model, windows));
}

LayerProfile profile_layers(const MeasureInputs& in) {
  LayerProfile profile;
  profile.gain.resize(in.model->layers.size());
  profile.random_gain.resize(in.model->layers.size());
  analysis::WindowLoss loss(in.model, all_windows(in, room(in) + 1, in.keys.windows));
  if (has_noise(*in.model)) {
    profile.gain_windows.resize(profile.gain.size());
    for (const analysis::LayerGain& layer : analysis::layer_gains(loss, in.seed)) {
      const auto at = static_cast<size_t>(layer.layer);
      profile.gain[at] = layer.gain.mean;
      profile.random_gain[at] = layer.random.mean;
      profile.gain_windows[at] = by_text(in, room(in) + 1, in.keys.windows, singles(layer.gain_by_window));
    }
  }
  for (const analysis::LayerSensitivity& layer : analysis::layer_sensitivity(loss, in.seed)) {
    profile.sensitivity.push_back(layer.rise ? std::optional(layer.rise->mean) : std::nullopt);
    profile.sensitivity_windows.push_back(by_text_if_all(in, layer.rise_by_window));
  }
  return profile;
}

}  // namespace unchain::study
