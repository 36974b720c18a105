#include "attention/family.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace unchain::attention {
namespace {

Layout layout_of(const AttentionConfig& config, int64_t h, int64_t g) {
  switch (config.noise) {
    case NoiseMap::own_keys:
      if (config.accounting == Accounting::added) return added_layout(h, g);
      return config.pairs == Pairs::halves ? halves_layout(h, g) : neighbours_layout(h, g);
    case NoiseMap::shared_keys:
      return shared_key_layout(h, g);
    case NoiseMap::grouped:
      return grouped_layout(h, g, config.ratio);
    case NoiseMap::none:
    case NoiseMap::prototypes:
    case NoiseMap::fixed:
      break;
  }
  return softmax_layout(h, g);
}

void check(const AttentionConfig& config) {
  const bool noisy = config.noise != NoiseMap::none;
  if (noisy != (config.lambda != LambdaRule::none)) {
    fail(ErrorCode::usage, "attention '{}': a second map and a rule for lambda go together", config.preset);
  }
  if (config.accounting == Accounting::halved && config.noise != NoiseMap::own_keys) {
    fail(ErrorCode::usage,
         "attention '{}': accounting \"halved\" is for pairs with keys of their own, such as diff_v1's; leave it out",
         config.preset);
  }
  if (config.low_rank_queries && config.accounting != Accounting::halved) {
    fail(ErrorCode::usage, "attention '{}': low-rank queries need halved pairs with keys of their own", config.preset);
  }
  if (config.calibrated && config.noise != NoiseMap::fixed)
    fail(ErrorCode::usage, "attention '{}': only fixed_diff can be calibrated", config.preset);
  for (const float decay : config.decays) {
    if (!(decay > 0 && decay < 1))
      fail(ErrorCode::usage, "attention '{}': decay {}, expected a number between 0 and 1", config.preset, decay);
  }
}

// A rank above the width that it is to be low beside is a slip, not a model that anyone means. A calibrated map's width
// is that of texts, which the model knows.
void check_rank(const AttentionConfig& config, const AttentionShape& shape) {
  constexpr int64_t kMostOfAnyMap = 4096;
  const auto expect_up_to = [&](int64_t most, std::string_view what) {
    if (config.rank < 1 || config.rank > most)
      fail(ErrorCode::usage, "attention '{}': rank {}, expected 1 to {}, {}", config.preset, config.rank, most, what);
  };
  if (config.noise == NoiseMap::prototypes) expect_up_to(shape.head_dim, "the head width");
  if (config.low_rank_queries) expect_up_to(shape.query_width, "the width of its queries");
  if (config.calibrated) expect_up_to(kMostOfAnyMap, "the most of any map");
}

}  // namespace

AttentionConfig at_layer(const AttentionConfig& config, int64_t layer, int64_t layers) {
  const int64_t last = config.last_layer < 0 ? layers - 1 : config.last_layer;
  return layer >= config.first_layer && layer <= last ? config : AttentionConfig{};
}

AttentionShape shape_of(const AttentionConfig& config, int64_t h, int64_t g, int64_t d) {
  check(config);
  AttentionShape shape;
  shape.layout = layout_of(config, h, g);
  const Layout& layout = shape.layout;
  const bool wide = config.accounting == Accounting::halved;
  shape.head_dim = d;
  shape.value_dim = wide ? 2 * d : d;
  shape.value_width = layout.value_heads * shape.value_dim;
  shape.query_width = layout.query_heads * d;
  shape.key_width = layout.key_heads * d;
  if (config.noise == NoiseMap::grouped) {
    shape.noise_query_width = (layout.query_heads - h) * d;
    shape.noise_key_width = (layout.key_heads - g) * d;
    shape.query_width -= shape.noise_query_width;
    shape.key_width -= shape.noise_key_width;
  }
  if (config.low_rank_queries) {
    shape.query_width /= 2;
    shape.key_width /= 2;
  }
  const int64_t blocks = shape.value_width / d;
  shape.value_order.resize(static_cast<size_t>(blocks));
  std::iota(shape.value_order.begin(), shape.value_order.end(), 0);
  if (wide && config.pairs == Pairs::halves) {
    for (int64_t j = 0; j < blocks; ++j)
      shape.value_order[static_cast<size_t>(j)] = 2 * (j % (blocks / 2)) + j / (blocks / 2);
  }
  check_rank(config, shape);
  return shape;
}

double lambda_init(int64_t layer) {
  return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer));
}

std::vector<ExtraTensor> extra_tensors(const AttentionConfig& config, const AttentionShape& shape, int64_t width,
                                       int64_t positions) {
  using Start = ExtraTensor::Start;
  std::vector<ExtraTensor> tensors;
  const int64_t outputs = shape.outputs(), d = shape.head_dim, rank = config.state_rank();
  const auto add = [&](std::string name, std::vector<int64_t> sizes, Start start, bool is_lambda = false) {
    tensors.push_back({std::move(name), std::move(sizes), start, is_lambda, false});
  };
  switch (config.lambda) {
    case LambdaRule::depth:
      for (const char* name : {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"}) add(name, {d}, Start::tenth, true);
      break;
    case LambdaRule::token:
      add("lambda_proj.weight", {outputs, width}, Start::weights, true);
      break;
    case LambdaRule::head:
      add("lambda_logit", {outputs}, Start::zeros, true);
      break;
    case LambdaRule::none:
    case LambdaRule::held:
      break;
  }
  if (config.lambda_gain) add("lambda_gain", {outputs}, Start::zeros, true);
  if (config.head_norm_affine) add("groupnorm.weight", {shape.value_dim}, Start::ones);
  if (shape.noise_query_width > 0) {
    add("noise_q_proj.weight", {shape.noise_query_width, width}, Start::weights);
    add("noise_k_proj.weight", {shape.noise_key_width, width}, Start::weights);
  }
  for (const char* map : {"1", "2"}) {
    if (!config.low_rank_queries) break;
    add(std::string("q_down") + map + ".weight", {config.rank, width}, Start::weights);
    add(std::string("q_up") + map + ".weight", {shape.query_width, config.rank}, Start::weights);
    add(std::string("k_down") + map + ".weight", {config.rank, width}, Start::weights);
    add(std::string("k_up") + map + ".weight", {shape.key_width, config.rank}, Start::weights);
  }
  if (config.noise == NoiseMap::prototypes) {
    add("prototypes", {outputs, rank, d}, Start::normal);
    add("alpha_proj.weight", {outputs * rank, width}, Start::weights);
  }
  if (config.noise == NoiseMap::fixed && !config.calibrated) add("basis_logits", {outputs, rank}, Start::zeros);
  for (const char* name : {"basis_u", "basis_v"}) {
    if (!config.calibrated) break;
    add(name, {outputs, positions, rank}, Start::zeros);
    tensors.back().is_frozen = true;
  }
  if (config.gate != Gate::none) {
    add("gate_proj.weight", {config.gate == Gate::head ? outputs : shape.output_width(), width}, Start::zeros);
  }
  if (config.positive == PositiveMap::sink) add("sinks", {outputs}, Start::zeros);
  return tensors;
}

}  // namespace unchain::attention
