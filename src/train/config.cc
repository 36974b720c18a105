// The keys are listed once, in visit(); reading, writing, and the search for a misspelt name all go through that list.
#include "train/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "formats/json.h"
#include "formats/text.h"

namespace unchain::train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Range {
  double low = 0, high = 0;
};
constexpr double kHuge = 1e15;
constexpr const char* kDocs = "docs/training.md";
constexpr Range kCount = {1, 1 << 30}, kSteps = {0, 1e9}, kShare = {0, 1};

// Calls on(section, key, value, range) for every key; for texts and lists of files the range says nothing.
template <class Config, class On>
void visit(Config& config, const On& on) {
  auto& data = config.data;
  on("data", "train", data.train, Range{});
  on("data", "valid", data.valid, Range{});
  on("data", "vocabulary", data.vocabulary, Range{});
  on("data", "separate_documents", data.separate_documents, Range{});
  on("data.needles", "share", data.needles.share, kShare);
  on("data.needles", "alone", data.needles.alone, kShare);
  on("data.needles", "form", data.needles.form, Range{});
  on("data.needles", "count", data.needles.count, Range{1, 1000});
  on("data.needles", "filler", data.needles.filler, Range{0, 1 << 30});
  on("data.needles", "rise", data.needles.rise, kShare);
  on("data.needles", "filler_rise", data.needles.filler_rise, kShare);
  auto& train = config.train;
  on("train", "tokens", train.tokens, Range{1, kHuge});
  on("train", "context", train.context, kCount);
  on("train", "batch_tokens", train.batch_tokens, Range{1, 1e12});
  on("train", "micro_batch", train.micro_batch, kCount);
  on("train", "learning_rate", train.learning_rate, Range{0, 1e3});
  on("train", "min_learning_rate", train.min_learning_rate, Range{0, 1e3});
  on("train", "schedule", train.schedule, Range{});
  on("train", "warmup", train.warmup, kShare);
  on("train", "weight_decay", train.weight_decay, Range{0, 1e3});
  on("train", "betas", train.betas, kShare);
  on("train", "clip", train.clip, Range{0, 1e9});
  on("train", "recompute", train.recompute, Range{});
  on("train", "dtype", train.dtype, Range{});
  on("train", "seed", train.seed, Range{0, kHuge});
  on("train", "evaluate_every", train.evaluate_every, kSteps);
  on("train", "save_every", train.save_every, kSteps);
  on("train", "keep", train.keep, Range{1, 1e9});
}

// The keys of a config.json that a model to be trained may have, and those of its parts.
const std::set<std::string> kModelKeys = {"model_type",
                                          "architectures",
                                          "vocab_size",
                                          "hidden_size",
                                          "intermediate_size",
                                          "num_hidden_layers",
                                          "num_attention_heads",
                                          "num_key_value_heads",
                                          "head_dim",
                                          "max_position_embeddings",
                                          "rms_norm_eps",
                                          "tie_word_embeddings",
                                          "rope_theta",
                                          "rope_scaling",
                                          "rope_parameters",
                                          "initializer_range",
                                          "hidden_act",
                                          "attention"};
const std::set<std::string> kAttentionKeys = {"preset", "pairs",      "accounting",  "lambda",
                                              "layers", "calibrated", "lambda_gain", "head_norm",
                                              "rank",   "ratio",      "decays",      "gate"};

// All keys of `root` against the list.
void check_all_keys(const json& root, const std::string& where) {
  for (const auto& [section, keys] : known_keys()) {
    if (const auto place = place_of(section); root.contains(place))
      check_keys(root.at(place), section, keys, where, kDocs);
  }
}

// Takes values out of one file; `where` and the key begin every message.
struct Reader {
  const json& root;
  const std::string& where;

  template <class T>
  void operator()(const char* section, const char* key, T& value, Range range) const {
    const json* found = &root;
    for (const char* part : {std::string_view(section) == "data.needles" ? "data" : section,
                             std::string_view(section) == "data.needles" ? "needles" : "", key}) {
      if (*part == 0) continue;
      const auto next = found->find(part);
      if (next == found->end()) return;
      found = &*next;
    }
    const std::string name = fmt::format("{}: {}.{}", where, section, key);
    read(name, *found, value, range);
  }

