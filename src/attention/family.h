// One description for every member of the attention family (methods: docs/math): P = A1 − λ·A2 on shared values, then a
// norm and gates. A member is a point in this space; names are presets (presets.cc). How to add one:
// docs/add-an-attention.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attention/layout.h"

namespace unchain::attention {

enum class PositiveMap { softmax, off_by_one, sink };
// Where A2 comes from: a second softmax map with keys of its own, over the same keys, or of heads that outputs share;
// or a state: learned prototypes, fixed rows.
enum class NoiseMap { none, own_keys, shared_keys, grouped, prototypes, fixed };
enum class LambdaRule { none, depth, token, head, held };
enum class Pairs { halves, neighbours };
enum class Accounting { halved, added };
enum class Gate { none, head, element };  // one for each output head, or for each number of it

struct AttentionConfig {
  std::string preset = "softmax";
  PositiveMap positive = PositiveMap::softmax;
  NoiseMap noise = NoiseMap::none;
  LambdaRule lambda = LambdaRule::none;
  float held_lambda = 0;
  bool lambda_gain = false;  // λ of each head times a learned gain that starts at 0
  Pairs pairs = Pairs::neighbours;
  Accounting accounting = Accounting::added;
  bool head_norm = false;  // RMSNorm of each output head, × (1 − λ_init)
  bool head_norm_affine = false;
  float head_norm_eps = 0;         // 0: the model's
  bool low_rank_queries = false;   // shared_diff: both maps share W_Q and W_K up to a change of rank `rank`
  int64_t rank = 0;                // prototypes, or of the low-rank changes
  int64_t ratio = 0;               // outputs a noise head, grouped
  std::vector<float> decays = {};  // fixed
  bool calibrated = false;         // fixed: in place of rows by formula a frozen map of rank `rank` a head
  Gate gate = Gate::none;
  int64_t first_layer = 0, last_layer = -1;  // 0-based, the others are softmax; last −1: to the end

  bool is_softmax() const { return positive == PositiveMap::softmax && noise == NoiseMap::none && gate == Gate::none; }
  bool has_noise() const { return lambda != LambdaRule::none; }
  bool has_state() const { return noise == NoiseMap::prototypes || noise == NoiseMap::fixed; }
  bool has_second_map() const {
    return noise == NoiseMap::own_keys || noise == NoiseMap::shared_keys || noise == NoiseMap::grouped;
  }
  // Means of the state: prototypes, columns of a calibrated map, or the first token, the uniform row and the decays.
  int64_t state_rank() const {
    if (noise == NoiseMap::prototypes || calibrated) return rank;
    return noise == NoiseMap::fixed ? 2 + static_cast<int64_t>(decays.size()) : 0;
  }
  // Whether heads have gates and shares of their own for every token.
  bool has_own_gates() const { return noise == NoiseMap::prototypes || calibrated; }
};

// The description behind a name: softmax, wide, diff_v1, diff_v2, shared_diff, grouped_diff, lowrank_diff, fixed_diff,
// gated, off_by_one, sink. Error: usage, listing the names.
AttentionConfig preset(std::string_view name);
std::string preset_names();

// The same with softmax in layers outside first_layer … last_layer.
AttentionConfig at_layer(const AttentionConfig& config, int64_t layer, int64_t layers);

// What a member makes of the baseline's h query heads, g key/value heads and head width d, in one layer. Widths are in
// numbers a token.
struct AttentionShape {
  Layout layout;
  int64_t head_dim = 0;                                     // E
  int64_t value_dim = 0;                                    // W of an output
  int64_t query_width = 0, key_width = 0, value_width = 0;  // outputs of q_proj, k_proj, v_proj
  int64_t noise_query_width = 0, noise_key_width = 0;       // of noise_q_proj, noise_k_proj (grouped)
  // Where the blocks of `head_dim` numbers that v_proj writes go, so that a wide value head is contiguous.
  std::vector<int64_t> value_order;

  int64_t outputs() const { return layout.output_heads(); }
  int64_t output_width() const { return outputs() * value_dim; }
};

// Errors: shape, as the layouts; usage if the description contradicts itself, or has a rank below 1 or above the width
// that it is a rank of: head_dim for prototypes, query_width for low-rank changes.
AttentionShape shape_of(const AttentionConfig& config, int64_t heads, int64_t kv_heads, int64_t head_dim);

// λ_init of a 0-based layer: 0.8 − 0.6·e^(−0.3·layer) (arXiv 2410.05258, whose l is layer + 1).
double lambda_init(int64_t layer);

// A tensor that a member adds to a layer beside q_proj, k_proj, v_proj and o_proj, and how it begins.
struct ExtraTensor {
  enum class Start { zeros, ones, weights, normal, tenth };  // weights: the model's spread; normal: N(0, 1); N(0, 0.1)
  std::string name;                                          // behind "self_attn."
  std::vector<int64_t> shape;
  Start start = Start::zeros;
  bool is_lambda = false;  // counts to the group "lambda"
  bool is_frozen = false;  // training leaves it alone
};
// `width`: of the model; `positions`: the longest text, max_position_embeddings, rows of a calibrated map.
std::vector<ExtraTensor> extra_tensors(const AttentionConfig& config, const AttentionShape& shape, int64_t width,
                                       int64_t positions);

}  // namespace unchain::attention
