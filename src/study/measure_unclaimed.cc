// What is measured though no claim asks for it: src/study/measure.h.
#include <algorithm>
#include <cmath>

#include "analysis/key_tokens.h"
#include "analysis/lambda_optimum.h"
#include "analysis/outliers.h"
#include "model/context.h"
#include "study/measure.h"
#include "study/measure_windows.h"

namespace unchain::study {
namespace {

LayerLambdas measure_lambda(Measures& measures, const MeasureInputs& in) {
  const size_t count = in.model->layers.size();
  LayerLambdas layers{std::vector<std::optional<double>>(count), std::vector<std::optional<double>>(count)};
  for (const char* name : {"lambda_used", "lambda_projected", "terms_cosine"}) measures[name];
  if (!has_noise(*in.model)) return layers;
  analysis::LambdaOptimum optimum;
  observe(in, all_windows(in, room(in), in.keys.windows), optimum, [&](const Ids& ids) { optimum.begin_window(ids); });
  std::vector<double> used, projected, cosines;
  for (const analysis::LayerLambda& layer : optimum.results()) {
    const auto at = static_cast<size_t>(layer.layer);
    // A λ that the heads of a layer share has one projection, of all of them together.
    using enum attention::LambdaRule;
    const attention::LambdaRule rule = in.model->layers[at].attention.family.lambda;
    const bool own = rule == head || rule == token;
    std::vector<double> of_layer, projected_of_layer;
    for (const analysis::LambdaProjection& each : own ? layer.heads : std::vector{layer.all}) {
      of_layer.push_back(each.lambda);
      if (each.optimum) projected_of_layer.push_back(*each.optimum);
      if (each.cosine) cosines.push_back(*each.cosine);
    }
    layers.used[at] = mean_of(of_layer);
    layers.projected[at] = mean_of(projected_of_layer);
    used.insert(used.end(), of_layer.begin(), of_layer.end());
    projected.insert(projected.end(), projected_of_layer.begin(), projected_of_layer.end());
  }
  measures["lambda_used"].value = mean_of(used);
  measures["lambda_projected"].value = mean_of(projected);
  measures["terms_cosine"].value = mean_of(cosines);
  return layers;
}

void measure_outliers(Measures& measures, const MeasureInputs& in, model::Context& context) {
  const int64_t count = room(in), most = in.keys.windows;
  std::vector<double> hidden, logits;
  for (const Ids& ids : all_windows(in, count, most)) {
    const analysis::Outliers found = analysis::activation_outliers(context, ids);
    double largest = 0;
    for (const analysis::Outlier& layer : found.hidden) largest = std::max(largest, layer.ratio());
    hidden.push_back(largest);
    logits.push_back(found.logits.ratio());
  }
  for (const auto& [name, ratios] : {std::pair{"hidden_outlier_ratio", hidden}, {"logit_outlier_ratio", logits}}) {
    // Where most activations are 0 there is nothing to set the largest against.
    const bool finite = std::ranges::all_of(ratios, [](double ratio) { return std::isfinite(ratio); });
    measures[name] = finite ? Measured{mean_of(ratios), by_text(in, count, most, singles(ratios))} : Measured{};
  }
}

void measure_loss_keys(Measures& measures, model::Trainable& trainable, const MeasureInputs& in,
                       model::Context& context) {
  const int64_t count = room(in), most = in.keys.windows;
  std::vector<double> windows;
  for (const Ids& ids : all_windows(in, count, most)) {
    analysis::KeyMass mass(analysis::column_keys(analysis::loss_columns(trainable, ids)), false);
    const attention::Taps taps{{&mass}, {}};
    context.truncate(0);
    context.extend(ids, 1, &taps);
    // A window of fewer than 21 tokens, 20 of which are predicted, has no column among its top 5 %.
    if (const auto share = mean_over_heads(mass.results(), &analysis::HeadKeyMass::share)) windows.push_back(*share);
  }
  measures["loss_key_mass"] = {mean_of(windows), {}};
}

}  // namespace

LayerLambdas measure_unclaimed(Measures& measures, model::Trainable* trainable, const MeasureInputs& in) {
  LayerLambdas layers = measure_lambda(measures, in);
  model::Context context(in.model, in.context);
  measure_outliers(measures, in, context);
  measures["loss_key_mass"];  // without a value where there are no gradients
  if (trainable) measure_loss_keys(measures, *trainable, in, context);
  return layers;
}

}  // namespace unchain::study