 private:
  [[noreturn]] static void wrong(const std::string& name, const json& found, const std::string& expected) {
    fail(ErrorCode::usage, "{} is {}, expected {}", name, found.dump().substr(0, 60), expected);
  }
  static void read(const std::string& name, const json& found, double& value, Range range) {
    if (!found.is_number() || !(found >= range.low && found <= range.high))
      wrong(name, found, fmt::format("a number from {:g} to {:g}", range.low, range.high));
    value = found;
  }
  static void read(const std::string& name, const json& found, int64_t& value, Range range) {
    const double number = found.is_number() ? found.get<double>() : std::numeric_limits<double>::quiet_NaN();
    // 1e6 and 1.5e7 are whole numbers too, and read better than rows of zeros.
    if (!(number >= range.low && number <= range.high) || number != std::floor(number))
      wrong(name, found, fmt::format("a whole number from {:g} to {:g}", range.low, range.high));
    value = static_cast<int64_t>(number);
  }
  static void read(const std::string& name, const json& found, bool& value, Range) {
    if (!found.is_boolean()) wrong(name, found, "true or false");
    value = found;
  }
  static void read(const std::string& name, const json& found, std::string& value, Range) {
    if (!found.is_string()) wrong(name, found, "a text");
    value = found;
  }
  static void read(const std::string& name, const json& found, std::vector<std::string>& value, Range) {
    const bool list =
        found.is_array() && std::all_of(found.begin(), found.end(), [](const json& x) { return x.is_string(); });
    if (!found.is_string() && !list) wrong(name, found, "a file name, or a list of them");
    value = list ? found.get<std::vector<std::string>>() : std::vector<std::string>{found};
  }
  static void read(const std::string& name, const json& found, std::vector<double>& value, Range) {
    const auto fits = [](const json& x) { return x.is_number() && x >= 0.0 && x < 1.0; };
    if (!found.is_array() || found.size() != 2 || !std::all_of(found.begin(), found.end(), fits))
      wrong(name, found, "two numbers from 0 to below 1");
    value = found.get<std::vector<double>>();
  }
};

void check_values(const RunConfig& config, const std::string& where) {
  const auto wrong = [&](const char* key, const auto& found, const char* expected) {
    fail(ErrorCode::usage, "{}: {} is {}, expected {}", where, key, found, expected);
  };
  const TrainKeys& train = config.train;
  const DataKeys& data = config.data;
  if (data.train.empty()) fail(ErrorCode::usage, "{}: data.train is missing: name the text files to train on", where);
  if (data.vocabulary.empty()) {
    fail(ErrorCode::usage,
         "{}: data.vocabulary is missing: name a folder with a tokenizer ('unchain vocabulary' makes one)", where);
  }
  if (train.tokens == 0) fail(ErrorCode::usage, "{}: train.tokens is missing: how long the run is", where);
  if (train.batch_tokens % train.context != 0) {
    fail(ErrorCode::usage, "{}: train.batch_tokens is {}, expected a multiple of train.context {}; take {}", where,
         train.batch_tokens, train.context, std::max(int64_t{1}, train.batch_tokens / train.context) * train.context);
  }
  if (train.min_learning_rate > train.learning_rate) {
    fail(ErrorCode::usage, "{}: train.min_learning_rate {} is above train.learning_rate {}", where,
         train.min_learning_rate, train.learning_rate);
  }
  if (train.schedule != "cosine" && train.schedule != "linear" && train.schedule != "constant")
    wrong("train.schedule", train.schedule, "cosine, linear or constant");
  if (!train.dtype.empty() && train.dtype != "f32" && train.dtype != "bf16")
    wrong("train.dtype", train.dtype, "f32 or bf16");
  if (data.needles.form != "pair" && data.needles.form != "sentence")
    wrong("data.needles.form", data.needles.form, "pair or sentence");
  if (data.needles.alone > 0 && data.needles.share == 0)
    wrong("data.needles.alone", data.needles.alone, "0 where data.needles.share is 0: there are no needles then");
}

// model and data.needles may be objects within objects: value by value, not object by object.
void merge(json& base, const json& over) {
  if (!base.is_object() || !over.is_object()) {
    base = over;
    return;
  }
  for (const auto& [key, value] : over.items()) merge(base[key], value);
}

