#include "model/config.h"

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace unchain::model {
namespace {

using ops::Activation;
using ops::RopePairs;

constexpr Architecture kArchitectures[] = {
    {.name = "llama",
     .hugging_face = "llama",
     .hugging_face_class = "LlamaForCausalLM",
     .activation = Activation::silu,
     .query_key_norm = false,
     .post_norms = false,
     .hugging_face_norm_plus_one = false,
     .scaled_embedding = false,
     .tied_by_default = false,
     .gguf_pairs = RopePairs::neighbours,
     .window_pattern = 0,
     .theta = 10000,
     .local_theta = 10000,
     .head_dim = 0},
    {.name = "gemma3",
     .hugging_face = "gemma3_text",
     .hugging_face_class = "Gemma3ForCausalLM",
     .activation = Activation::gelu_tanh,
     .query_key_norm = true,
     .post_norms = true,
     .hugging_face_norm_plus_one = true,
     .scaled_embedding = true,
     .tied_by_default = true,
     .gguf_pairs = RopePairs::halves,
     .window_pattern = 6,
     .theta = 1e6,
     .local_theta = 1e4,
     .head_dim = 256},
};

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& row : kArchitectures) {
    if (row.name == name || row.hugging_face == name) return &row;
  }
  return nullptr;
}

std::string architecture_names() {
  std::string names;
  for (const Architecture& row : kArchitectures) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

std::vector<double> RopeConfig::frequencies(int64_t head_dim) const {
  const int64_t half = head_dim / 2;
  std::vector<double> result(static_cast<size_t>(half));
  for (int64_t i = 0; i < half; ++i) {
    double f = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (scaling == Scaling::linear) f /= factor;
    if (scaling == Scaling::llama3) {
      // Slow turns are stretched by `factor`, fast ones kept, those between blended (Llama 3.1 model card).
      const double wave = 2 * std::numbers::pi / f;
      const double blend =
          (original_context / wave - low_frequency_factor) / (high_frequency_factor - low_frequency_factor);
      const double kept = std::fmin(std::fmax(blend, 0.0), 1.0);
      f = (1 - kept) * f / factor + kept * f;
    }
    if (!divisors.empty()) f /= divisors[static_cast<size_t>(i)];
    result[static_cast<size_t>(i)] = f;
  }
  return result;
}

void check(const Config& config, std::string_view where) {
  const auto in_range = [&](std::string_view what, int64_t value, int64_t most) {
    if (value < 1 || value > most) fail(ErrorCode::format, "{}: {} is {}, expected 1 to {}", where, what, value, most);
  };
  // Far above any model there is; small enough that no product of three of them overflows.
  in_range("vocabulary", config.vocabulary, 1 << 22);
  in_range("context length", config.context, int64_t{1} << 31);
  in_range("width", config.width, 1 << 18);
  in_range("feed-forward width", config.feed_forward, 1 << 20);
  in_range("layer count", config.layer_count(), 4096);
  in_range("head count", config.heads, 4096);
  in_range("KV head count", config.kv_heads, config.heads);
  in_range("head width", config.head_dim, 4096);
  if (config.heads % config.kv_heads != 0) {
    fail(ErrorCode::format, "{}: {} heads cannot share {} KV heads evenly", where, config.heads, config.kv_heads);
  }
  if (config.head_dim % 2 != 0)
    fail(ErrorCode::format, "{}: head width {} is odd, rotary position needs an even one", where, config.head_dim);
  const auto positive = [&](std::string_view what, double value) {
    if (!(value > 0) || !std::isfinite(value))
      fail(ErrorCode::format, "{}: {} is {}, expected a positive number", where, what, value);
  };
  positive("norm epsilon", config.norm_eps);
  positive("score scale", config.attention_scale);
  for (const float cap : {config.attention_cap, config.logit_cap}) {
    if (!(cap >= 0) || !std::isfinite(cap))
      fail(ErrorCode::format, "{}: soft cap is {}, expected 0 or more", where, cap);
  }
  for (const RopeConfig& rope : config.ropes) {
    positive("rotary base", rope.theta);
    positive("rotary scaling factor", rope.factor);
    if (rope.scaling == RopeConfig::Scaling::llama3 && !(rope.high_frequency_factor > rope.low_frequency_factor)) {
      fail(ErrorCode::format, "{}: high_freq_factor {} is not above low_freq_factor {}", where,
           rope.high_frequency_factor, rope.low_frequency_factor);
    }
    if (!rope.divisors.empty() && static_cast<int64_t>(rope.divisors.size()) != config.head_dim / 2) {
      fail(ErrorCode::shape, "{}: {} rotary frequency factors, expected head width/2 = {}", where, rope.divisors.size(),
           config.head_dim / 2);
    }
    for (const double divisor : rope.divisors) positive("rotary frequency factor", divisor);
  }
  positive("spread of new weights", config.initializer_range);
  if (config.attention.last_layer >= config.layer_count()) {
    fail(ErrorCode::format, "{}: attention: layers up to {}, but there are {}", where, config.attention.last_layer,
         config.layer_count());
  }
  try {
    attention::shape_of(config.attention, config.heads, config.kv_heads, config.head_dim);
  } catch (const Error& error) {
    fail(ErrorCode::format, "{}: {}", where, error.what());
  }
  // What shape_of() cannot know: a low-rank change reads the model's width, a calibrated map has as many rows as a
  // text.
  const attention::AttentionConfig& family = config.attention;
  if ((family.low_rank_queries && family.rank > config.width) || (family.calibrated && family.rank > config.context)) {
    fail(ErrorCode::format, "{}: attention '{}': rank {}, expected 1 to {}, the {}", where, family.preset, family.rank,
         family.calibrated ? config.context : config.width,
         family.calibrated ? "longest text (max_position_embeddings)" : "model's width (hidden_size)");
  }
  for (const LayerConfig& layer : config.layers) {
    if (layer.window < 0 || layer.rope >= config.ropes.size())
      fail(ErrorCode::format, "{}: attention window {} is negative", where, layer.window);
  }
}

}  // namespace unchain::model
