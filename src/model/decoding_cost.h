// What attention must hold and do to decode a token, counted from the shapes of a model: docs/relations.md.
#pragma once

#include <cstdint>

#include "model/transformer.h"

namespace unchain::model {

struct DecodingCost {
  int64_t cache_numbers = 0;  // keys and values of the tokens that layers still see
  int64_t state_numbers = 0;  // of noise that is a state, whatever the number of tokens
  int64_t multiply_adds = 0;  // scores, products with values and the state's step; without projections
};

// Of all layers, for the token that follows `tokens` others; a layer with a window keeps that many of them. Error:
// usage (tokens below 0).
DecodingCost decoding_cost(const Transformer& model, int64_t tokens);

}  // namespace unchain::model
