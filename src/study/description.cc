#include "study/description.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "formats/json.h"
#include "study/presets.h"

namespace unchain::study {
namespace {

using nlohmann::json;

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
    return {found, {{"preset", found}}};
  }
  if (!found.is_object() || !found.contains("name") || !found["name"].is_string())
    wrong(where, "members", found, "a preset's name, or an object with a name and the keys of an attention");
  Member member = {found["name"], found};
  check_name(member.name, "members", where);
  member.attention.erase("name");
  return member;
}

std::vector<Member> read_members(const json& found, const std::string& where) {
  if (!found.is_array() || found.empty()) wrong(where, "members", found, "a list with a member or more");
  std::vector<Member> members;
  std::set<std::string> names;
  for (const json& each : found) {
    members.push_back(read_member(each, where));
    if (!names.insert(members.back().name).second)
      fail(ErrorCode::usage, "{}: members names {} twice", where, members.back().name);
  }
  return members;
}

std::vector<int64_t> read_seeds(const json& found, const std::string& where) {
  if (!found.is_array() || found.empty()) wrong(where, "seeds", found, "a list with a seed or more");
  std::vector<int64_t> seeds;
  for (const json& each : found) {
    seeds.push_back(whole(each, "seeds", 0, 1e15, where));
    if (std::count(seeds.begin(), seeds.end(), seeds.back()) > 1)
      fail(ErrorCode::usage, "{}: seeds names {} twice", where, seeds.back());
  }
  return seeds;
}

eval::NeedleOptions read_needle(const json& found, const std::string& where) {
  train::check_keys(found, "needle", {"form", "lengths", "depths", "needles", "queries", "samples"}, where, kDocs);
  eval::NeedleOptions options;
  if (const auto form = found.find("form"); form != found.end()) {
    if (!form->is_string()) wrong(where, "needle.form", *form, "pair or sentence");
    options.form = text::parse_needle_form(form->get<std::string>());
  }
  const auto list = [&](const char* key, auto& values, const auto& read) {
    const auto at = found.find(key);
    if (at == found.end()) return;
    if (!at->is_array()) wrong(where, fmt::format("needle.{}", key), *at, "a list of numbers");
    values.clear();
    for (const json& each : *at) values.push_back(read(each));
  };
  list("lengths", options.lengths, [&](const json& x) { return whole(x, "needle.lengths", 1, 1 << 30, where); });
  list("depths", options.depths, [&](const json& x) {
    if (!x.is_number() || !(x >= 0.0 && x <= 1.0)) wrong(where, "needle.depths", x, "a number from 0 to 1");
    return x.get<double>();
  });
  const auto count = [&](const char* key, int64_t otherwise) {
    return found.contains(key) ? whole(found[key], fmt::format("needle.{}", key), 1, 1 << 20, where) : otherwise;
  };
  options.needles = static_cast<size_t>(count("needles", static_cast<int64_t>(options.needles)));
  options.queries = static_cast<size_t>(count("queries", static_cast<int64_t>(options.queries)));
  options.samples = count("samples", options.samples);
  return options;
}

}  // namespace

Description parse_description(const std::string& text, const std::string& where) {
  const json root = formats::parse_json(text, where, 32, true);
  train::check_keys(root, "", {"vocabulary_size", "data", "sizes", "members", "seeds", "needle"}, where, kDocs);
  Description description;
  description.vocabulary_size =
      static_cast<int32_t>(whole(need(root, "vocabulary_size", where), "vocabulary_size", 1, 1 << 20, where));
  description.data = need(root, "data", where);
  if (description.data.contains("vocabulary"))
    fail(ErrorCode::usage, "{}: data.vocabulary: a study trains its own, of vocabulary_size pieces; leave it out",
         where);
  description.sizes = read_sizes(need(root, "sizes", where), where);
  description.members = read_members(need(root, "members", where), where);
  description.seeds = read_seeds(need(root, "seeds", where), where);
  description.needle = read_needle(root.value("needle", json::object()), where);
  return description;
}

std::string_view preset(std::string_view name) {
  if (name == "smoke") return presets::kSmokeJson;
  fail(ErrorCode::usage, "--preset {}: there is no such preset, expected smoke", name);
}

std::vector<PlannedRun> plan(const Description& description, const std::string& where,
                             const std::filesystem::path& vocabulary, const std::vector<std::string>& settings) {
  std::vector<PlannedRun> runs;
  for (const int64_t seed : description.seeds) {
    for (const Size& size : description.sizes) {
      for (const Member& member : description.members) {
        json config = {{"model", size.model}, {"data", description.data}, {"train", size.train}};
        config["model"]["attention"] = member.attention;
        config["data"]["vocabulary"] = vocabulary.string();
        config["train"]["seed"] = seed;
        runs.push_back({size.name, member.name, seed, train::parse_config(config.dump(), where, settings)});
      }
    }
  }
  return runs;
}

}  // namespace unchain::study
