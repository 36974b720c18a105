// Every member by name. A member that composes what is there is its lines here, and nothing else in src: what it
// computes, trains, decodes and stores follows from the description (docs/add-an-attention.md).
#include "attention/family.h"
#include "base/check.h"

namespace unchain::attention {
namespace {

const std::vector<AttentionConfig>& presets() {
  static const std::vector<AttentionConfig> all = {
      {.preset = "softmax"},
      {.preset = "wide"},  // the same, wider elsewhere
      {.preset = "diff_v1",
       .noise = NoiseMap::own_keys,
       .lambda = LambdaRule::depth,
       .pairs = Pairs::halves,
       .accounting = Accounting::halved,
       .head_norm = true},
      {.preset = "diff_v2", .noise = NoiseMap::shared_keys, .lambda = LambdaRule::token},
      {.preset = "shared_diff",
       .noise = NoiseMap::own_keys,
       .lambda = LambdaRule::depth,
       .pairs = Pairs::halves,
       .accounting = Accounting::halved,
       .head_norm = true,
       .low_rank_queries = true,
       .rank = 16},
      {.preset = "grouped_diff",
       .noise = NoiseMap::grouped,
       .lambda = LambdaRule::depth,
       .head_norm = true,
       .ratio = 4},
      {.preset = "lowrank_diff", .noise = NoiseMap::prototypes, .lambda = LambdaRule::token, .rank = 4},
      {.preset = "fixed_diff", .noise = NoiseMap::fixed, .lambda = LambdaRule::head, .decays = {0.5f, 0.9f, 0.99f}},
      {.preset = "gated", .gate = Gate::head},
      {.preset = "off_by_one", .positive = PositiveMap::off_by_one},
      {.preset = "sink", .positive = PositiveMap::sink},
  };
  return all;
}

}  // namespace

AttentionConfig preset(std::string_view name) {
  for (const AttentionConfig& config : presets()) {
    if (config.preset == name) return config;
  }
  fail(ErrorCode::usage, "attention preset '{}' is not known, these are: {}", name, preset_names());
}

std::string preset_names() {
  std::string names;
  for (const AttentionConfig& config : presets()) names += (names.empty() ? "" : ", ") + config.preset;
  return names;
}

}  // namespace unchain::attention
