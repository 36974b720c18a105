// What is measured of a trained model: the numbers behind the claims, by the names of study/claims.json. docs/claims.md
// defines each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/transformer.h"
#include "study/description.h"
#include "tokenizer/tokenizer.h"

namespace unchain::study {

// One measure of one model.
struct Measured {
  std::optional<double> value;               // absent where the measure does not apply
  std::vector<std::vector<double>> windows;  // by text, then window; empty: not kept
};
using Measures = std::map<std::string, Measured>;

// Texts that the model has not seen, and how to look at them.
struct MeasureInputs {
  std::shared_ptr<const model::Transformer> model;
  int32_t bos = -1;                         // −1: none
  std::vector<std::vector<int32_t>> texts;  // tokens of each, no BOS
  int64_t context = 256;                    // N: tokens that a window holds, BOS among them
  AnalysisKeys keys;
  uint64_t seed = 0;
};

// Adds what is measured of predictions (loss_nats, token_error, ngram_error) and of maps (ranks, entropies, negative
// weights, row sums, redundancy), each window from an empty context. Windows lie evenly in their text; of a text that
// holds fewer than asked for, all are taken. Errors: usage (a text shorter than a window); numeric.
void measure_predictions(Measures& measures, const MeasureInputs& in);
void measure_maps(Measures& measures, const MeasureInputs& in);

}  // namespace unchain::study
