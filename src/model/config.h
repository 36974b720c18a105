// What a model is: sizes, and which of the parts of the one transformer it has.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attention/family.h"
#include "ops/gated.h"
#include "ops/rope.h"

namespace unchain::model {

// How the turning frequencies of rotary position follow from the base, and from a stretch to longer contexts.
struct RopeConfig {
  enum class Scaling { none, linear, llama3 };
  double theta = 10000;
  Scaling scaling = Scaling::none;
  double factor = 1;                 // linear, llama3: frequencies divided by
  double low_frequency_factor = 1;   // llama3
  double high_frequency_factor = 4;  // llama3
  double original_context = 0;       // llama3
  std::vector<double> divisors;      // of each frequency, as GGUF files store llama3's; empty: none

  // Frequencies [head_dim/2]: theta^(−2i/head_dim), scaled.
  std::vector<double> frequencies(int64_t head_dim) const;
};

struct LayerConfig {
  int64_t window = 0;  // positions that attention sees; 0: all
  size_t rope = 0;     // index into Config::ropes
};

// One row a family of models: the parts that its name implies. Adding an architecture is adding a row
// (docs/add-a-model.md).
struct Architecture {
  std::string_view name;          // as in GGUF, and our name for it
  std::string_view hugging_face;  // `model_type` of config.json
  std::string_view hugging_face_class;
  ops::Activation activation;
  bool query_key_norm;              // RMSNorm of each head's query and key before rotary position
  bool post_norms;                  // further norms after attention and feed-forward, before they are added
  bool hugging_face_norm_plus_one;  // Hugging Face stores norm weights as w − 1
  bool scaled_embedding;            // × √width
  bool tied_by_default;             // the output is the token embedding unless the file says otherwise
  ops::RopePairs gguf_pairs;        // how rows of q and k are ordered in GGUF files
  int64_t window_pattern;           // default: every n-th layer sees everything, the rest a window; 0: no pattern
  double theta;                     // default base of rotary position
  double local_theta;               // of layers with a window, where there is a pattern
  int64_t head_dim;                 // default of config.json; 0: width/heads
};

// The row of that GGUF name or Hugging Face model_type; nullptr if there is none.
const Architecture* find_architecture(std::string_view name);
// All supported names, for messages: "llama, gemma3".
std::string architecture_names();

struct Config {
  const Architecture* architecture = nullptr;
  int64_t vocabulary = 0;
  int64_t context = 0;       // positions that the model was trained for
  int64_t width = 0;         // D
  int64_t feed_forward = 0;  // F
  int64_t heads = 0;         // H
  int64_t kv_heads = 0;      // G
  int64_t head_dim = 0;      // E = W
  float norm_eps = 1e-5f;
  float attention_scale = 1;
  float embedding_scale = 1;
  float attention_cap = 0;
  float logit_cap = 0;
  bool tied = false;
  double initializer_range = 0.02;  // standard deviation of new weights
  attention::AttentionConfig attention;
  ops::RopePairs pairs = ops::RopePairs::halves;
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;

  int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
};

// The configuration that the text of a config.json gives; `where` names it in messages. Errors: format, unsupported.
Config config_from_json(const std::string& text, const std::string& where);

// Checks that sizes are positive, sane and fit each other; `where` begins the message. Error: format.
void check(const Config& config, std::string_view where);

}  // namespace unchain::model
