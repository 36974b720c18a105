#include "study/study.h"

#include <cmath>
#include <limits>
#include <map>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "dist/comm.h"
#include "formats/json.h"
#include "model/model_file.h"
#include "model/trainable.h"
#include "study/measure.h"
#include "text/corpus.h"
#include "text/token_file.h"
#include "text/vocabulary.h"
#include "train/run.h"

namespace unchain::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kCurvePoints = 100;

uint64_t hash_file(const fs::path& path) {
  const MappedFile file = MappedFile::open(path);
  const auto bytes = file.bytes();
  return hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

ordered_json to_json(const eval::NeedleOptions& needle) {
  return {{"form", text::to_string(needle.form)},
          {"lengths", needle.lengths},
          {"depths", needle.depths},
          {"needles", needle.needles},
          {"queries", needle.queries},
          {"samples", needle.samples},
          {"seed", needle.seed}};
}

ordered_json to_json(const AnalysisKeys& keys) {
  return {{"windows", keys.windows},
          {"loss_windows", keys.loss_windows},
          {"calibration_windows", keys.calibration_windows}};
}

std::vector<ordered_json> read_metrics(const fs::path& path) {
  std::vector<ordered_json> lines;
  const std::string text = read_text(path);
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    lines.push_back(formats::parse_json(text.substr(begin, end - begin), path.string()));
  }
  return lines;
}

