// The tokenizer of a Hugging Face folder, with what its other files say about it.
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/file.h"
#include "formats/json.h"
#include "formats/text.h"
#include "tokenizer/readers.h"

namespace unchain::tokenizer {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::optional<json> read_object(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  json object = formats::parse_json(read_text(path), path.string());
  if (!object.is_object()) fail(ErrorCode::format, "{}: the JSON is not an object", path.string());
  return object;
}

// "<s>" or {"content": "<s>", …}; null leaves the id as it is.
void name_token(const json& config, const char* key, const Vocabulary& v, int32_t& id) {
  auto value = config.find(key);
  if (value == config.end() || value->is_null()) return;
  const json& content = value->is_object() && value->contains("content") ? value->at("content") : *value;
  if (!content.is_string()) fail(ErrorCode::format, "{}: {} of tokenizer_config.json is not a string", v.name, key);
  const auto piece = std::find(v.pieces.begin(), v.pieces.end(), content.get_ref<const std::string&>());
  if (piece == v.pieces.end()) {
    fail(ErrorCode::format, "{}: {} of tokenizer_config.json is '{}', which the vocabulary does not have", v.name, key,
         formats::printable(content.get_ref<const std::string&>()));
  }
  id = static_cast<int32_t>(piece - v.pieces.begin());
}

void apply_config(const json& config, Vocabulary& v) {
  name_token(config, "bos_token", v, v.bos);
  name_token(config, "eos_token", v, v.eos);
  if (const auto add = config.find("add_bos_token"); add != config.end() && !add->is_null()) {
    if (!add->is_boolean()) fail(ErrorCode::format, "{}: add_bos_token is not true or false", v.name);
    v.add_bos = add->get<bool>();
  }
  if (config.value("add_eos_token", json()) == true) v.warnings.push_back(eos_not_added(v.name));
}

// A number or a list of numbers.
std::vector<int32_t> ids_of(const json& object, const char* key, const fs::path& path, size_t pieces) {
  std::vector<int32_t> ids;
  const json value = object.value(key, json());
  if (value.is_null()) return ids;
  const json list = value.is_array() ? value : json::array({value});
  for (const json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<uint64_t>() >= pieces) {
      fail(ErrorCode::format, "{}: {} holds {}, expected ids below {}", path.string(), key,
           formats::printable(id.dump()), pieces);
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

Vocabulary read_folder(const fs::path& folder, const std::string& pretokenizer) {
  const fs::path json_path = folder / "tokenizer.json", model_path = folder / "tokenizer.model";
  Vocabulary v;
  if (fs::exists(json_path)) {
    v = read_tokenizer_json(read_text(json_path), json_path.string(), pretokenizer);
  } else if (fs::exists(model_path)) {
    v = read_sentencepiece_model(read_text(model_path), model_path.string());
    ignore_pretokenizer(v, pretokenizer);
  } else {
    fail(ErrorCode::io, "{}: neither tokenizer.json nor tokenizer.model is there", folder.string());
  }
  if (const auto config = read_object(folder / "tokenizer_config.json")) apply_config(*config, v);
  const fs::path generation = folder / "generation_config.json", model = folder / "config.json";
  if (const auto object = read_object(generation))
    v.stops = ids_of(*object, "eos_token_id", generation, v.pieces.size());
  if (v.eos < 0 && v.stops.empty()) {
    if (const auto object = read_object(model)) v.stops = ids_of(*object, "eos_token_id", model, v.pieces.size());
  }
  if (v.eos < 0 && !v.stops.empty()) v.eos = v.stops.front();
  return v;
}

std::unique_ptr<Tokenizer> from_folder(const fs::path& folder, const std::string& pretokenizer) {
  return make_tokenizer(read_folder(folder, pretokenizer));
}

}  // namespace unchain::tokenizer
