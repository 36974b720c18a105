// What the measures of a study have in common: windows of texts, and means.
#pragma once

#include <optional>
#include <vector>

#include "study/measure.h"

namespace unchain::study {

using Ids = std::vector<int32_t>;

// At most `most` windows of BOS (−1: none) and `count` tokens each, evenly over a text. Error: usage (fewer tokens than
// that), naming the text.
std::vector<Ids> even_windows(const Ids& text, int32_t bos, int64_t count, int64_t most, const std::string& name);
// Of all texts, one after another.
std::vector<Ids> all_windows(const MeasureInputs& in, int64_t count, int64_t most);
// Values of all_windows(), text by text.
std::vector<std::vector<double>> by_text(const MeasureInputs& in, int64_t count, int64_t most,
                                         const std::vector<double>& values);
// Tokens of the text in a window of N tokens.
int64_t room(const MeasureInputs& in);

// Whether a layer has a noise term.
bool has_noise(const model::Transformer& model);

// Absent for no values.
std::optional<double> mean_of(const std::vector<double>& values);

}  // namespace unchain::study