// A mean over every so many steps, about kCurvePoints in all.
ordered_json curve(const std::vector<ordered_json>& metrics) {
  const auto width = std::max<int64_t>(1, static_cast<int64_t>(metrics.size()) / kCurvePoints);
  ordered_json points = ordered_json::array();
  std::map<std::string, std::pair<double, int64_t>> sums;
  for (const ordered_json& line : metrics) {
    for (const char* key : {"text_loss_nats", "answer_loss_nats"}) {
      if (!line.contains(key) || !line[key].is_number()) continue;
      sums[key].first += line[key].get<double>();
      ++sums[key].second;
    }
    if (line["step"].get<int64_t>() % width != 0) continue;
    ordered_json point = {{"tokens", line["tokens"]}};
    for (const auto& [key, sum] : sums) point[key] = sum.first / static_cast<double>(sum.second);
    points.push_back(point);
    sums.clear();
  }
  return points;
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

ordered_json to_json(const Measures& measures) {
  ordered_json out = ordered_json::object();
  for (const auto& [name, measured] : measures)
    out[name] = {{"value", to_json(measured.value)}, {"windows", measured.windows}};
  return out;
}

// Half of the answers: where the rungs of a ladder are set apart best.
constexpr double kJudgedAccuracy = 0.5;

class Study {
 public:
  Study(const Description& description, const std::vector<PlannedRun>& runs, const StudyOptions& options)
      : description_(description), runs_(runs), options_(options), comm_(dist::alone()) {
    for (const PlannedRun& run : runs) {
      if (run.config.data.valid.empty())
        fail(ErrorCode::usage, "data.valid is missing: a study compares models on a text that none has seen");
      total_ += run.config.train.steps();
    }
  }

  std::vector<ordered_json> go() {
    std::vector<ordered_json> results;
    for (const PlannedRun& run : runs_) {
      const auto needle = asked(run, results);
      const fs::path file = folder(run) / "result.json";
      const std::string key = key_of(run, needle);
      ordered_json result = read_result(file, key);
      if (result.is_null()) {
        result = carry_out(run, needle);
        if (result.is_null()) break;  // stopped
        result["key"] = key;
        write_text(file, result.dump(1) + "\n");
      }
      results.push_back(std::move(result));
      done_ += run.config.train.steps();
      show(run, 0);
    }
    return results;
  }

 private:
  fs::path folder(const PlannedRun& run) const { return options_.out / "runs" / run.name(); }
  void show(const PlannedRun& run, int64_t step) const {
    if (options_.progress) options_.progress(done_ + step, total_, run.name());
  }
  void note(const std::string& text) const {
    if (options_.on_note) options_.on_note(text);
  }

  // Pilots are asked every rung, the others the one that pilots chose: pilots stand before them.
  std::vector<eval::NeedleOptions> asked(const PlannedRun& run, const std::vector<ordered_json>& results) const {
    for (const Track& track : description_.tracks) {
      if (track.name != run.track) continue;
      if (run.pilot || track.needle.empty()) return track.needle;
      return {track.needle[judged_rungs(description_, results).at(track.name)]};
    }
    fail(ErrorCode::internal, "study: the run {} is of no track", run.name());
  }

  // What the result of a run follows from: its description and the bytes of its files, wherever these lie.
  std::string key_of(const PlannedRun& run, const std::vector<eval::NeedleOptions>& needle) {
    ordered_json described = train::to_json(run.config);
    for (const char* key : {"train", "valid", "vocabulary"}) described["data"].erase(key);
    for (const std::string_view key : train::kKeysWithoutEffect) described["train"].erase(std::string(key));
    uint64_t hash = hash_bytes(described.dump() + to_json(description_.analyses).dump());
    for (const eval::NeedleOptions& rung : needle) hash = hash_bytes(to_json(rung).dump(), hash);
    for (const auto* files : {&run.config.data.train, &run.config.data.valid})
      for (const std::string& file : *files) hash = hash_number(hash_of(file), hash);
    return fmt::format("{:016x}", hash_number(hash_of(fs::path(run.config.data.vocabulary) / "tokenizer.model"), hash));
  }
  uint64_t hash_of(const fs::path& file) {
    const auto [at, fresh] = hashes_.try_emplace(file, 0);
    if (fresh) at->second = hash_file(file);
    return at->second;
  }

  // Null if there is none.
  ordered_json read_result(const fs::path& file, const std::string& key) const {
    if (!fs::exists(file)) return nullptr;
    ordered_json result;
    try {
      result = formats::parse_json(read_text(file, size_t{16} << 20), file.string());
      if (!result.is_object() || !result.contains("key")) fail(ErrorCode::format, "{}: is no result", file.string());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::format) throw;
      note(fmt::format("{}; the run is done again", error.what()));
      return nullptr;
    }
    if (result.value("version", 0) != kResultVersion) {
      fail(ErrorCode::usage,
           "{}: is of version {} of the results, this program makes version {}, and the two cannot be set side by "
           "side; remove the folder of this run, and it is done again",
           file.string(), result.value("version", 0), kResultVersion);
    }
    if (result["key"] == key) return result;
    fail(ErrorCode::usage,
         "{}: is of another description, text or vocabulary; give another folder, or remove the folder of this run",
         file.string());
  }

  // Null if it was stopped.
  ordered_json carry_out(const PlannedRun& run, const std::vector<eval::NeedleOptions>& needle) {
    ordered_json result = {{"version", kResultVersion}, {"key", ""},        {"track", run.track}, {"size", run.size},
                           {"member", run.member},      {"seed", run.seed}, {"pilot", run.pilot}};
    try {
      const ordered_json measured = train_and_measure(run, needle);
      if (measured.is_null()) return nullptr;
      result.update(measured);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::numeric) throw;
      note(fmt::format("{} failed: {}", run.name(), error.what()));
      result["failed"] = error.what();
    }
    return result;
  }

  ordered_json train_and_measure(const PlannedRun& run, const std::vector<eval::NeedleOptions>& needle) {
    train::RunOptions options;
    options.out = folder(run);
    options.resume = true;
    options.machine = options_.machine;
    options.cache = options_.out / "tokens";
    options.stop = options_.stop;
    options.on_note = options_.on_note;
    options.on_step = [&](const ordered_json& metrics) { show(run, metrics["step"]); };
    int64_t parameters = 0, embeddings = 0;
    options.on_start = [&](const model::Config& config) {
      parameters = model::parameter_count(config);
      embeddings = config.vocabulary * config.width * (config.tied ? 1 : 2);
    };
    const train::RunResult trained = train::run(run.config, options, *comm_);
    if (trained.stopped) return nullptr;
    Trained model(run, folder(run) / "model");
    const auto metrics = read_metrics(options.out / "metrics.jsonl");
    Measures measures;
    const ordered_json answers = ask(model, needle, measures);
    const ordered_json layers = measure(run, model, measures);
    return {{"parameters", parameters},
            {"parameters_without_embeddings", parameters - embeddings},
            {"tokens", trained.tokens},
            {"tokens_per_s", speed(metrics)},
            {"loss_nats", trained.loss_nats},
            {"perplexity", trained.perplexity},
            {"bits_per_byte", trained.bits_per_byte},
            {"needle", answers},
            {"measures", to_json(measures)},
            {"layers", layers},
            {"curve", curve(metrics)}};
  }

  // The model that a run left: to read with, and in f32 for gradients.
  struct Trained {
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

  // Rung by rung; of the last, which alone is asked in runs that count, attention is measured too.
  static ordered_json ask(const Trained& trained, const std::vector<eval::NeedleOptions>& needle, Measures& measures) {
    ordered_json rungs = ordered_json::array();
    for (const eval::NeedleOptions& options : needle) {
      const text::Haystack haystack;
      const auto tasks = eval::plan_needles(*trained.tokenizer, haystack, options);
      const eval::NeedleResult result = eval::ask_needles(trained.in.model, *trained.tokenizer, options.form, tasks);
      const auto interval = eval::wilson_interval(result.accuracy);
      double attention = 0;
      int64_t answers = 0;
      for (const eval::NeedleCell& cell : result.cells)
        for (const eval::NeedleSample& sample : cell.samples)
          for (const eval::NeedleAnswer& answer : sample.answers) {
            attention += eval::mean_attention(answer);
            ++answers;
          }
      rungs.push_back({{"right", result.accuracy.right},
                       {"asked", result.accuracy.asked},
                       {"accuracy", result.accuracy.value()},
                       {"low", interval.low},
                       {"high", interval.high},
                       {"chance", 1 / static_cast<double>(options.needles)},
                       {"attention_on_answer", attention / static_cast<double>(answers)}});
      if (needle.size() == 1) measure_needles(measures, *trained.trainable, trained.in, tasks, result);
    }
    return rungs;
  }

  // The tokens of a validation text, which all runs share with their vocabulary.
  const std::vector<int32_t>& text_of(const std::string& file, const tokenizer::Tokenizer& tokenizer) {
    const auto [at, fresh] = texts_.try_emplace(file);
    if (!fresh) return at->second;
    for (const std::string& document : text::read_documents({file})) {
      const auto ids = tokenizer.encode(document);
      at->second.insert(at->second.end(), ids.begin(), ids.end());
    }
    return at->second;
  }

  // "layers" of a result.
  ordered_json measure(const PlannedRun& run, Trained& trained, Measures& measures) {
    MeasureInputs& in = trained.in;
    for (const std::string& file : run.config.data.valid) in.texts.push_back(text_of(file, *trained.tokenizer));
    const text::TokenFile seen = text::cached_tokens({run.config.data.train.begin(), run.config.data.train.end()},
                                                     *trained.tokenizer, options_.out / "tokens");
    in.calibration.resize(static_cast<size_t>(seen.tokens()));
    seen.copy(0, in.calibration);
    in.keys = description_.analyses;
    measure_predictions(measures, in);
    measure_maps(measures, in);
    measure_terms(measures, in);
    measure_heads(measures, *trained.trainable, in);
    const LayerProfile profile = profile_layers(in);
    return {{"gain_nats", to_json(profile.gain)}, {"sensitivity_nats", to_json(profile.sensitivity)}};
  }

  const Description& description_;
  const std::vector<PlannedRun>& runs_;
  const StudyOptions& options_;
  std::unique_ptr<dist::Comm> comm_;
  std::map<fs::path, uint64_t> hashes_;
  std::map<std::string, std::vector<int32_t>> texts_;
  int64_t done_ = 0, total_ = 0;  // steps
};

}  // namespace