json parse_file(const std::string& text, const std::string& where, const fs::path& folder, int depth) {
  json root = formats::parse_json(text, where, 32, true);
  if (!root.is_object()) fail(ErrorCode::usage, "{}: expected an object with model, data and train", where);
  const auto extends = root.find("extends");
  if (extends == root.end()) return root;
  if (!extends->is_string()) fail(ErrorCode::usage, "{}: extends is no text, expected a file name", where);
  if (depth > 8) fail(ErrorCode::usage, "{}: extends goes round in a circle, or more than 8 files deep", where);
  const fs::path path = folder / extends->get<std::string>();
  json base = parse_file(read_text(path, size_t{1} << 20), path.string(), path.parent_path(), depth + 1);
  root.erase(extends);
  merge(base, root);
  return base;
}

void apply(json& root, const std::string& setting) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    fail(ErrorCode::usage, "--set {}: expected key=value, as in train.clip=1", formats::printable(setting));
  const std::string text = setting.substr(equals + 1);
  json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) value = text;
  json* at = &root;
  size_t begin = 0;
  while (begin <= equals) {
    const size_t end = std::min(setting.find('.', begin), equals);
    if (!at->is_object() && !at->is_null()) {
      fail(ErrorCode::usage, "--set {}: {} is no object", formats::printable(setting),
           formats::printable(setting.substr(0, begin - 1)));
    }
    at = &(*at)[setting.substr(begin, end - begin)];
    begin = end + 1;
  }
  *at = std::move(value);
}

}  // namespace

json::json_pointer place_of(std::string key) {
  std::ranges::replace(key, '.', '/');
  return json::json_pointer(key.empty() ? "" : "/" + key);
}

std::map<std::string, std::set<std::string>> known_keys() {
  std::map<std::string, std::set<std::string>> known = {
      {"", {"model", "data", "train"}}, {"model", kModelKeys}, {"model.attention", kAttentionKeys}};
  RunConfig config;
  visit(config, [&](const char* section, const char* key, auto&, Range) { known[section].insert(key); });
  known["data"].insert("needles");
  return known;
}

void check_keys(const json& object, const std::string& section, const std::set<std::string>& known,
                const std::string& where, const char* docs) {
  const std::string prefix = section.empty() ? "" : section + ".";
  if (!object.is_object())
    fail(ErrorCode::usage, "{}: {} is {}, expected an object", where, section, object.dump().substr(0, 60));
  for (const auto& [key, value] : object.items()) {
    if (known.contains(key)) continue;
    const auto nearest =
        std::min_element(known.begin(), known.end(), [&, name = std::string_view(key)](const auto& a, const auto& b) {
          return formats::edit_distance(name, a) < formats::edit_distance(name, b);
        });
    fail(ErrorCode::usage, "{}: {}{} is no key; did you mean {}{}? {} lists all", where, prefix,
         formats::printable(key), prefix, *nearest, docs);
  }
}

RunConfig parse_config(const std::string& text, const std::string& where, const std::vector<std::string>& settings,
                       const fs::path& folder) {
  json root = parse_file(text, where, folder, 0);
  for (const std::string& setting : settings) {
    apply(root, setting);
    check_all_keys(root, "--set " + setting);
  }
  check_all_keys(root, where);
  RunConfig config;
  config.model = root.value("model", json::object());
  visit(config, Reader{root, where});
  check_values(config, where);
  return config;
}

RunConfig read_config(const fs::path& path, const std::vector<std::string>& settings) {
  return parse_config(read_text(path, size_t{1} << 20), path.string(), settings, path.parent_path());
}

ordered_json to_json(const RunConfig& config) {
  ordered_json result = {{"model", config.model}, {"data", ordered_json::object()}, {"train", ordered_json::object()}};
  visit(config, [&](const std::string& section, const char* key, const auto& value, Range) {
    (section == "data.needles" ? result["data"]["needles"] : result[section])[key] = value;
  });
  return result;
}

std::string first_difference(const ordered_json& a, const ordered_json& b, Compared compared) {
  const json left = json(a).flatten(), right = json(b).flatten();
  std::set<std::string> keys;
  for (const json* side : {&left, &right})
    for (const auto& [key, value] : side->items()) keys.insert(key);
  for (const std::string& key : keys) {
    const auto is_key = [&](std::string_view free) { return key == fmt::format("/train/{}", free); };
    if (compared == Compared::with_effect && std::ranges::any_of(kKeysWithoutEffect, is_key)) continue;
    const auto l = left.find(key), r = right.find(key);
    if (l != left.end() && r != right.end() && *l == *r) continue;
    std::string name = key.substr(1);
    std::replace(name.begin(), name.end(), '/', '.');
    return name;
  }
  return {};
}

}  // namespace unchain::train
