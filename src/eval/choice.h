// Questions with given answers: which option a model finds likeliest, and whether it foretells the last word of a text.
// File: one JSON object a line, {"id", "context", "choices": [texts], "answer": index}, or {"text"} for last words.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "eval/proportion.h"
#include "model/transformer.h"
#include "tokenizer/tokenizer.h"

namespace unchain::eval {

struct ChoiceItem {
  std::string id;  // the line's number where it has none
  int64_t line = 0;
  std::string context;
  std::vector<std::string> choices;  // one for a last word: the blanks before it and the word
  size_t answer = 0;
};

struct ChoiceSet {
  std::vector<ChoiceItem> items;
  bool last_words = false;
};

// Reads the lines; `max_items` 0: all. Blank lines are skipped. Errors: format, with the line (no JSON, keys absent, of
// another type, or empty, fewer than two choices, an answer that is no choice's index, a text of one word, lines of
// both kinds); usage (max_items < 0).
ChoiceSet read_choices(std::string_view text, const std::string& name, int64_t max_items = 0);

enum class ChoiceTemplate {
  plain,     // {context} {choice}
  question,  // Question: {context}\nAnswer: {choice}
};

// Error: usage, listing the names.
ChoiceTemplate parse_choice_template(std::string_view name);

// One option as the model reads it: of ids (context and option, tokenised whole, BOS in front where the tokenizer has
// add_bos) the tokens from `first` on are the option's.
struct OptionTokens {
  std::vector<int32_t> ids;
  int64_t first = 0;
  size_t bytes = 0;  // UTF-8 bytes of the choice itself
};

struct ChoiceTokens {
  std::string id;
  std::vector<OptionTokens> options;
  size_t answer = 0;
  int64_t shared = 0;   // tokens that all options begin with; the one before an option's first is not counted
  bool merged = false;  // an option's first blank or letter shares a token with the context's end
};

// As many tokens as the context alone has (blanks at its end left out) belong to the context, what follows is the
// option; where a token spans both, the count decides all the same. Last words have no template. Errors: format, with
// the line (an option that adds no token, an empty context without BOS).
std::vector<ChoiceTokens> encode_choices(const tokenizer::Tokenizer& tokenizer, const ChoiceSet& set,
                                         ChoiceTemplate form, const std::string& name);

struct OptionScore {
  double log_likelihood = 0;  // nats, of all its tokens
  int64_t tokens = 0;
  size_t bytes = 0;
  bool likeliest = false;  // each of its tokens is the likeliest one; known for last words only
};

struct ItemResult {
  std::string id;
  std::vector<OptionScore> options;
  size_t answer = 0, chosen = 0, chosen_per_byte = 0;  // the first of equals
};

struct ChoiceResult {
  // Of choices: those whose answer has the largest log-likelihood, and log-likelihood a byte. Of last words: those
  // foretold; per_byte is empty.
  Proportion accuracy, per_byte;
  double chance = 0;      // of choices: mean of 1/options
  double answer_nll = 0;  // nats, mean over items of the whole answer
  std::vector<ItemResult> items;
  int64_t tokens_read = 0;
  double seconds = 0;
};

// Tokens that the forward passes will read.
int64_t choice_tokens(const std::vector<ChoiceTokens>& items);

// Scores all options; what the options of an item have in common is read once. `progress(done, total)` counts tokens.
// Errors: those of Context::extend.
ChoiceResult score_choices(const std::shared_ptr<const model::Transformer>& model,
                           const std::vector<ChoiceTokens>& items, bool last_words,
                           const std::function<void(size_t, size_t)>& progress = {});

}  // namespace unchain::eval
