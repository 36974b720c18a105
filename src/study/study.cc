#include "study/study.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/hash.h"
#include "formats/json.h"
#include "model/trainable.h"
#include "study/runner.h"
#include "text/corpus.h"
#include "text/vocabulary.h"
#include "train/run.h"

namespace unchain::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

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

bool is_number(const ordered_json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number();
}

bool is_measure(const ordered_json& measured) {
  if (!measured.is_object() || !measured.contains("value") || !measured.contains("windows")) return false;
  const ordered_json &value = measured["value"], &texts = measured["windows"];
  const auto holds_numbers = [](const ordered_json& text) {
    const auto is_number = [](const ordered_json& x) { return x.is_number(); };
    return text.is_array() && std::ranges::all_of(text, [&](const ordered_json& window) {
             return is_number(window) || (window.is_array() && std::ranges::all_of(window, is_number));
           });
  };
  return (value.is_null() || value.is_number()) && texts.is_array() && std::ranges::all_of(texts, holds_numbers);
}

// The first key that is not as this program writes it, of those that verdicts rest on; "" if all are.
std::string damage(const ordered_json& result, const PlannedRun& run) {
  for (const auto& [key, expected] : {std::pair<const char*, ordered_json>{"track", run.track},
                                      {"size", run.size},
                                      {"member", run.member},
                                      {"seed", run.seed},
                                      {"pilot", run.pilot}})
    if (!result.contains(key) || result[key] != expected) return key;
  if (result.contains("failed")) return result["failed"].is_string() ? "" : "failed";
  for (const char* key : {"parameters", "parameters_without_embeddings", "loss_nats", "perplexity", "bits_per_byte"})
    if (!is_number(result, key)) return key;
  if (!result.contains("needle") || !result["needle"].is_array()) return "needle";
  for (const ordered_json& rung : result["needle"])
    for (const char* key : {"right", "asked", "accuracy", "low", "high", "chance"})
      if (!is_number(rung, key)) return std::string("needle.") + key;
  if (!result.contains("measures") || !result["measures"].is_object()) return "measures";
  for (const auto& [name, measured] : result["measures"].items())
    if (!is_measure(measured)) return "measures." + name;
  for (const char* key : {"gain_nats", "sensitivity_nats"}) {
    if (!result.contains("layers") || !result["layers"].is_object() || !result["layers"].contains(key)) return "layers";
    for (const ordered_json& value : result["layers"][key])
      if (!value.is_null() && !value.is_number()) return std::string("layers.") + key;
  }
  return "";
}

// Half of the answers: where the rungs of a ladder are set apart best.
constexpr double kJudgedAccuracy = 0.5;

class Study {
 public:
  Study(const Description& description, const std::vector<PlannedRun>& runs, const StudyOptions& options)
      : description_(description), runs_(runs), options_(options), runner_(description, options), done_(runs.size()) {
    if (runs.empty()) return;
    const auto tokenizer = train::open_vocabulary(runs.front().config);  // of all runs
    for (const PlannedRun& run : runs) {
      if (run.config.data.valid.empty())
        fail(ErrorCode::usage, "data.valid is missing: a study compares models on a text that none has seen");
      if (!run.last_words.empty()) hash_of(run.last_words);
      train::RunConfig config = run.config;  // to which model_config() adds
      parameters_.push_back(model::parameter_count(train::model_config(config, tokenizer->size())));
      work_.push_back(static_cast<double>(config.train.tokens) * static_cast<double>(parameters_.back()));
    }
  }

  std::vector<ordered_json> go() {
    for (;;) {
      collect();
      if (std::ranges::none_of(done_, [](const ordered_json& result) { return result.is_null(); })) break;
      if (options_.stop && options_.stop()) break;
      // The rest is in the hands of other processes, which may end before they are done.
      if (!do_next()) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    return finished();
  }

 private:
  fs::path folder(const PlannedRun& run) const { return options_.out / "runs" / run.name(); }
  void note(const std::string& text) const {
    if (options_.on_note) options_.on_note(text);
  }
  std::vector<ordered_json> finished() const {
    std::vector<ordered_json> results;
    std::ranges::copy_if(done_, std::back_inserter(results), [](const auto& result) { return !result.is_null(); });
    return results;
  }

  // Work in training tokens × parameters, which time follows closely enough over sizes and tracks.
  void show(size_t at, double part) const {
    if (!options_.progress) return;
    StudyProgress progress = {0, 0, 0, runs_.size(), runs_[at].name()};
    for (size_t i = 0; i < runs_.size(); ++i) {
      progress.total_work += work_[i];
      if (done_[i].is_null()) continue;
      progress.work += work_[i];
      ++progress.runs_done;
    }
    progress.work += part * work_[at];
    options_.progress(progress);
  }

  // Takes up what has been done, here or by other processes. Shown once for all of it: what stands at the first sight
  // of progress is not taken for work of this session.
  void collect() {
    std::optional<size_t> last;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (!done_[i].is_null() || !fs::exists(folder(runs_[i]) / "result.json") || !may_begin(runs_[i])) continue;
      done_[i] = read_result(runs_[i]);
      if (!done_[i].is_null()) last = i;
    }
    if (last) show(*last, 0);
  }

