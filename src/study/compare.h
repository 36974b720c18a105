// Models on the same text, side by side: what each gives in every unit that they share (a window of the text, a prompt
// of needles, a question), and differences unit by unit. Measures: docs/measures.md, docs/evaluation.md.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "analysis/measures.h"
#include "eval/choice.h"
#include "eval/needle.h"
#include "model/transformer.h"
#include "tokenizer/tokenizer.h"

namespace unchain::study {

// One measure of one model, a value a unit; absent where it does not apply.
struct UnitValues {
  std::string unit;  // window, prompt, question
  std::vector<std::optional<double>> values;
};
using Units = std::map<std::string, UnitValues>;  // by measure

struct ComparedModel {
  std::string name;
  std::shared_ptr<const model::Transformer> model;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  Units units;
  double nats = 0;     // of all tokens that were predicted in windows,
  int64_t tokens = 0;  // and how many these are
  // By N = 8, 16, 32 …: of each window that is long enough, nats a token of those with N/2 to N − 1 others in front.
  std::map<int64_t, std::vector<double>> loss_by_context = {};
};

// Parts of the text, as many as asked for or as there are, each of `tokens` tokens of this tokenizer or, where a
// character is cut, a few more. Error: usage (a text of fewer tokens than that).
std::vector<std::string> cut_text(const tokenizer::Tokenizer& tokenizer, const std::string& text, int64_t tokens,
                                  int64_t windows);

using CompareProgress = std::function<void(size_t done, size_t all)>;

// Reads each part of the text from an empty context, BOS in front where the model has one. Adds loss_nats,
// bits_per_byte and token_error of all tokens behind the first, loss_by_context, and every chosen measure of attention
// as a mean over heads: entropy …, a1_…, a2_…, lambda, cosine_distance, cka. Parts of one text are as many tokens in
// all models only if these share a vocabulary. Errors: usage (a part of fewer than four tokens); those of
// Context::extend and MapAnalyzer.
void compare_windows(ComparedModel& model, const std::vector<std::string>& parts, const analysis::Selection& selection,
                     uint64_t seed, const CompareProgress& progress = {});

// Adds needle_accuracy and needle_attention, a prompt each: share of its questions that are answered right, attention
// on the answers. Errors: those of plan_needles and ask_needles.
void compare_needles(ComparedModel& model, const eval::NeedleOptions& options, const CompareProgress& progress = {});

// Adds choice_accuracy and choice_accuracy_per_byte of choices, or last_word_accuracy of last words, and
// answer_nll_nats, a question each. Errors: those of encode_choices and score_choices.
void compare_choices(ComparedModel& model, const eval::ChoiceSet& questions, eval::ChoiceTemplate form,
                     const CompareProgress& progress = {});

// {"models": [{"name", "tokens", "perplexity", "measures": {MEASURE: {"unit", "units", "mean", "median", "low",
// "high"}}, "growth": [{"tokens", "loss_nats": {"mean", "median", "low", "high"}, "cache_numbers", "state_numbers",
// "multiply_adds"}]}], "paired": [{"measure", "unit", "model", "against", "units", "difference", "low", "high"}]}: the
// first model is the one that all others stand against; differences are of the units that both have, low and high the
// 95 % bootstrap interval over these, null where there are fewer than two. Perplexities of models that predicted other
// numbers of tokens cannot be compared. `growth` holds the lengths that every window reaches.
nlohmann::ordered_json comparison_json(const std::vector<ComparedModel>& models, uint64_t seed);

}  // namespace unchain::study
