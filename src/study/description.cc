#include "study/description.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "formats/json.h"
#include "model/trainable.h"
#include "study/presets.h"
#include "train/run.h"

namespace unchain::study {
namespace {

using nlohmann::json;

constexpr int64_t kKeepAll = 1000;  // checkpoints
constexpr const char* kDocs = "docs/study.md";

[[noreturn]] void wrong(const std::string& where, const std::string& key, const json& found, const char* expected) {
  fail(ErrorCode::usage, "{}: {} is {}, expected {}", where, key, found.dump().substr(0, 60), expected);
}

const json& need(const json& root, const char* key, const std::string& where) {
  const auto found = root.find(key);
  if (found == root.end()) fail(ErrorCode::usage, "{}: {} is missing; {} lists all keys", where, key, kDocs);
  return *found;
}

int64_t whole(const json& found, const std::string& key, double low, double high, const std::string& where) {
  if (!found.is_number_integer() || !(found >= low && found <= high))
    wrong(where, key, found, fmt::format("a whole number from {:g} to {:g}", low, high).c_str());
  return found;
}

// A name becomes part of a folder's.
void check_name(const std::string& name, const std::string& key, const std::string& where) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (name.empty() || !plain) wrong(where, key, name, "letters, digits and _");
}

std::vector<Size> read_sizes(const json& found, const std::string& where) {
  if (!found.is_object() || found.empty()) wrong(where, "sizes", found, "an object with a size or more");
  std::vector<Size> sizes;
  for (const auto& [name, size] : found.items()) {
    check_name(name, "sizes", where);
    train::check_keys(size, "sizes." + name, {"model", "train"}, where, kDocs);
    sizes.push_back({name, size.value("model", json::object()), size.value("train", json::object())});
  }
  return sizes;
}

// "diff_v2", or {"name": …, "preset": …, …}: a preset with something changed.
Member read_member(const json& found, const std::string& where) {
  if (found.is_string()) {
    check_name(found, "members", where);
    return {found, {{"preset", found}}, nullptr};
  }
  if (!found.is_object() || !found.contains("name") || !found["name"].is_string())
    wrong(where, "members", found, "a preset's name, or an object with a name and the keys of an attention");
  Member member = {found["name"], found, nullptr};
  check_name(member.name, "members", where);
  member.attention.erase("name");
  member.attention.erase("as_large_as");
  return member;
}

// The list behind `key`; an element twice, as `name` tells it, is an error.
template <class Read, class Name>
auto read_list(const json& found, const std::string& key, const std::string& where, const Read& read,
               const Name& name) {
  if (!found.is_array() || found.empty()) wrong(where, key, found, "a list with an element or more");
  std::vector<decltype(read(found))> list;
  std::set<std::string> names;
  for (const json& each : found) {
    list.push_back(read(each));
    if (!names.insert(name(list.back())).second)
      fail(ErrorCode::usage, "{}: {} names {} twice", where, key, name(list.back()));
  }
  return list;
}

std::vector<Member> read_members(const json& found, const std::string& where) {
  auto members = read_list(
      found, "members", where, [&](const json& each) { return read_member(each, where); },
      [](const Member& member) { return member.name; });
  for (size_t m = 0; m < members.size(); ++m) {
    if (!found[m].is_object() || !found[m].contains("as_large_as")) continue;
    const json& name = found[m]["as_large_as"];
    const auto other =
        std::find_if(members.begin(), members.end(), [&](const Member& one) { return name == one.name; });
    if (other == members.end()) wrong(where, "members.as_large_as", name, "the name of another member");
    members[m].as_large_as = other->attention;
  }
  return members;
}

std::vector<int64_t> read_seeds(const json& found, const std::string& key, const std::string& where) {
  return read_list(
      found, key, where, [&](const json& each) { return whole(each, key, 0, 1e15, where); },
      [](int64_t seed) { return std::to_string(seed); });
}

// Those of `all` that the list behind `key` names.
template <class T>
std::vector<T> choose(const json& found, const std::string& key, const std::vector<T>& all, const std::string& where) {
  return read_list(
      found, key, where,
      [&](const json& each) {
        const auto at = std::find_if(all.begin(), all.end(), [&](const T& one) { return each == one.name; });
        std::string names;
        for (const T& one : all) names += (names.empty() ? "" : ", ") + one.name;
        if (at == all.end()) wrong(where, key, each, ("one of " + names).c_str());
        return *at;
      },
      [](const T& one) { return one.name; });
}

// What a group leaves out is all that there is.
RunGroup read_group(const json& found, const std::string& key, const RunGroup& all, const std::string& where) {
  train::check_keys(found, key, {"sizes", "members", "seeds"}, where, kDocs);
  RunGroup group = all;
  if (found.contains("sizes")) group.sizes = choose(found["sizes"], key + ".sizes", all.sizes, where);
  if (found.contains("members")) group.members = choose(found["members"], key + ".members", all.members, where);
  if (found.contains("seeds")) group.seeds = read_seeds(found["seeds"], key + ".seeds", where);
  return group;
}

eval::NeedleOptions read_needle(const json& found, const std::string& key, const std::string& where) {
  train::check_keys(found, key, {"form", "lengths", "depths", "needles", "queries", "samples"}, where, kDocs);
  eval::NeedleOptions options;
  if (const auto form = found.find("form"); form != found.end()) {
    if (!form->is_string()) wrong(where, key + ".form", *form, "pair or sentence");
    options.form = text::parse_needle_form(form->get<std::string>());
  }
  const auto list = [&](const char* name, auto& values, const auto& read) {
    const auto at = found.find(name);
    if (at == found.end()) return;
    if (!at->is_array()) wrong(where, key + "." + name, *at, "a list of numbers");
    values.clear();
    for (const json& each : *at) values.push_back(read(each));
  };
  list("lengths", options.lengths, [&](const json& x) { return whole(x, key + ".lengths", 1, 1 << 30, where); });
  list("depths", options.depths, [&](const json& x) {
    if (!x.is_number() || !(x >= 0.0 && x <= 1.0)) wrong(where, key + ".depths", x, "a number from 0 to 1");
    return x.get<double>();
  });
  const auto count = [&](const char* name, int64_t otherwise) {
    return found.contains(name) ? whole(found[name], key + "." + name, 1, 1 << 20, where) : otherwise;
  };
  options.needles = static_cast<size_t>(count("needles", static_cast<int64_t>(options.needles)));
  options.queries = static_cast<size_t>(count("queries", static_cast<int64_t>(options.queries)));
  options.samples = count("samples", options.samples);
  return options;
}

Track read_track(const std::string& name, const json& found, const RunGroup& all, const std::string& where) {
  const std::string key = "tracks." + name;
  check_name(name, "tracks", where);
  train::check_keys(found, key, {"data", "needle", "last_words", "pilot", "hessian", "runs"}, where, kDocs);
  Track track;
  track.name = name;
  if (!found.contains("data")) fail(ErrorCode::usage, "{}: {}.data is missing; {} lists all keys", where, key, kDocs);
  track.data = found["data"];
  if (track.data.contains("vocabulary"))
    fail(ErrorCode::usage, "{}: {}.data.vocabulary: a study trains its own, of vocabulary_size pieces; leave it out",
         where, key);
  const json needle = found.value("needle", json::array());
  if (!needle.is_array()) wrong(where, key + ".needle", needle, "a list of rungs");
  for (const json& rung : needle) track.needle.push_back(read_needle(rung, key + ".needle", where));
  if (found.contains("pilot")) {
    track.pilot = read_group(found["pilot"], key + ".pilot", all, where);
  } else if (needle.size() > 1) {
    fail(ErrorCode::usage, "{}: {}.needle has {} rungs, of which a pilot run chooses one: {}.pilot is missing", where,
         key, needle.size(), key);
  }
  const json last_words = found.value("last_words", json(""));
  if (!last_words.is_string()) wrong(where, key + ".last_words", last_words, "the path of a file of lines {\"text\"}");
  track.last_words = last_words;
  if (found.contains("hessian")) track.hessian = read_group(found["hessian"], key + ".hessian", all, where);
  const json runs = found.value("runs", json::array({json::object()}));
  if (!runs.is_array() || runs.empty()) wrong(where, key + ".runs", runs, "a list with a group or more");
  for (const json& group : runs) track.runs.push_back(read_group(group, key + ".runs", all, where));
  for (const RunGroup& group : track.runs) {
    for (const int64_t seed : group.seeds) {
      if (std::count(track.pilot.seeds.begin(), track.pilot.seeds.end(), seed) > 0)
        fail(ErrorCode::usage, "{}: {}.pilot.seeds: {} is a seed of the runs too; pilots need their own", where, key,
             seed);
    }
  }
  return track;
}

// Feed-forward width with which a model with this attention has the parameters of one with the other, to half a unit.
int64_t width_as_large(json model, const json& other, int64_t vocabulary, int64_t context, const std::string& where) {
  model["model_type"] = "unchain";
  model["vocab_size"] = vocabulary;
  model["max_position_embeddings"] = context;
  const auto parameters = [&](const json& attention, int64_t width) {
    json changed = model;
    changed["attention"] = attention;
    changed["intermediate_size"] = width;
    return model::parameter_count(model::config_from_json(changed.dump(), where));
  };
  const auto width = model.value("intermediate_size", int64_t{0});
  if (width < 1) fail(ErrorCode::usage, "{}: members.as_large_as: the size has no intermediate_size to widen", where);
  const int64_t own = parameters(model["attention"], width);
  const int64_t a_unit = parameters(model["attention"], width + 1) - own;
  const double more = static_cast<double>(parameters(other, width) - own) / static_cast<double>(a_unit);
  return std::max<int64_t>(1, width + std::llround(more));
}

bool holds(const RunGroup& group, const Size& size, const Member& member, int64_t seed) {
  const auto has = [](const auto& list, const std::string& name) {
    return std::any_of(list.begin(), list.end(), [&](const auto& one) { return one.name == name; });
  };
  return has(group.sizes, size.name) && has(group.members, member.name) &&
         std::count(group.seeds.begin(), group.seeds.end(), seed) > 0;
}

// That there is such a model, before anything is learned for it.
void check_model(const PlannedRun& run, int64_t pieces, const std::string& where) {
  try {
    train::RunConfig config = run.config;  // to which model_config() adds
    train::model_config(config, pieces);
  } catch (const Error& error) {
    fail(ErrorCode::usage, "{}: member {} at size {}: {}", where, run.member, run.size, error.what());
  }
}

AnalysisKeys read_analyses(const json& found, const std::string& where) {
  train::check_keys(found, "analyses", {"windows", "loss_windows", "calibration_windows"}, where, kDocs);
  AnalysisKeys keys;
  for (const auto& [name, value] : {std::pair{"windows", &keys.windows},
                                    {"loss_windows", &keys.loss_windows},
                                    {"calibration_windows", &keys.calibration_windows}}) {
    if (found.contains(name)) *value = whole(found[name], fmt::format("analyses.{}", name), 2, 1 << 20, where);
  }
  return keys;
}

}  // namespace

