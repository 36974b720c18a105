#include "study/runner.h"

#include <cmath>
#include <cstdlib>

#include "analysis/dynamics.h"
#include "base/check.h"
#include "base/file.h"
#include "dist/comm.h"
#include "formats/json.h"
#include "model/model_file.h"
#include "model/trainable.h"
#include "text/corpus.h"
#include "text/token_file.h"
#include "train/checkpoint.h"
#include "train/run.h"

namespace unchain::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kCurvePoints = 50;

// Eight digits, for the many numbers that only ever meet others of their kind.
double rounded(double value) {
  return std::strtod(fmt::format("{:.8g}", value).c_str(), nullptr);
}

// Of what is a number.
struct Mean {
  double sum = 0;
  int64_t count = 0;
  void add(const ordered_json& value) {
    if (!value.is_number()) return;
    sum += value.get<double>();
    ++count;
  }
  ordered_json value() const { return count > 0 ? ordered_json(rounded(sum / static_cast<double>(count))) : nullptr; }
};

std::vector<ordered_json> read_metrics(const fs::path& path) {
  std::vector<ordered_json> lines;
  const std::string text = read_text(path);
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(formats::parse_json(text.substr(begin, end - begin), path.string()));
  }
  return lines;
}

// Means over every so many steps, kCurvePoints or some more in all.
ordered_json curve(const std::vector<ordered_json>& metrics) {
  const auto width = std::max<int64_t>(1, static_cast<int64_t>(metrics.size()) / kCurvePoints);
  ordered_json points = ordered_json::array();
  std::map<std::string, Mean> means;
  std::vector<Mean> lambda;  // by layer
  for (const ordered_json& line : metrics) {
    for (const char* key : {"text_loss_nats", "answer_loss_nats", "gradient_norm"}) means[key].add(line.at(key));
    lambda.resize(line.at("lambda").size());
    for (size_t layer = 0; layer < lambda.size(); ++layer) lambda[layer].add(line["lambda"][layer]);
    if (line["step"].get<int64_t>() % width != 0) continue;
    ordered_json point = {{"tokens", line["tokens"]}};
    for (const auto& [key, mean] : means)
      if (mean.count > 0) point[key] = mean.value();
    for (const Mean& mean : lambda) point["lambda"].push_back(mean.value());
    points.push_back(point);
    means.clear();
    lambda.clear();
  }
  return points;
}

// How the losses ended: whether they still fell, and whether they leapt on the way.
ordered_json ending(const analysis::TrainingDynamics& dynamics) {
  ordered_json out = {{"loss_spikes", dynamics.loss_spikes}};
  if (const auto& ending = dynamics.ending) {
    out["slope_nats"] = ending->slope_nats;
    out["error_nats"] = ending->error_nats;
    out["flat"] = ending->is_flat;
  }
  return out;
}

// Tokens a second over all steps, which are of one size, in however many sittings.
double speed(const std::vector<ordered_json>& metrics) {
  double seconds_a_token = 0;
  for (const ordered_json& line : metrics) seconds_a_token += 1 / line["tokens_per_s"].get<double>();
  return static_cast<double>(metrics.size()) / seconds_a_token;
}

