#include "model/save_config.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "model/config_attention.h"

namespace unchain::model {
namespace {

bool has_windows(const Config& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerConfig& layer) { return layer.window > 0; });
}

int64_t window_of(const Config& config) {
  for (const LayerConfig& layer : config.layers) {
    if (layer.window > 0) return layer.window;
  }
  return 0;
}

double natural_scale(const Config& config) {
  return 1 / std::sqrt(static_cast<double>(config.head_dim));
}

// Llama 3's stretch, as GGUF stores it: what each frequency is divided by.
Tensor frequency_divisors(const Config& config) {
  RopeConfig plain;
  plain.theta = config.ropes[0].theta;
  const auto from = plain.frequencies(config.head_dim), to = config.ropes[0].frequencies(config.head_dim);
  const auto data = allocate_large(from.size() * sizeof(float));
  for (size_t i = 0; i < from.size(); ++i)
    reinterpret_cast<float*>(data.get())[i] = static_cast<float>(from[i] / to[i]);
  return {"rope_freqs.weight",
          DType::f32,
          {static_cast<int64_t>(from.size())},
          {data.get(), from.size() * sizeof(float)},
          data};
}

}  // namespace

uint32_t gguf_file_type(DType type) {
  switch (type) {
    case DType::f16:
      return 1;
    case DType::q8_0:
      return 7;
    case DType::bf16:
      return 32;
    default:
      return 0;
  }
}

std::vector<formats::GgufEntry> gguf_metadata(const Config& config, const std::string& name,
                                              std::vector<Tensor>& tensors) {
  const std::string prefix(config.architecture->name);
  std::vector<formats::GgufEntry> entries;
  const auto add = [&](const std::string& key, formats::GgufValue value) {
    entries.push_back({key, std::move(value)});
  };
  const auto size = [&](const std::string& key, int64_t value) {
    add(prefix + "." + key, static_cast<uint32_t>(value));
  };
  add("general.architecture", prefix);
  add("general.type", std::string("model"));
  add("general.name", name);
  size("block_count", config.layer_count());
  size("context_length", config.context);
  size("embedding_length", config.width);
  size("feed_forward_length", config.feed_forward);
  size("attention.head_count", config.heads);
  size("attention.head_count_kv", config.kv_heads);
  size("attention.key_length", config.head_dim);
  size("attention.value_length", config.head_dim);
  size("rope.dimension_count", config.head_dim);
  size("vocab_size", config.vocabulary);
  add(prefix + ".attention.layer_norm_rms_epsilon", config.norm_eps);
  add(prefix + ".rope.freq_base", static_cast<float>(config.ropes[0].theta));
  if (config.ropes[0].scaling == RopeConfig::Scaling::linear) {
    add(prefix + ".rope.scaling.type", std::string("linear"));
    add(prefix + ".rope.scaling.factor", static_cast<float>(config.ropes[0].factor));
  }
  if (config.ropes[0].scaling == RopeConfig::Scaling::llama3 || !config.ropes[0].divisors.empty())
    tensors.push_back(frequency_divisors(config));
  if (std::abs(config.attention_scale / natural_scale(config) - 1) > 1e-6)
    add(prefix + ".attention.scale", config.attention_scale);
  if (config.logit_cap != 0) add(prefix + ".final_logit_softcapping", config.logit_cap);
  if (has_windows(config)) {
    size("attention.sliding_window", window_of(config));
    std::vector<bool> windowed;
    for (const LayerConfig& layer : config.layers) windowed.push_back(layer.window > 0);
    if (config.architecture->window_pattern > 0) {
      add(prefix + ".attention.sliding_window_pattern",
          std::make_shared<const formats::GgufArray>(formats::GgufArray{windowed}));
      add(prefix + ".rope.freq_base_swa", static_cast<float>(config.ropes.back().theta));
    }
  }
  return entries;
}

nlohmann::json hugging_face_config(const Config& config, const std::string& dtype) {
  const Architecture& family = *config.architecture;
  nlohmann::json json = {{"architectures", {family.hugging_face_class}},
                         {"model_type", family.hugging_face},
                         {"vocab_size", config.vocabulary},
                         {"hidden_size", config.width},
                         {"intermediate_size", config.feed_forward},
                         {"num_hidden_layers", config.layer_count()},
                         {"num_attention_heads", config.heads},
                         {"num_key_value_heads", config.kv_heads},
                         {"head_dim", config.head_dim},
                         {"max_position_embeddings", config.context},
                         {"rms_norm_eps", shortest(config.norm_eps)},
                         {"tie_word_embeddings", config.tied},
                         {"rope_theta", config.ropes[0].theta},
                         {"torch_dtype", dtype}};
  if (is_diffllama(config.attention)) {
    json["architectures"] = {"DiffLlamaForCausalLM"};
    json["model_type"] = "diffllama";
    json["lambda_std_dev"] = 0.1;
    json["attention_bias"] = false;
  } else if (config.attention.preset != "softmax") {
    json["architectures"] = {"UnchainForCausalLM"};
    json["model_type"] = "unchain";
    json["attention"] = attention_to_json(config.attention);
  }
  json["initializer_range"] = config.initializer_range;
  const RopeConfig& rope = config.ropes[0];
  if (!rope.divisors.empty())
    fail(ErrorCode::unsupported,
         "config.json: cannot say the rotary frequency factors of this file (rope_freqs.weight)");
  if (rope.scaling == RopeConfig::Scaling::linear)
    json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", rope.factor}};
  if (rope.scaling == RopeConfig::Scaling::llama3) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", rope.factor},
                            {"low_freq_factor", rope.low_frequency_factor},
                            {"high_freq_factor", rope.high_frequency_factor},
                            {"original_max_position_embeddings", static_cast<int64_t>(rope.original_context)}};
  }
  const bool gelu = family.activation == ops::Activation::gelu_tanh;
  json[gelu ? "hidden_activation" : "hidden_act"] = gelu ? "gelu_pytorch_tanh" : "silu";
  if (config.logit_cap != 0) json["final_logit_softcapping"] = shortest(config.logit_cap);
  if (family.window_pattern > 0) {
    nlohmann::json types = nlohmann::json::array();
    for (const LayerConfig& layer : config.layers)
      types.push_back(layer.window > 0 ? "sliding_attention" : "full_attention");
    json["layer_types"] = types;
    json["sliding_window"] = has_windows(config) ? window_of(config) : config.context;
    json["rope_local_base_freq"] = config.ropes.size() > 1 ? config.ropes[1].theta : family.local_theta;
    // A whole number in the form's own terms (transformers refuses 256.0), which a scale stored as f32 gives back.
    const double scalar = 1 / (static_cast<double>(config.attention_scale) * config.attention_scale);
    if (std::abs(scalar - std::round(scalar)) < 1e-4 * scalar) {
      json["query_pre_attn_scalar"] = std::llround(scalar);
    } else {
      json["query_pre_attn_scalar"] = scalar;
    }
  }
  return json;
}

std::string config_json(const Config& config) {
  return hugging_face_config(config, "float32").dump(2) + "\n";
}

}  // namespace unchain::model
