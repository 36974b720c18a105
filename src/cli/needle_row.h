// One row of attention for the page of needle results.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "eval/needle.h"

namespace unchain::cli {

// Reads one prompt again: the first whose first answer is right, from the depths nearest the middle outwards, else the
// first; gives A1, A2 and λ of the row that predicts the number's first digit, of all layers and heads, as
// report/page.h says under "needle_row". Errors: those of Context::extend.
nlohmann::json needle_row(const std::shared_ptr<const model::Transformer>& model, const tokenizer::Tokenizer& tokenizer,
                          text::NeedleForm form, const std::vector<eval::NeedleTask>& tasks,
                          const eval::NeedleResult& result);

}  // namespace unchain::cli
