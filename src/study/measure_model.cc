#include "study/measure_model.h"

#include "formats/json.h"

namespace unchain::study {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

ordered_json to_json(const std::vector<std::optional<double>>& values) {
  ordered_json list = ordered_json::array();
  for (const auto& value : values) list.push_back(to_json(value));
  return list;
}

// By text, then window: a number, or a list of those that the window holds. To as many digits as these need.
ordered_json to_json(const Windows& windows) {
  ordered_json list = ordered_json::array();
  for (const auto& text : windows) {
    ordered_json& of_text = list.emplace_back(ordered_json::array());
    for (const Window& window : text) {
      ordered_json numbers = ordered_json::array();
      for (const double x : window) numbers.push_back(formats::rounded(x, kDigits));
      of_text.push_back(numbers.size() == 1 ? numbers[0] : numbers);
    }
  }
  return list;
}

ordered_json to_json(const std::vector<Windows>& layers) {
  ordered_json list = ordered_json::array();
  for (const Windows& windows : layers) list.push_back(to_json(windows));
  return list;
}

ordered_json to_json(const std::vector<RankLoss>& losses) {
  ordered_json list = ordered_json::array();
  for (const RankLoss& loss : losses) {
    list.push_back({{"fixed", loss.fixed},
                    {"rank", loss.rank ? ordered_json(*loss.rank) : ordered_json()},
                    {"loss_nats", formats::rounded(loss.loss_nats, kDigits)}});
  }
  return list;
}

ordered_json to_json(const analysis::LambdaCurve& curve) {
  ordered_json out = {{"m", curve.m}, {"loss_nats", ordered_json::array()}, {"best_m", curve.best_m}};
  for (const double loss : curve.loss) out["loss_nats"].push_back(formats::rounded(loss, kDigits));
  out["best_loss_nats"] = formats::rounded(curve.best_loss, kDigits);
  return out;
}

ordered_json to_json(const RunCurves& curves) {
  ordered_json out = {{"loss_nats", curves.loss_nats},
                      {"rank_of_a1", to_json(curves.positive)},
                      {"rank_of_a2", to_json(curves.noise)},
                      {"rows_of_a1", to_json(curves.positive_rows)},
                      {"rows_of_a2", to_json(curves.noise_rows)}};
  if (!curves.lambda) return out;
  out["lambda"] = to_json(curves.lambda->model);
  for (const analysis::LayerCurves& layer : curves.lambda->layers) {
    ordered_json& own = out["lambda_by_layer"].emplace_back(to_json(layer.layer_curve));
    own["layer"] = layer.layer;
    for (const analysis::LambdaCurve& head : layer.heads) own["heads"].push_back(to_json(head));
  }
  return out;
}

}  // namespace

ordered_json to_json(const Measures& measures) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, measured] : measures)
    out[name] = {{"value", to_json(measured.value)}, {"windows", to_json(measured.windows)}};
  return out;
}

ordered_json to_json(const std::vector<HessianPoint>& points) {
  const auto share = [](const analysis::HessianShare& of) {
    return ordered_json{{"mean", of.mean}, {"error", of.error}};
  };
  const auto values = [](const std::vector<analysis::HessianValue>& ends) {
    ordered_json list = ordered_json::array();
    for (const analysis::HessianValue& end : ends)
      list.push_back(
          {{"value", formats::rounded(end.value, kDigits)}, {"residual", formats::rounded(end.residual, kDigits)}});
    return list;
  };
  ordered_json list = ordered_json::array();
  for (const HessianPoint& point : points) {
    const analysis::HessianSpectrum& spectrum = point.spectrum;
    list.push_back({{"step", point.step},
                    {"negative_share", share(spectrum.negative_share)},
                    {"zero_share", share(spectrum.zero_share)},
                    {"negative_weight", share(spectrum.negative_weight)},
                    {"zero_band", spectrum.zero_band},
                    {"step_error", spectrum.step_error},
                    {"lowest", values(spectrum.lowest)},
                    {"highest", values(spectrum.highest)}});
  }
  return list;
}

