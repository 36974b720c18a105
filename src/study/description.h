// What a study trains and asks: sizes × members × seeds from one JSON file (docs/study.md lists all keys).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "eval/needle.h"
#include "train/config.h"

namespace unchain::study {

// The sections `model` and `train` of a training configuration, without the attention.
struct Size {
  std::string name;
  nlohmann::json model, train;
};

// One attention, under the name that tables show.
struct Member {
  std::string name;
  nlohmann::json attention;  // the object `attention` of a config.json
};

struct Description {
  int32_t vocabulary_size = 0;  // pieces
  nlohmann::json data;          // the section `data` of a training configuration, without `vocabulary`
  std::vector<Size> sizes;
  std::vector<Member> members;
  std::vector<int64_t> seeds;
  eval::NeedleOptions needle;
};

// JSON with comments; `where` begins every message. What belongs to a training configuration is checked when the runs
// are planned. Errors: format (no JSON); usage (a key that there is not, with the nearest one; a value of the wrong
// type or out of range; what is missing or stands twice).
Description parse_description(const std::string& text, const std::string& where);

// The description behind `--preset NAME`, as a text. Error: usage, listing the names.
std::string_view preset(std::string_view name);

// One run of the study.
struct PlannedRun {
  std::string size, member;
  int64_t seed = 0;
  train::RunConfig config;
  std::string name() const { return size + "-" + member + "-" + std::to_string(seed); }
};

// All runs, seed by seed, in a seed size by size, in a size member by member: a study that is cut short has compared
// all members already. `vocabulary` is the folder with the tokenizer; `settings` as for `unchain train --set`.
// Errors: those of train::parse_config.
std::vector<PlannedRun> plan(const Description& description, const std::string& where,
                             const std::filesystem::path& vocabulary, const std::vector<std::string>& settings);

}  // namespace unchain::study