  // Does the first run that no other process is at; false if there is none.
  bool do_next() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const PlannedRun& run = runs_[i];
      if (!done_[i].is_null() || !may_begin(run)) continue;
      const auto lock = FileLock::try_lock(options_.out / "locks" / run.name());
      if (!lock) continue;
      done_[i] = read_result(run);  // another may have done it just before
      if (done_[i].is_null()) done_[i] = carry_out(i);
      if (!done_[i].is_null()) show(i, 0);
      return true;
    }
    return false;
  }

  // Pilots are asked every rung, the others the one that pilots chose.
  bool may_begin(const PlannedRun& run) const {
    if (run.pilot) return true;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (runs_[i].pilot && runs_[i].track == run.track && done_[i].is_null()) return false;
    return true;
  }
  std::vector<eval::NeedleOptions> asked(const PlannedRun& run) const {
    for (const Track& track : description_.tracks) {
      if (track.name != run.track) continue;
      if (run.pilot || track.needle.empty()) return track.needle;
      std::vector<ordered_json> pilots;
      for (size_t i = 0; i < runs_.size(); ++i)
        if (runs_[i].pilot && runs_[i].track == run.track) pilots.push_back(done_[i]);
      return {track.needle[judged_rungs(description_, pilots).at(track.name)]};
    }
    fail(ErrorCode::internal, "study: the run {} is of no track", run.name());
  }

  // What the result of a run follows from: its description and the bytes of its files, wherever these lie.
  std::string key_of(const PlannedRun& run) {
    ordered_json described = train::to_json(run.config);
    for (const char* key : {"train", "valid", "vocabulary"}) described["data"].erase(key);
    for (const std::string_view key : train::kKeysWithoutEffect) described["train"].erase(std::string(key));
    uint64_t hash = hash_bytes(described.dump() + to_json(description_.analyses).dump());
    for (const eval::NeedleOptions& rung : asked(run)) hash = hash_bytes(to_json(rung).dump(), hash);
    // The Hessian is looked at where checkpoints are.
    if (run.hessian) hash = hash_number(static_cast<uint64_t>(run.config.train.save_every), hash);
    for (const auto* files : {&run.config.data.train, &run.config.data.valid})
      for (const std::string& file : *files) hash = hash_number(hash_of(file), hash);
    if (!run.last_words.empty()) hash = hash_number(hash_of(run.last_words), hash);
    return fmt::format("{:016x}", hash_number(hash_of(fs::path(run.config.data.vocabulary) / "tokenizer.model"), hash));
  }
  uint64_t hash_of(const fs::path& file) {
    const auto [at, fresh] = hashes_.try_emplace(file, 0);
    if (fresh) at->second = hash_file(file);
    return at->second;
  }

  // Null if there is none.
  ordered_json read_result(const PlannedRun& run) {
    const fs::path file = folder(run) / "result.json";
    if (!fs::exists(file)) return nullptr;
    const auto again = [&](const std::string& why) {
      note(why + "; the run is done again");
      fs::remove(file);
      return nullptr;
    };
    ordered_json result;
    try {
      result = formats::parse_json(read_text(file, size_t{16} << 20), file.string());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::format) throw;
      return again(error.what());
    }
    if (!result.is_object() || !result.contains("key") || !result.value("version", ordered_json()).is_number_integer())
      return again(file.string() + ": is no result");
    if (result["version"] != kResultVersion) {
      fail(ErrorCode::usage,
           "{}: is of version {} of the results, this program makes version {}, and the two cannot be set side by "
           "side; remove the folder of this run, and it is done again",
           file.string(), result["version"].dump(), kResultVersion);
    }
    if (result["key"] != key_of(run)) {
      fail(ErrorCode::usage,
           "{}: is of another description, text or vocabulary; give another folder, or remove the folder of this run",
           file.string());
    }
    if (const std::string lost = damage(result, run); !lost.empty())
      return again(fmt::format("{}: {} is missing or damaged", file.string(), lost));
    return result;
  }

  // Null if it was stopped.
  ordered_json carry_out(size_t at) {
    const PlannedRun& run = runs_[at];
    ordered_json result = {{"version", kResultVersion},
                           {"key", key_of(run)},
                           {"track", run.track},
                           {"size", run.size},
                           {"member", run.member},
                           {"seed", run.seed},
                           {"pilot", run.pilot},
                           {"parameters", parameters_[at]},
                           {"context", run.config.train.context}};
    const auto steps = static_cast<double>(run.config.train.steps());
    try {
      const ordered_json figures = runner_.carry_out(
          run, asked(run), folder(run), [&](int64_t step) { show(at, static_cast<double>(step) / steps); });
      if (figures.is_null()) return nullptr;
      result.update(figures);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::numeric) throw;
      note(fmt::format("{} failed: {}", run.name(), error.what()));
      result["failed"] = error.what();
    }
    write_text(folder(run) / "result.json", result.dump() + "\n");
    return result;
  }

  const Description& description_;
  const std::vector<PlannedRun>& runs_;
  const StudyOptions& options_;
  Runner runner_;
  std::map<fs::path, uint64_t> hashes_;
  std::vector<int64_t> parameters_;  // of each run
  std::vector<double> work_;
  std::vector<ordered_json> done_;  // by run: its result, or null
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
  const auto is_there = [&] { return fs::exists(folder / "tokenizer.model"); };
  if (is_there()) return;
  const std::vector<std::string> documents = text::read_documents({texts.begin(), texts.end()});
  const FileLock lock = FileLock::lock(folder.parent_path() / "locks" / "vocabulary");
  if (is_there()) return;  // made while we waited
  text::write_vocabulary(folder, text::train_vocabulary(documents, pieces));
}

std::vector<ordered_json> carry_out(const Description& description, const std::vector<PlannedRun>& runs,
                                    const StudyOptions& options) {
  return Study(description, runs, options).go();
}

}  // namespace unchain::study
