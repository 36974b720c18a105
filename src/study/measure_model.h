// All that is asked of one model, as the entries of a study's results (docs/study.md).
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "study/measure.h"

namespace unchain::study {

// "needle": each rung's answers. Where there is but one rung, its answers are kept by question and attention is
// measured on its prompts too (needle_accuracy, needle_error and what measure_needles adds; accuracy_by_layer).
// `trainable` as for measure_needles. Errors: those of eval::plan_needles, eval::ask_needles, measure_needles.
nlohmann::ordered_json ask_rungs(const MeasureInputs& in, const tokenizer::Tokenizer& tokenizer,
                                 model::Trainable* trainable, const std::vector<eval::NeedleOptions>& needle,
                                 Measures& measures);

// Adds what measure_predictions, _maps, _terms, _unclaimed and, with a trainable, _heads measure; returns {"layers",
// "curves"}. Errors: theirs.
nlohmann::ordered_json measure_model(const MeasureInputs& in, model::Trainable* trainable, Measures& measures);

nlohmann::ordered_json to_json(const Measures& measures);
nlohmann::ordered_json to_json(const std::vector<HessianPoint>& points);

// Digits of the many numbers that only ever meet others of their kind.
inline constexpr int kDigits = 8;

}  // namespace unchain::study
