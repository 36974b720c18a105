// How well a model finds numbers that stand somewhere in a long text, and how much of its attention lies on them while
// it does: prompts of several lengths with needles at several depths, answered greedily.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attention/maps.h"
#include "eval/proportion.h"
#include "model/transformer.h"
#include "text/haystack.h"
#include "text/needle_prompts.h"
#include "tokenizer/tokenizer.h"

namespace unchain::eval {

struct NeedleOptions {
  text::NeedleForm form = text::NeedleForm::sentence;
  std::vector<int64_t> lengths = {256, 512};             // tokens: prompt, questions and room for the answers
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};  // of the first asked needle
  size_t needles = 4, queries = 1;
  int64_t samples = 10;  // of each length and depth; the same haystacks and needles at all depths
  uint64_t seed = 0;
};

// All prompts of one length and depth.
struct NeedleTask {
  int64_t length = 0;
  double depth = 0;
  std::vector<text::NeedlePrompt> prompts;
};

// Makes every prompt, length by length and in it depth by depth, so that whatever does not fit is known before the
// first pass. Errors: usage (no lengths or depths, one of them twice, samples below 1), and those of
// text::make_needle_prompt.
std::vector<NeedleTask> plan_needles(const tokenizer::Tokenizer& tokenizer, const text::Haystack& haystack,
                                     const NeedleOptions& options);

struct NeedleAnswer {
  text::Needle asked;
  std::string text;  // the model's own words
  bool right = false;
  // [layer][head]: Σ|P| on the number's tokens / Σ|P| of the row that predicts its first digit.
  std::vector<std::vector<double>> attention;
};

struct NeedleSample {
  double depth = 0;           // the first asked needle's real one
  int64_t prompt_tokens = 0;  // up to the first question's end, BOS among them
  std::vector<NeedleAnswer> answers;
};

struct NeedleCell {
  int64_t length = 0;
  double depth = 0;
  Proportion all, first;  // all questions; those for the needle whose depth this is
  std::vector<NeedleSample> samples;
};

struct NeedleResult {
  Proportion accuracy;
  std::vector<NeedleCell> cells;
  int64_t tokens_read = 0;
  double seconds = 0;
};

// Reads each prompt from an empty context, then answers its questions one after another in it. An answer ends where its
// first run of digits does, with a stop token, or where its room does. The row that predicts the number's first digit
// is that of the question's last token or, where the tokenizer puts a blank before a digit into a token of its own,
// that of the blank; if the model writes something else in its place, the blank is read for the row's sake and
// forgotten again. Layers that see less than the number have a share of 0. `progress(done, total)` counts tokens.
// `editors` change the model in every pass. Errors: those of Context::extend.
NeedleResult ask_needles(const std::shared_ptr<const model::Transformer>& model, const tokenizer::Tokenizer& tokenizer,
                         text::NeedleForm form, const std::vector<NeedleTask>& tasks,
                         const std::function<void(size_t, size_t)>& progress = {},
                         const std::vector<attention::Editor*>& editors = {});

// What a model has read in the row that predicts the first digit of a prompt's first number: the prompt, and the blank
// behind it where that is a token of its own.
std::vector<int32_t> first_digit_context(const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                                         const text::NeedlePrompt& prompt);

// Mean over layers and heads.
double mean_attention(const NeedleAnswer& answer);

}  // namespace unchain::eval
