// Configuration from a Hugging Face config.json, in the older form (rope_theta, rope_scaling) and the present one
// (rope_parameters). A null value means the same as an absent key.
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "formats/json.h"
#include "model/config_attention.h"
#include "model/model_file.h"

namespace unchain::model {
namespace {

using nlohmann::json;

// A JSON object with typed, checked access; `where` begins every message.
class Keys {
 public:
  Keys(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  int64_t integer(const char* key, std::optional<int64_t> otherwise = {}) const {
    const json* value = need(key, otherwise.has_value());
    if (value == nullptr) return *otherwise;
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX))
      wrong(key, *value, "a whole number");
    return value->get<int64_t>();
  }
  double number(const char* key, std::optional<double> otherwise = {}) const {
    const json* value = need(key, otherwise.has_value());
    if (value == nullptr) return *otherwise;
    if (!value->is_number()) wrong(key, *value, "a number");
    return value->get<double>();
  }
  bool boolean(const char* key, bool otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) wrong(key, *value, "true or false");
    return value->get<bool>();
  }
  std::string string(const char* key, const std::string& otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) wrong(key, *value, "a string");
    return value->get<std::string>();
  }
  std::optional<Keys> object(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) return {};
    if (!value->is_object()) wrong(key, *value, "an object");
    return Keys(*value, where_ + ": " + key);
  }
  const std::string& where() const { return where_; }
  [[noreturn]] void wrong(const char* key, const json& found, const char* expected) const {
    fail(ErrorCode::format, "{}: '{}' is {}, expected {}", where_, key, found.dump().substr(0, 60), expected);
  }

 private:
  const json* need(const char* key, bool optional) const {
    const json* value = find(key);
    if (value == nullptr && !optional) fail(ErrorCode::format, "{}: the key '{}' is missing", where_, key);
    return value;
  }
  const json& object_;
  std::string where_;
};

RopeConfig rope_from(const Keys& keys, double theta, int64_t context) {
  RopeConfig rope;
  rope.theta = keys.number("rope_theta", theta);
  const std::string type = keys.string("rope_type", keys.string("type", "default"));
  if (keys.number("partial_rotary_factor", 1.0) != 1.0)
    fail(ErrorCode::unsupported, "{}: a partial_rotary_factor other than 1 is not supported", keys.where());
  if (type == "default") return rope;
  rope.factor = keys.number("factor");
  if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::linear;
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::llama3;
    rope.low_frequency_factor = keys.number("low_freq_factor");
    rope.high_frequency_factor = keys.number("high_freq_factor");
    rope.original_context = keys.number("original_max_position_embeddings", static_cast<double>(context));
  } else {
    fail(ErrorCode::unsupported, "{}: rope_type '{}' is not supported (default, linear and llama3 are)", keys.where(),
         type);
  }
  return rope;
}

// The rotary settings of all layers, or of the layers that see everything.
RopeConfig main_rope(const Keys& keys, const Config& config) {
  const double theta = keys.number("rope_theta", config.architecture->theta);
  // A rope_scaling that is there replaces rope_parameters, as in transformers.
  const auto scaling = keys.object("rope_scaling");
  const auto parameters = keys.object("rope_parameters");
  RopeConfig rope;
  rope.theta = theta;
  if (scaling) {
    rope = rope_from(*scaling, theta, config.context);
  } else if (parameters) {
    const auto full = parameters->object("full_attention");
    const bool by_kind = full || parameters->find("sliding_attention") != nullptr;
    if (!by_kind) rope = rope_from(*parameters, theta, config.context);
    if (full) rope = rope_from(*full, theta, config.context);
  }
  if (rope.scaling == RopeConfig::Scaling::llama3)
    rope.original_context = keys.number("original_max_position_embeddings", rope.original_context);
  return rope;
}

RopeConfig local_rope(const Keys& keys, const Config& config) {
  const double theta = keys.number("rope_local_base_freq", config.architecture->local_theta);
  const auto parameters = keys.object("rope_parameters");
  const auto sliding =
      parameters && !keys.find("rope_scaling") ? parameters->object("sliding_attention") : std::nullopt;
  if (sliding) return rope_from(*sliding, theta, config.context);
  RopeConfig rope;
  rope.theta = theta;
  return rope;
}

// Which layers see a window: `layer_types` wins over the pattern.
void add_windows(Config& config, const Keys& keys) {
  const int64_t window = keys.integer("sliding_window", 4096);
  const int64_t pattern = keys.integer("sliding_window_pattern", config.architecture->window_pattern);
  if (window < 1 || pattern < 0)
    fail(ErrorCode::format, "{}: sliding_window {} with pattern {} makes no sense", keys.where(), window, pattern);
  config.ropes.push_back(local_rope(keys, config));
  const json* types = keys.find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != config.layers.size())) {
    keys.wrong("layer_types", *types, "a list with one entry a layer");
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    bool windowed = pattern == 0 || (static_cast<int64_t>(i) + 1) % pattern != 0;
    if (types != nullptr) {
      const json& type = (*types)[i];
      if (type != "sliding_attention" && type != "full_attention")
        keys.wrong("layer_types", type, "sliding_attention or full_attention");
      windowed = type == "sliding_attention";
    }
    if (windowed) config.layers[i] = {.window = window, .rope = 1};
  }
}

