// What attention must hold and do to decode a token, counted from the shapes of a model: docs/relations.md.
#pragma once

#include <cstdint>

#include "model/transformer.h"

namespace unchain::model {

struct DecodingCost {
  int64_t cache_numbers = 0;  // keys and values of the tokens that layers still see
  int64_t state_numbers = 0;  // of noise that is a state, whatever the number of tokens
  int64_t multiply_adds = 0;  // of the last token: scores, products with values, the state's step; no projections
};

// Of all layers, once `tokens` tokens have been read, the last of which sees itself too; a layer with a window keeps
// that many of them. Error: usage (tokens below 1).
DecodingCost decoding_cost(const Transformer& model, int64_t tokens);

}  // namespace unchain::model