// Accuracy and error by sample, then length, depth and question.
void keep_answers(Measures& measures, const std::vector<eval::NeedleTask>& tasks, const eval::NeedleResult& result) {
  Measured right, wrong;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const std::vector<eval::NeedleSample>& samples = result.cells[t].samples;
    right.windows.resize(std::max(right.windows.size(), samples.size()));
    for (size_t s = 0; s < samples.size(); ++s)
      for (const eval::NeedleAnswer& answer : samples[s].answers)
        right.windows[s].push_back({answer.right ? 1.0 : 0.0});
  }
  wrong = right;
  for (auto& sample : wrong.windows)
    for (Window& answer : sample) answer[0] = 1 - answer[0];
  right.value = result.accuracy.value();
  wrong.value = 1 - result.accuracy.value();
  measures["needle_accuracy"] = std::move(right);
  measures["needle_error"] = std::move(wrong);
}

// Rung by rung; where there is but one, as in runs that count, attention is measured too.
ordered_json ask_rungs(const MeasureInputs& in, const tokenizer::Tokenizer& tokenizer, model::Trainable* trainable,
                       const std::vector<eval::NeedleOptions>& needle, Measures& measures) {
  ordered_json rungs = ordered_json::array();
  for (const eval::NeedleOptions& options : needle) {
    const text::Haystack haystack;
    const auto tasks = eval::plan_needles(tokenizer, haystack, options);
    const eval::NeedleResult result = eval::ask_needles(in.model, tokenizer, options.form, tasks);
    const auto interval = eval::wilson_interval(result.accuracy);
    double attention = 0;
    int64_t answers = 0;
    ordered_json cells = ordered_json::array();
    for (const eval::NeedleCell& cell : result.cells) {
      cells.push_back(
          {{"length", cell.length}, {"depth", cell.depth}, {"right", cell.first.right}, {"asked", cell.first.asked}});
      for (const eval::NeedleSample& sample : cell.samples)
        for (const eval::NeedleAnswer& answer : sample.answers) {
          attention += eval::mean_attention(answer);
          ++answers;
        }
    }
    ordered_json& rung =
        rungs.emplace_back(ordered_json{{"right", result.accuracy.right},
                                        {"asked", result.accuracy.asked},
                                        {"accuracy", result.accuracy.value()},
                                        {"low", interval.low},
                                        {"high", interval.high},
                                        {"chance", 1 / static_cast<double>(options.needles)},
                                        {"attention_on_answer", attention / static_cast<double>(answers)},
                                        {"cells", cells}});
    if (needle.size() > 1) continue;
    measure_needles(measures, trainable, in, tokenizer, options.form, tasks, result);
    keep_answers(measures, tasks, result);
    const NoiseAccuracy accuracy = accuracy_by_layer(in, tokenizer, options.form, tasks);
    rung["accuracy_with_noise"] = to_json(accuracy.with);
    rung["accuracy_without_noise"] = to_json(accuracy.without);
  }
  return rungs;
}

ordered_json measure_model(const MeasureInputs& in, model::Trainable* trainable, Measures& measures) {
  measure_predictions(measures, in);
  const LayerRanks ranks = measure_maps(measures, in);
  const analysis::MeanMaps calibration = mean_maps(in);
  measure_terms(measures, in, calibration);
  const LayerLambdas lambdas = measure_unclaimed(measures, trainable, in);
  if (trainable) measure_heads(measures, *trainable, in);
  const LayerProfile profile = profile_layers(in);
  return {{"layers",
           {{"gain_nats", to_json(profile.gain)},
            {"random_gain_nats", to_json(profile.random_gain)},
            {"gain_windows", to_json(profile.gain_windows)},
            {"sensitivity_nats", to_json(profile.sensitivity)},
            {"sensitivity_windows", to_json(profile.sensitivity_windows)},
            {"a1_rank", to_json(ranks.positive)},
            {"a2_rank", to_json(ranks.noise)},
            {"lambda", to_json(lambdas.used)},
            {"lambda_projected", to_json(lambdas.projected)}}},
          {"curves", to_json(measure_curves(in, calibration))}};
}

}  // namespace unchain::study
