// Configuration from GGUF metadata. Keys: the GGUF specification of the ggml project.
#include <cmath>

#include "base/check.h"
#include "model/model_file.h"

namespace unchain::model {
namespace {

// Reads keys "ARCHITECTURE.name", with the file's name in messages.
class Keys {
 public:
  Keys(const formats::GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}
  std::optional<int64_t> integer(std::string_view key) const { return file_.integer(full(key)); }
  std::optional<double> number(std::string_view key) const { return file_.number(full(key)); }
  std::optional<std::string> string(std::string_view key) const { return file_.string(full(key)); }
  int64_t required(std::string_view key) const {
    const auto value = integer(key);
    if (!value) fail(ErrorCode::format, "{}: the key {} is missing", file_.name(), full(key));
    return *value;
  }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", prefix_, key); }

 private:
  const formats::GgufFile& file_;
  std::string prefix_;
};

RopeConfig rope_config(const formats::GgufFile& file, const Keys& keys, const Config& config) {
  RopeConfig rope;
  rope.theta = keys.number("rope.freq_base").value_or(config.architecture->theta);
  const std::string scaling = keys.string("rope.scaling.type").value_or("linear");
  const double factor = keys.number("rope.scaling.factor").value_or(keys.number("rope.scale_linear").value_or(0));
  if (scaling == "linear" && factor != 0 && factor != 1) {
    rope.scaling = RopeConfig::Scaling::linear;
    rope.factor = factor;
  } else if (scaling != "linear" && scaling != "none") {
    fail(ErrorCode::unsupported,
         "{}: rotary scaling '{}' is not supported (none and linear are, and a tensor rope_freqs.weight)", file.name(),
         scaling);
  }
  const Tensor* divisors = file.find("rope_freqs.weight");
  if (divisors != nullptr) {
    if (divisors->type != DType::f32 || divisors->shape.size() != 1) {
      fail(ErrorCode::format, "{}: rope_freqs.weight is {} {}, expected one dimension of f32", file.name(),
           info(divisors->type).name, to_string(divisors->shape));
    }
    rope.divisors.assign(divisors->f32(), divisors->f32() + divisors->elements());
  }
  return rope;
}

// Every `pattern`-th layer sees everything; 0: none does.
void add_windows(Config& config, const formats::GgufFile& file, const Keys& keys, int64_t window) {
  RopeConfig local;
  local.theta = keys.number("rope.freq_base_swa").value_or(config.architecture->local_theta);
  config.ropes.push_back(local);
  std::vector<int64_t> flags;
  int64_t pattern = config.architecture->window_pattern;
  const std::string key = keys.full("attention.sliding_window_pattern");
  const formats::GgufValue* value = file.value(key);
  if (value != nullptr && std::holds_alternative<std::shared_ptr<const formats::GgufArray>>(*value)) {
    const auto& elements = std::get<std::shared_ptr<const formats::GgufArray>>(*value)->elements;
    if (const auto* booleans = std::get_if<std::vector<bool>>(&elements)) {
      flags.assign(booleans->begin(), booleans->end());
    } else {
      flags = *file.integers(key);
    }
    if (flags.size() != config.layers.size()) {
      fail(ErrorCode::format, "{}: {} has {} entries, expected one for each of {} layers", file.name(), key,
           flags.size(), config.layers.size());
    }
  } else if (value != nullptr) {
    pattern = *file.integer(key);
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool windowed =
        flags.empty() ? pattern <= 0 || static_cast<int64_t>(i) % pattern != pattern - 1 : flags[i] != 0;
    if (windowed) config.layers[i] = {.window = window, .rope = 1};
  }
}

}  // namespace

Config config_from_gguf(const formats::GgufFile& file) {
  const auto name = file.string("general.architecture");
  if (!name) fail(ErrorCode::format, "{}: the key general.architecture is missing", file.name());
  Config config;
  config.architecture = find_architecture(*name);
  if (config.architecture == nullptr || config.architecture->name != *name) {
    fail(ErrorCode::unsupported, "{}: architecture '{}' is not supported, these are: {}", file.name(), *name,
         architecture_names());
  }
  const Keys keys(file, *name);
  const Architecture& family = *config.architecture;
  const int64_t layers = keys.required("block_count");
  if (layers < 1 || layers > 4096)
    fail(ErrorCode::format, "{}: {} is {}, expected 1 to 4096", file.name(), keys.full("block_count"), layers);
  config.layers.resize(static_cast<size_t>(layers));
  config.context = keys.required("context_length");
  config.width = keys.required("embedding_length");
  config.feed_forward = keys.required("feed_forward_length");
  config.heads = keys.required("attention.head_count");
  config.kv_heads = keys.integer("attention.head_count_kv").value_or(config.heads);
  if (config.heads < 1)
    fail(ErrorCode::format, "{}: {} is {}", file.name(), keys.full("attention.head_count"), config.heads);
  config.head_dim = keys.integer("attention.key_length").value_or(config.width / config.heads);
  if (const auto values = keys.integer("attention.value_length"); values && *values != config.head_dim) {
    fail(ErrorCode::unsupported, "{}: value width {} differs from key width {}", file.name(), *values, config.head_dim);
  }
  if (const auto turned = keys.integer("rope.dimension_count"); turned && *turned != config.head_dim) {
    fail(ErrorCode::unsupported, "{}: rotary position over {} of {} dimensions of a head is not supported", file.name(),
         *turned, config.head_dim);
  }
  const auto eps = keys.number("attention.layer_norm_rms_epsilon");
  if (!eps)
    fail(ErrorCode::format, "{}: the key {} is missing", file.name(), keys.full("attention.layer_norm_rms_epsilon"));
  config.norm_eps = static_cast<float>(*eps);
  const double scale = keys.number("attention.scale").value_or(0);
  config.attention_scale = static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(config.head_dim)));
  config.embedding_scale = family.scaled_embedding ? std::sqrt(static_cast<float>(config.width)) : 1.0f;
  config.attention_cap = static_cast<float>(keys.number("attn_logit_softcapping").value_or(0));
  config.logit_cap = static_cast<float>(keys.number("final_logit_softcapping").value_or(0));
  config.pairs = family.gguf_pairs;
  config.ropes.push_back(rope_config(file, keys, config));
  const int64_t window = keys.integer("attention.sliding_window").value_or(0);
  if (window > 0 && family.window_pattern > 0) add_windows(config, file, keys, window);
  if (window > 0 && family.window_pattern == 0) {
    for (LayerConfig& layer : config.layers) layer.window = window;
  }
  const Tensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2)
    fail(ErrorCode::format, "{}: the tensor token_embd.weight is missing or not a matrix", file.name());
  config.vocabulary = embedding->dim(0);
  config.tied = file.find("output.weight") == nullptr;
  check(config, file.name());
  return config;
}

}  // namespace unchain::model