ops::Activation activation(const Keys& keys, ops::Activation otherwise) {
  const std::string name = keys.string("hidden_activation", keys.string("hidden_act", ""));
  if (name.empty()) return otherwise;
  if (name == "silu" || name == "swish") return ops::Activation::silu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return ops::Activation::gelu_tanh;
  fail(ErrorCode::unsupported, "{}: activation '{}' is not supported (silu and gelu_pytorch_tanh are)", keys.where(),
       name);
}

Config config_from(const json& root, const std::string& where) {
  const Keys top(root, where);
  const auto nested = top.object("text_config");
  const std::string type = top.string("model_type", "");
  if (type.empty()) fail(ErrorCode::format, "{}: the key 'model_type' is missing", where);
  Config config;
  // Both are llama but for their attention.
  const bool ours = type == "unchain", diffllama = type == "diffllama";
  if (ours && !top.find("attention")) fail(ErrorCode::format, "{}: the key 'attention' is missing", where);
  if (const json* described = top.find("attention")) config.attention = attention_from_json(*described, where);
  if (diffllama) config.attention = attention::preset("diff_v1");
  config.architecture = ours || diffllama
                            ? find_architecture("llama")
                            : find_architecture(nested ? nested->string("model_type", type + "_text") : type);
  if (config.architecture == nullptr || (config.architecture->hugging_face != type && !nested && !ours && !diffllama)) {
    fail(ErrorCode::unsupported, "{}: model_type '{}' is not supported, these are: {}", where, type,
         architecture_names());
  }
  const Keys& keys = nested ? *nested : top;
  const Architecture& family = *config.architecture;
  config.vocabulary = keys.integer("vocab_size");
  config.context = keys.integer("max_position_embeddings", 2048);
  config.width = keys.integer("hidden_size");
  config.feed_forward = keys.integer("intermediate_size");
  config.heads = keys.integer("num_attention_heads");
  config.kv_heads = keys.integer("num_key_value_heads", config.heads);
  const int64_t layers = keys.integer("num_hidden_layers");
  if (layers < 1 || layers > 4096 || config.heads < 1) {
    fail(ErrorCode::format, "{}: num_hidden_layers {} and num_attention_heads {}: expected 1 to 4096", where, layers,
         config.heads);
  }
  config.layers.resize(static_cast<size_t>(layers));
  config.head_dim = keys.integer("head_dim", family.head_dim ? family.head_dim : config.width / config.heads);
  if (config.head_dim < 1) {
    fail(ErrorCode::format, "{}: hidden_size {} and {} heads: a head is {} wide, expected 1 or more", where,
         config.width, config.heads, config.head_dim);
  }
  config.norm_eps = static_cast<float>(keys.number("rms_norm_eps", diffllama ? 1e-5 : 1e-6));
  const double scale_of = keys.number("query_pre_attn_scalar", family.head_dim ? static_cast<double>(family.head_dim)
                                                                               : static_cast<double>(config.head_dim));
  if (!(scale_of > 0))
    fail(ErrorCode::format, "{}: query_pre_attn_scalar is {}, expected a positive number", where, scale_of);
  config.attention_scale = static_cast<float>(1 / std::sqrt(scale_of));
  config.embedding_scale = family.scaled_embedding ? std::sqrt(static_cast<float>(config.width)) : 1.0f;
  config.logit_cap = static_cast<float>(keys.number("final_logit_softcapping", 0.0));
  if (keys.number("attn_logit_softcapping", 0.0) != 0)
    fail(ErrorCode::unsupported, "{}: attn_logit_softcapping is not supported for {}", where, family.name);
  if (keys.boolean("use_bidirectional_attention", false))
    fail(ErrorCode::unsupported, "{}: bidirectional attention is not supported", where);
  if (activation(keys, family.activation) != family.activation)
    fail(ErrorCode::unsupported, "{}: that activation is not supported for {}", where, family.name);
  config.initializer_range = keys.number("initializer_range", 0.02);
  config.tied = top.boolean("tie_word_embeddings", keys.boolean("tie_word_embeddings", family.tied_by_default));
  config.pairs = ops::RopePairs::halves;
  config.ropes.push_back(main_rope(keys, config));
  if (family.window_pattern > 0) add_windows(config, keys);
  check(config, where);
  return config;
}

}  // namespace

Config config_from_json(const std::string& text, const std::string& where) {
  return config_from(formats::parse_json(text, where), where);
}

Config config_from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  return config_from_json(read_text(path, size_t{16} << 20), path.string());
}

}  // namespace unchain::model