ordered_json to_json(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

ordered_json to_json(const std::vector<std::optional<double>>& values) {
  ordered_json list = ordered_json::array();
  for (const auto& value : values) list.push_back(to_json(value));
  return list;
}

ordered_json to_json(Measures measures) {
  ordered_json out = ordered_json::object();
  for (auto& [name, measured] : measures) {
    for (auto& text : measured.windows)
      for (double& value : text) value = rounded(value);
    out[name] = {{"value", to_json(measured.value)}, {"windows", measured.windows}};
  }
  return out;
}

ordered_json to_json(const std::vector<RankLoss>& losses) {
  ordered_json list = ordered_json::array();
  for (const RankLoss& loss : losses) {
    list.push_back({{"fixed", loss.fixed},
                    {"rank", loss.rank ? ordered_json(*loss.rank) : ordered_json()},
                    {"loss_nats", rounded(loss.loss_nats)}});
  }
  return list;
}

ordered_json to_json(const analysis::LambdaCurve& curve) {
  ordered_json out = {{"m", curve.m}, {"loss_nats", ordered_json::array()}, {"best_m", curve.best_m}};
  for (const double loss : curve.loss) out["loss_nats"].push_back(rounded(loss));
  out["best_loss_nats"] = rounded(curve.best_loss);
  return out;
}

ordered_json to_json(const RunCurves& curves) {
  ordered_json out = {
      {"loss_nats", curves.loss_nats}, {"rank_of_a1", to_json(curves.positive)}, {"rank_of_a2", to_json(curves.noise)}};
  if (!curves.lambda) return out;
  out["lambda"] = to_json(curves.lambda->model);
  for (const analysis::LayerCurves& layer : curves.lambda->layers) {
    out["lambda_by_layer"].push_back(to_json(layer.layer_curve));
    out["lambda_by_layer"].back()["layer"] = layer.layer;
  }
  return out;
}

ordered_json to_json(const std::vector<HessianPoint>& points) {
  const auto share = [](const analysis::HessianShare& of) {
    return ordered_json{{"mean", of.mean}, {"error", of.error}};
  };
  const auto values = [](const std::vector<analysis::HessianValue>& ends) {
    ordered_json list = ordered_json::array();
    for (const analysis::HessianValue& end : ends)
      list.push_back({{"value", rounded(end.value)}, {"residual", rounded(end.residual)}});
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

// Rung by rung; of the last, which alone is asked in runs that count, attention is measured too.
ordered_json ask(const MeasureInputs& in, const tokenizer::Tokenizer& tokenizer, model::Trainable& trainable,
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
    rungs.push_back({{"right", result.accuracy.right},
                     {"asked", result.accuracy.asked},
                     {"accuracy", result.accuracy.value()},
                     {"low", interval.low},
                     {"high", interval.high},
                     {"chance", 1 / static_cast<double>(options.needles)},
                     {"attention_on_answer", attention / static_cast<double>(answers)},
                     {"cells", cells}});
    if (needle.size() == 1) measure_needles(measures, trainable, in, tasks, result);
  }
  return rungs;
}

}  // namespace

// The model that a run left: to read with, and in f32 for gradients.
struct Runner::Trained {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  MeasureInputs in;
  std::unique_ptr<model::Trainable> trainable;

  Trained(const PlannedRun& run, const fs::path& folder) : tokenizer(train::open_vocabulary(run.config)) {
    const model::ModelFile file = model::ModelFile::open(folder);
    const std::string& dtype = run.config.train.dtype;
    in.model = model::load(file, dtype.empty() ? model::default_dtype() : parse_dtype(dtype));
    in.bos = tokenizer->add_bos ? tokenizer->bos : -1;
    in.context = run.config.train.context;
    trainable = std::make_unique<model::Trainable>(file, DType::f32);
  }
};

Runner::Runner(const Description& description, const StudyOptions& options)
    : description_(description), options_(options) {}

const std::vector<int32_t>& Runner::text_of(const std::string& file, const tokenizer::Tokenizer& tokenizer) {
  const auto [at, fresh] = texts_.try_emplace(file);
  if (!fresh) return at->second;
  for (const std::string& document : text::read_documents({file})) {
    const auto ids = tokenizer.encode(document);
    at->second.insert(at->second.end(), ids.begin(), ids.end());
  }
  return at->second;
}

const eval::ChoiceSet& Runner::last_words_of(const std::string& file) {
  const auto [at, fresh] = last_words_.try_emplace(file);
  if (fresh) at->second = eval::read_choices(read_text(file, size_t{64} << 20), file);
  if (!at->second.last_words)
    fail(ErrorCode::usage, "last_words: {} holds questions with choices, expected lines {{\"text\"}}", file);
  return at->second;
}

// "layers" and "curves" of a result.
ordered_json Runner::measure(const PlannedRun& run, Trained& trained, Measures& measures) {
  MeasureInputs& in = trained.in;
  for (const std::string& file : run.config.data.valid) in.texts.push_back(text_of(file, *trained.tokenizer));
  const text::TokenFile seen = text::cached_tokens({run.config.data.train.begin(), run.config.data.train.end()},
                                                   *trained.tokenizer, options_.out / "tokens");
  in.calibration.resize(static_cast<size_t>(seen.tokens()));
  seen.copy(0, in.calibration);
  in.keys = description_.analyses;
  measure_predictions(measures, in);
  const LayerRanks ranks = measure_maps(measures, in);
  const analysis::MeanMaps calibration = mean_maps(in);
  measure_terms(measures, in, calibration);
  measure_heads(measures, *trained.trainable, in);
  if (!run.last_words.empty()) measure_last_words(measures, in, *trained.tokenizer, last_words_of(run.last_words));
  const LayerProfile profile = profile_layers(in);
  return {{"layers",
           {{"gain_nats", to_json(profile.gain)},
            {"sensitivity_nats", to_json(profile.sensitivity)},
            {"a1_rank", to_json(ranks.positive)},
            {"a2_rank", to_json(ranks.noise)}}},
          {"curves", to_json(measure_curves(in, calibration))}};
}

ordered_json Runner::carry_out(const PlannedRun& run, const std::vector<eval::NeedleOptions>& needle,
                               const fs::path& folder, const std::function<void(int64_t step)>& on_step) {
  train::RunOptions options;
  options.out = folder;
  options.resume = true;
  options.machine = options_.machine;
  options.cache = options_.out / "tokens";
  options.stop = options_.stop;
  options.on_note = options_.on_note;
  options.on_step = [&](const ordered_json& metrics) { on_step(metrics["step"]); };
  int64_t parameters = 0, embeddings = 0;
  options.on_start = [&](const model::Config& config) {
    parameters = model::parameter_count(config);
    embeddings = config.vocabulary * config.width * (config.tied ? 1 : 2);
  };
  const train::RunResult trained = train::run(run.config, options, *dist::alone());
  if (trained.stopped) return nullptr;
  Trained model(run, folder / "model");
  const fs::path log = folder / "metrics.jsonl";
  const auto metrics = read_metrics(log);
  Measures measures;
  const ordered_json answers = ask(model.in, *model.tokenizer, *model.trainable, needle, measures);
  const ordered_json pictures = measure(run, model, measures);
  std::vector<HessianPoint> hessian;
  if (run.hessian) hessian = measure_hessian(measures, train::checkpoints(folder), model.in);
  ordered_json result = {{"parameters", parameters},
                         {"parameters_without_embeddings", parameters - embeddings},
                         {"tokens", trained.tokens},
                         {"tokens_per_s", speed(metrics)},
                         {"loss_nats", trained.loss_nats},
                         {"perplexity", trained.perplexity},
                         {"bits_per_byte", trained.bits_per_byte},
                         {"needle", answers},
                         {"measures", to_json(measures)},
                         {"layers", pictures["layers"]},
                         {"curves", pictures["curves"]},
                         {"curve", curve(metrics)},
                         {"ending", ending(analysis::training_dynamics(read_text(log), log.string()))}};
  if (run.hessian) result["hessian"] = to_json(hessian);
  return result;
}

}  // namespace unchain::study
