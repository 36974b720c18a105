#include "study/runner.h"

#include <chrono>
#include <cmath>

#include "analysis/dynamics.h"
#include "base/check.h"
#include "base/file.h"
#include "dist/comm.h"
#include "formats/json.h"
#include "model/model_file.h"
#include "model/trainable.h"
#include "study/measure_model.h"
#include "text/corpus.h"
#include "text/token_file.h"
#include "train/checkpoint.h"
#include "train/run.h"

namespace unchain::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kCurvePoints = 50;

// Of what is a number.
struct Mean {
  double sum = 0;
  int64_t count = 0;
  void add(const ordered_json& value) {
    if (!value.is_number()) return;
    sum += value.get<double>();
    ++count;
  }
  ordered_json value() const {
    return count > 0 ? ordered_json(formats::rounded(sum / static_cast<double>(count), kDigits)) : nullptr;
  }
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
  }
  return out;
}

// Tokens a second over all steps, which are of one size, in however many sittings.
double speed(const std::vector<ordered_json>& metrics) {
  double seconds_a_token = 0;
  for (const ordered_json& line : metrics) seconds_a_token += 1 / line["tokens_per_s"].get<double>();
  return static_cast<double>(metrics.size()) / seconds_a_token;
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
  ordered_json pictures = measure_model(in, trained.trainable.get(), measures);
  if (!run.last_words.empty()) measure_last_words(measures, in, *trained.tokenizer, last_words_of(run.last_words));
  return pictures;
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
  const auto begin = std::chrono::steady_clock::now();
  Trained model(run, folder / "model");
  const fs::path log = folder / "metrics.jsonl";
  const auto metrics = read_metrics(log);
  Measures measures;
  const ordered_json answers = ask_rungs(model.in, *model.tokenizer, model.trainable.get(), needle, measures);
  const ordered_json pictures = measure(run, model, measures);
  std::vector<HessianPoint> hessian;
  if (run.hessian) hessian = measure_hessian(measures, train::checkpoints(folder), model.in);
  const std::chrono::duration<double> analyses = std::chrono::steady_clock::now() - begin;
  ordered_json result = {{"parameters", parameters},
                         {"parameters_without_embeddings", parameters - embeddings},
                         {"tokens", trained.tokens},
                         {"tokens_per_s", speed(metrics)},
                         {"analysis_seconds", analyses.count()},
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