std::map<std::string, size_t> judged_rungs(const Description& description, const std::vector<ordered_json>& results) {
  std::map<std::string, size_t> judged;
  for (const Track& track : description.tracks) {
    size_t& best = judged[track.name] = 0;
    double nearest = std::numeric_limits<double>::infinity();
    for (size_t rung = 0; rung < track.needle.size(); ++rung) {
      double right = 0, asked = 0;
      for (const ordered_json& result : results) {
        if (!result["pilot"].get<bool>() || result["track"] != track.name || result.contains("failed")) continue;
        right += result["needle"][rung]["right"].get<double>();
        asked += result["needle"][rung]["asked"].get<double>();
      }
      if (asked == 0) break;
      const double distance = std::abs(right / asked - kJudgedAccuracy);
      if (distance >= nearest) continue;
      nearest = distance;
      best = rung;
    }
  }
  return judged;
}

void make_vocabulary(const fs::path& folder, int32_t pieces, const std::vector<std::string>& texts) {
  if (fs::exists(folder / "tokenizer.model")) return;
  const std::vector<std::string> documents = text::read_documents({texts.begin(), texts.end()});
  text::write_vocabulary(folder, text::train_vocabulary(documents, pieces));
}

std::vector<ordered_json> carry_out(const Description& description, const std::vector<PlannedRun>& runs,
                                    const StudyOptions& options) {
  return Study(description, runs, options).go();
}

}  // namespace unchain::study
