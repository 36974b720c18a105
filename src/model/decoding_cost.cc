#include "model/decoding_cost.h"

#include <algorithm>

#include "base/check.h"

namespace unchain::model {

DecodingCost decoding_cost(const Transformer& model, int64_t tokens) {
  if (tokens < 1) fail(ErrorCode::usage, "decoding cost: {} tokens, expected 1 or more", tokens);
  DecodingCost cost;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const attention::AttentionShape& shape = model.layers[i].attention.shape;
    const attention::AttentionConfig& family = model.layers[i].attention.family;
    const int64_t window = model.config.layers[i].window;
    const int64_t seen = window > 0 ? std::min(tokens, window) : tokens;
    const int64_t keys = shape.head_dim, values = shape.value_dim, outputs = shape.outputs();
    cost.cache_numbers += seen * (shape.layout.key_heads * keys + shape.layout.value_heads * values);
    cost.multiply_adds += seen * (shape.layout.query_heads * keys + outputs * values);
    if (!family.has_state()) continue;
    // A prototype's mean has the logarithm of its normaliser beside it and a score to take; a fixed row has neither.
    const bool learned = family.noise == attention::NoiseMap::prototypes;
    const int64_t rank = family.state_rank();
    cost.state_numbers += outputs * rank * (values + (learned ? 1 : 0));
    cost.multiply_adds += outputs * rank * ((learned ? keys : 0) + 2 * values);
  }
  return cost;
}

}  // namespace unchain::model
