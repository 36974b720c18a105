#include "tokenizer/writers.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "base/check.h"
#include "base/file.h"
#include "tokenizer/pretokenizer.h"

namespace unchain::tokenizer {
namespace {

using nlohmann::json;
using Merges = std::vector<std::pair<std::string, std::string>>;

// The merges by rank that scores mean: for every piece, each way to put it together from two pieces; of several pieces
// the higher score first, of the ways of one piece in the order of its cuts.
Merges merges_of_scores(const Vocabulary& v) {
  std::unordered_map<std::string_view, size_t> ids;
  std::vector<size_t> order;
  for (size_t i = 0; i < v.pieces.size(); ++i) {
    if (v.types[i] != PieceType::normal) continue;
    ids.emplace(v.pieces[i], i);
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return v.scores[a] > v.scores[b]; });
  Merges merges;
  for (const size_t i : order) {
    const std::string_view piece = v.pieces[i];
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      if (ids.contains(piece.substr(0, cut)) && ids.contains(piece.substr(cut)))
        merges.emplace_back(piece.substr(0, cut), piece.substr(cut));
    }
  }
  return merges;
}

json byte_level_steps(const Vocabulary& v) {
  json steps = json::array();
  for (const std::string& pattern : v.patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

json blank_steps(const Vocabulary& v) {
  const std::string blank(kBlank);
  json steps = json::array();
  if (v.blank_prefix) steps.push_back({{"type", "Prepend"}, {"prepend", blank}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", blank}});
  return {{"type", "Sequence"}, {"normalizers", steps}};
}

json blank_decoder(const Vocabulary& v) {
  const std::string blank(kBlank);
  json steps = {{{"type", "Replace"}, {"pattern", {{"String", blank}}}, {"content", " "}},
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}}};
  if (v.blank_prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", steps}};
}

json added_tokens(const Vocabulary& v) {
  json tokens = json::array();
  for (size_t i = 0; i < v.pieces.size(); ++i) {
    if (v.types[i] != PieceType::control && v.types[i] != PieceType::user_defined && v.types[i] != PieceType::unknown)
      continue;
    tokens.push_back({{"id", i},
                      {"content", v.pieces[i]},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", v.types[i] != PieceType::user_defined}});
  }
  return tokens;
}

// Puts BOS in front, as add_bos says.
json bos_processor(const Vocabulary& v) {
  if (!v.add_bos || v.bos < 0) return nullptr;
  const std::string& bos = v.pieces[static_cast<size_t>(v.bos)];
  const json front = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  const auto text = [](const char* which, int type) { return json{{"Sequence", {{"id", which}, {"type_id", type}}}}; };
  return {{"type", "TemplateProcessing"},
          {"single", json::array({front, text("A", 0)})},
          {"pair", json::array({front, text("A", 0), front, text("B", 1)})},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", {v.bos}}, {"tokens", {bos}}}}}}};
}

}  // namespace

std::vector<formats::GgufEntry> gguf_entries(const Vocabulary& v) {
  std::vector<formats::GgufEntry> entries;
  const auto add = [&](const char* key, formats::GgufValue value) {
    entries.push_back({std::string("tokenizer.ggml.") + key, std::move(value)});
  };
  const auto list = [&](const char* key, auto elements) {
    add(key, std::make_shared<const formats::GgufArray>(formats::GgufArray{std::move(elements)}));
  };
  const bool byte_level = v.kind == Vocabulary::Kind::byte_level;
  add("model", std::string(byte_level ? "gpt2" : "llama"));
  if (byte_level) {
    // Files name their patterns; find the name by the patterns where a tokenizer.json has brought its own.
    std::string name = v.pretokenizer;
    if (find_pretokenizer(name) == nullptr) {
      for (const KnownPretokenizer& known : known_pretokenizers()) {
        if (std::equal(known.patterns.begin(), known.patterns.end(), v.patterns.begin(), v.patterns.end()))
          name = known.names.front();
      }
    }
    if (find_pretokenizer(name) == nullptr)
      fail(ErrorCode::unsupported, "{}: GGUF has no name for this tokenizer's patterns; known are {}", v.name,
           pretokenizer_names());
    add("pre", name);
  }
  list("tokens", v.pieces);
  std::vector<int32_t> types;
  for (const PieceType type : v.types) types.push_back(static_cast<int32_t>(type));
  list("token_type", std::move(types));
  if (byte_level) {
    std::vector<std::string> merges;
    for (const auto& [left, right] : v.merges) merges.push_back(fmt::format("{} {}", left, right));
    list("merges", std::move(merges));
  } else {
    std::vector<float> scores = v.scores;
    if (scores.empty()) {
      // Merged earlier, higher score: the rank of the first merge that makes the piece. Single characters never merge.
      std::unordered_map<std::string, float> rank;
      for (size_t i = 0; i < v.merges.size(); ++i)
        rank.emplace(v.merges[i].first + v.merges[i].second, -static_cast<float>(i) - 1);
      for (const std::string& piece : v.pieces) {
        const auto found = rank.find(piece);
        scores.push_back(found == rank.end() ? 0.0f : found->second);
      }
    }
    list("scores", std::move(scores));
    add("add_space_prefix", v.blank_prefix);
  }
  for (const auto& [key, id] :
       {std::pair{"bos_token_id", v.bos}, {"eos_token_id", v.eos}, {"unknown_token_id", v.unknown}}) {
    if (id >= 0) add(key, static_cast<uint32_t>(id));
  }
  for (const int32_t stop : v.stops) {
    if (stop != v.eos) {
      add("eot_token_id", static_cast<uint32_t>(stop));
      break;
    }
  }
  add("add_bos_token", v.add_bos);
  return entries;
}

void write_folder(const Vocabulary& v, const std::filesystem::path& folder, const std::string& chat_template) {
  const bool byte_level = v.kind == Vocabulary::Kind::byte_level;
  json vocabulary = json::object();
  for (size_t i = 0; i < v.pieces.size(); ++i) {
    if (v.types[i] != PieceType::unused) vocabulary[v.pieces[i]] = i;
  }
  json merges = json::array();
  for (const auto& [left, right] : v.merges.empty() && !byte_level ? merges_of_scores(v) : v.merges)
    merges.push_back({left, right});
  const json unknown = v.unknown >= 0 ? json(v.pieces[static_cast<size_t>(v.unknown)]) : json();
  const json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(v)},
      {"normalizer", byte_level ? json() : blank_steps(v)},
      {"pre_tokenizer", byte_level ? byte_level_steps(v) : json()},
      {"post_processor", bos_processor(v)},
      {"decoder",
       byte_level ? json{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}
                  : blank_decoder(v)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", unknown},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", !byte_level},
        {"byte_fallback", !byte_level},
        {"ignore_merges", v.whole_words},
        {"vocab", vocabulary},
        {"merges", merges}}}};
  write_text(folder / "tokenizer.json", tokenizer.dump() + "\n");
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"add_bos_token", v.add_bos},
                 {"clean_up_tokenization_spaces", false}};
  for (const auto& [key, id] : {std::pair{"bos_token", v.bos}, {"eos_token", v.eos}, {"unk_token", v.unknown}}) {
    if (id >= 0) config[key] = v.pieces[static_cast<size_t>(id)];
  }
  if (!chat_template.empty()) config["chat_template"] = chat_template;
  write_text(folder / "tokenizer_config.json", config.dump(2) + "\n");
  std::vector<int32_t> stops = v.stops;
  if (v.eos >= 0 && std::find(stops.begin(), stops.end(), v.eos) == stops.end()) stops.insert(stops.begin(), v.eos);
  json generation = {{"eos_token_id", stops}};
  if (v.bos >= 0) generation["bos_token_id"] = v.bos;
  write_text(folder / "generation_config.json", generation.dump(2) + "\n");
}

}  // namespace unchain::tokenizer
