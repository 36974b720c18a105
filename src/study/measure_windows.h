// What the measures of a study have in common: windows of texts, and means.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "analysis/key_tokens.h"
#include "study/measure.h"

namespace unchain::study {

using Ids = std::vector<int32_t>;

// At most `most` windows of BOS (−1: none) and `count` tokens each, evenly over a text. Error: usage (fewer tokens than
// that), naming the text.
std::vector<Ids> even_windows(const Ids& text, int32_t bos, int64_t count, int64_t most, const std::string& name);
// Of all texts, one after another.
std::vector<Ids> all_windows(const MeasureInputs& in, int64_t count, int64_t most);
// What all_windows() add to a measure, text by text.
Windows by_text(const MeasureInputs& in, int64_t count, int64_t most, const std::vector<Window>& windows);
// Reads windows of N tokens with an observer, calling begin(ids) before and end() behind each.
void observe(const MeasureInputs& in, const std::vector<Ids>& windows, attention::Observer& observer,
             const std::function<void(const Ids&)>& begin = {}, const std::function<void()>& end = {});
// Tokens of the text in a window of N tokens.
int64_t room(const MeasureInputs& in);

// Whether a layer has a noise term.
bool has_noise(const model::Transformer& model);

// Absent for no values.
std::optional<double> mean_of(const std::vector<double>& values);
// Mean over those layers and heads that have the figure.
std::optional<double> mean_over_heads(const std::vector<analysis::LayerKeyMass>& layers,
                                      std::optional<double> analysis::HeadKeyMass::*figure);

}  // namespace unchain::study
