// What a training run is told: one JSON file with the sections model, data and train (docs/training.md lists all keys).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace unchain::train {

struct NeedleKeys {
  double share = 0;
  double alone = 0;  // part of the run, at its beginning
  std::string form = "pair";
  int64_t count = 4;
  int64_t filler = 0;
  double rise = 0.1;
  double filler_rise = 0;
};

struct DataKeys {
  std::vector<std::string> train, valid;
  std::string vocabulary;
  bool separate_documents = false;
  NeedleKeys needles;
};

struct TrainKeys {
  int64_t tokens = 0;  // of the whole run
  int64_t context = 256;
  int64_t batch_tokens = 8192;  // of a step, over all ranks
  int64_t micro_batch = 8;      // rows of a rank that are computed at once
  double learning_rate = 3e-3, min_learning_rate = 3e-4;
  std::string schedule = "cosine";
  double warmup = 0.03;  // of the run
  double weight_decay = 0.1;
  std::vector<double> betas = {0.9, 0.95};
  double clip = 1;
  bool recompute = false;
  std::string dtype;  // empty: the fastest in hardware
  int64_t seed = 0;
  int64_t evaluate_every = 200, save_every = 200, keep = 2;

  int64_t rows() const { return batch_tokens / context; }  // of a step
  int64_t steps() const { return (tokens + batch_tokens - 1) / batch_tokens; }
};

struct RunConfig {
  nlohmann::json model;  // keys of a config.json
  DataKeys data;
  TrainKeys train;
};

// Reads a file: JSON with comments; a key "extends" names another file, beside this one, whose values hold where this
// one is silent. Then each of `settings` ("train.learning_rate=1e-3"; the value is JSON, or a string without quotes)
// replaces one value. Errors: io; format (no JSON); usage (a key that there is not, with the nearest one; a value of
// the wrong type or out of range; a setting without '='; what is missing).
RunConfig read_config(const std::filesystem::path& path, const std::vector<std::string>& settings);

// The same from a text; `where` names it. "extends" is looked for in `folder`.
RunConfig parse_config(const std::string& text, const std::string& where, const std::vector<std::string>& settings = {},
                       const std::filesystem::path& folder = {});

// Throws unless `object` is one with known keys alone; names the nearest of these and the page that lists them.
// `section` is the object's place in the file, as "data.needles"; empty: the whole. Error: usage.
void check_keys(const nlohmann::json& object, const std::string& section, const std::set<std::string>& known,
                const std::string& where, const char* docs);

// All keys that a configuration may have, by section as check_keys() names them; docs/training.md has each.
std::map<std::string, std::set<std::string>> known_keys();

// Where a key as messages name it ("data.needles.share") stands in a configuration; empty: the whole.
nlohmann::json::json_pointer place_of(std::string key);

// Every key with its value.
nlohmann::ordered_json to_json(const RunConfig& config);

// Keys of `train` that change no weight of the run.
inline constexpr std::string_view kKeysWithoutEffect[] = {"recompute", "evaluate_every", "save_every", "keep"};

// The first key ("train.clip") in which two resolved configurations differ; empty if they agree.
enum class Compared { all, with_effect };  // with_effect: without kKeysWithoutEffect
std::string first_difference(const nlohmann::ordered_json& a, const nlohmann::ordered_json& b, Compared compared);

}  // namespace unchain::train