Description parse_description(const std::string& text, const std::string& where) {
  const json root = formats::parse_json(text, where, 32, true);
  train::check_keys(root, "", {"vocabulary_size", "sizes", "members", "seeds", "tracks", "analyses"}, where, kDocs);
  Description description;
  description.vocabulary_size =
      static_cast<int32_t>(whole(need(root, "vocabulary_size", where), "vocabulary_size", 1, 1 << 20, where));
  const RunGroup all = {read_sizes(need(root, "sizes", where), where),
                        read_members(need(root, "members", where), where),
                        read_seeds(need(root, "seeds", where), "seeds", where)};
  const json& tracks = need(root, "tracks", where);
  if (!tracks.is_object() || tracks.empty()) wrong(where, "tracks", tracks, "an object with a track or more");
  for (const auto& [name, track] : tracks.items()) description.tracks.push_back(read_track(name, track, all, where));
  description.analyses = read_analyses(root.value("analyses", json::object()), where);
  return description;
}

std::string_view preset(std::string_view name) {
  if (name == "smoke") return presets::kSmokeJson;
  if (name == "small") return presets::kSmallJson;
  if (name == "full") return presets::kFullJson;
  fail(ErrorCode::usage, "--preset {}: there is no such preset, expected smoke, small or full", name);
}

