// What a study trains and asks: sizes × members × seeds on one track or several, from one JSON file (docs/study.md
// lists all keys).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
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
  // The attention of another member, whose parameters this one is to have: its feed-forward layers are made so wide.
  // Null: it keeps the size's own.
  nlohmann::json as_large_as;
};

// Every size with every member and seed.
struct RunGroup {
  std::vector<Size> sizes;
  std::vector<Member> members;
  std::vector<int64_t> seeds;
};

// One kind of data, and what its models are asked. Needle prompts, if any, come in rungs, easiest first, of which one
// is judged: that where the pilot runs, whose seeds nothing else has, stand nearest to half of the answers right;
// without pilot runs the first.
struct Track {
  std::string name;
  nlohmann::json data;  // the section `data` of a training configuration, without `vocabulary`
  std::vector<eval::NeedleOptions> needle;
  RunGroup pilot;  // empty: none
  std::vector<RunGroup> runs;
  std::string last_words;  // file of texts whose last word is to be foretold; empty: none
  RunGroup hessian;        // the runs whose checkpoints' Hessians are looked at; empty: none
};

// How much of the validation texts is looked at.
struct AnalysisKeys {
  int64_t windows = 8;               // of each text, for what is measured of maps
  int64_t loss_windows = 100;        // of each text, for losses
  int64_t calibration_windows = 64;  // of the training text, for the mean maps
};

struct Description {
  int32_t vocabulary_size = 0;  // pieces
  std::vector<Track> tracks;
  AnalysisKeys analyses;
};

// JSON with comments; `where` begins every message. What belongs to a training configuration is checked when the runs
// are planned. Errors: format (no JSON); usage (a key that there is not, with the nearest one; a value of the wrong
// type or out of range; a size or member that is not there; what is missing or stands twice).
Description parse_description(const std::string& text, const std::string& where);

// The description behind `--preset NAME`, as a text. Error: usage, listing the names.
std::string_view preset(std::string_view name);

// One run of the study.
struct PlannedRun {
  std::string track, size, member;
  int64_t seed = 0;
  bool pilot = false;  // chooses the judged rung, and is then thrown away
  train::RunConfig config;
  std::string last_words;  // of its track
  bool hessian = false;    // keeps all checkpoints
  std::string name() const { return track + "-" + size + "-" + member + "-" + std::to_string(seed); }
};

// All runs, pilots first, then seed by seed, in a seed track by track, size by size, member by member: a study that is
// cut short has compared all members already. `vocabulary` is the folder with the tokenizer; `settings` as for
// `unchain train --set`. Errors: usage (a run that stands twice); those of train::parse_config.
std::vector<PlannedRun> plan(const Description& description, const std::string& where,
                             const std::filesystem::path& vocabulary, const std::vector<std::string>& settings);

}  // namespace unchain::study
