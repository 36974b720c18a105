#include "support/tiny_model.h"

#include "formats/safetensors.h"
#include "model/member.h"
#include "support/random_values.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

constexpr int64_t kLayers = 3, kWidth = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kFeedForward = 40;

class Weights {
 public:
  explicit Weights(const TinyModel& options) : options_(options) {}
  void add(const std::string& name, Shape shape, std::vector<float> values) {
    if (options_.change) options_.change(name, values);
    auto data = std::make_shared<std::vector<float>>(std::move(values));
    tensors_.push_back({name, DType::f32, std::move(shape), std::as_bytes(std::span(*data)), data});
  }
  void matrix(const std::string& name, int64_t rows, int64_t cols, bool silent) {
    const double scale = silent ? 0 : 1 / std::sqrt(static_cast<double>(cols));
    add(name, {rows, cols}, random_floats(static_cast<size_t>(rows * cols), tensors_.size() + 1, 1.5 * scale));
  }
  void norm(const std::string& name, int64_t width) {
    auto values = random_floats(static_cast<size_t>(width), tensors_.size() + 1, 0.1);
    for (float& x : values) x += options_.architecture == "gemma3" ? 0.0f : 1.0f;  // gemma3 stores w − 1
    if (options_.chain) std::fill(values.begin(), values.end(), options_.architecture == "gemma3" ? 0.0f : 1.0f);
    add(name, {width}, std::move(values));
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  const TinyModel& options_;
  std::vector<Tensor> tensors_;
};

void add_layer(Weights& weights, const TinyModel& options, int64_t layer) {
  const std::string name = "model.layers." + std::to_string(layer) + ".";
  const bool gemma = options.architecture == "gemma3";
  weights.norm(name + "input_layernorm.weight", kWidth);
  weights.matrix(name + "self_attn.q_proj.weight", kHeads * kHeadDim, kWidth, false);
  weights.matrix(name + "self_attn.k_proj.weight", kKvHeads * kHeadDim, kWidth, false);
  weights.matrix(name + "self_attn.v_proj.weight", kKvHeads * kHeadDim, kWidth, false);
  weights.matrix(name + "self_attn.o_proj.weight", kWidth, kHeads * kHeadDim, options.chain);
  weights.norm(name + "post_attention_layernorm.weight", kWidth);
  weights.matrix(name + "mlp.gate_proj.weight", kFeedForward, kWidth, false);
  weights.matrix(name + "mlp.up_proj.weight", kFeedForward, kWidth, false);
  weights.matrix(name + "mlp.down_proj.weight", kWidth, kFeedForward, options.chain);
  if (!gemma) return;
  weights.norm(name + "self_attn.q_norm.weight", kHeadDim);
  weights.norm(name + "self_attn.k_norm.weight", kHeadDim);
  weights.norm(name + "pre_feedforward_layernorm.weight", kWidth);
  weights.norm(name + "post_feedforward_layernorm.weight", kWidth);
}

}  // namespace

void write_tiny_model(const std::filesystem::path& folder, const TinyModel& options) {
  const bool gemma = options.architecture == "gemma3", byte_level = options.tokenizer == "byte_level";
  const int64_t vocabulary = byte_level ? 900 : 700;
  std::filesystem::create_directories(folder);
  nlohmann::json config = {{"model_type", gemma ? "gemma3_text" : "llama"},
                           {"vocab_size", vocabulary},
                           {"hidden_size", kWidth},
                           {"intermediate_size", kFeedForward},
                           {"num_hidden_layers", kLayers},
                           {"num_attention_heads", kHeads},
                           {"num_key_value_heads", kKvHeads},
                           {"head_dim", kHeadDim},
                           {"max_position_embeddings", 256},
                           {"rms_norm_eps", 1e-5},
                           {"tie_word_embeddings", !options.chain},
                           {"eos_token_id", 2}};
  if (options.attention != "softmax") config["attention"] = {{"preset", options.attention}};
  if (gemma) {
    config.update({{"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}},
                   {"sliding_window", 6},
                   {"query_pre_attn_scalar", 8},
                   {"rope_theta", 1e6},
                   {"rope_local_base_freq", 1e4}});
  }
  write_file(folder / "config.json", config.dump(1));
  if (!options.tokenizer.empty()) {
    std::filesystem::copy_file(std::filesystem::path(UNCHAIN_TEST_DATA) / "tokenizer" / (options.tokenizer + ".json"),
                               folder / "tokenizer.json", std::filesystem::copy_options::overwrite_existing);
    const nlohmann::json tokenizer_config = {{"bos_token", byte_level ? "<|im_start|>" : "<s>"},
                                             {"eos_token", byte_level ? "<|im_end|>" : "</s>"}};
    write_file(folder / "tokenizer_config.json", tokenizer_config.dump(1));
  }
  Weights weights(options);
  const auto size = static_cast<size_t>(vocabulary * kWidth);
  const auto embedding = random_floats(size, 1000, 0.5);
  weights.add("model.embed_tokens.weight", {vocabulary, kWidth}, embedding);
  if (options.chain) {  // row t + 1 of the output is the embedding of t
    std::vector<float> head(size);
    const auto last = embedding.end() - kWidth;
    std::copy(embedding.begin(), last, head.begin() + kWidth);
    std::copy(last, embedding.end(), head.begin());
    weights.add("lm_head.weight", {vocabulary, kWidth}, std::move(head));
  }
  weights.norm("model.norm.weight", kWidth);
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    add_layer(weights, options, layer);
    for (const auto& extra : model::extra_tensors(model::config_from_json(config.dump(), "config.json"), layer)) {
      weights.add("model.layers." + std::to_string(layer) + ".self_attn." + extra.name, extra.shape,
                  random_floats(static_cast<size_t>(element_count(extra.shape)), static_cast<uint64_t>(layer)));
    }
  }
  formats::write_safetensors_folder(folder, weights.tensors());
}

}  // namespace unchain::test