std::vector<PlannedRun> plan(const Description& description, const std::string& where,
                             const std::filesystem::path& vocabulary, const std::vector<std::string>& settings) {
  std::vector<PlannedRun> runs;
  std::set<std::string> names;
  const auto add = [&](const Track& track, const RunGroup& group, bool pilot) {
    for (const int64_t seed : group.seeds) {
      for (const Size& size : group.sizes) {
        for (const Member& member : group.members) {
          json config = {{"model", size.model}, {"data", track.data}, {"train", size.train}};
          config["model"]["attention"] = member.attention;
          config["data"]["vocabulary"] = vocabulary.string();
          config["train"]["seed"] = seed;
          if (!member.as_large_as.is_null()) {
            config["model"]["intermediate_size"] =
                width_as_large(config["model"], member.as_large_as, description.vocabulary_size,
                               config["train"].value("context", train::TrainKeys().context), where);
          }
          const bool hessian = !pilot && holds(track.hessian, size, member, seed);
          if (hessian) config["train"]["keep"] = kKeepAll;
          runs.push_back({track.name, size.name, member.name, seed, pilot,
                          train::parse_config(config.dump(), where, settings), track.last_words, hessian});
          check_model(runs.back(), description.vocabulary_size, where);
          if (!names.insert(runs.back().name()).second)
            fail(ErrorCode::usage, "{}: two groups of tracks.{}.runs hold the run {}", where, track.name,
                 runs.back().name());
        }
      }
    }
  };
  for (const Track& track : description.tracks) add(track, track.pilot, true);
  for (const Track& track : description.tracks)
    for (const RunGroup& group : track.runs) add(track, group, false);
  std::stable_sort(runs.begin(), runs.end(), [](const PlannedRun& a, const PlannedRun& b) {
    return a.pilot != b.pilot ? a.pilot : !a.pilot && a.seed < b.seed;
  });
  return runs;
}

}  // namespace unchain::study
