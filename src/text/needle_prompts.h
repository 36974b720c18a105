// Prompts that test looking back: N needles in a haystack, R of them asked one after another, in a prompt of a wanted
// length. Cities and numbers are those that no model was trained on here.
#pragma once

#include <cstdint>
#include <vector>

#include "text/haystack.h"
#include "text/needle_text.h"

namespace unchain::text {

struct NeedlePromptOptions {
  NeedleForm form = NeedleForm::sentence;
  int64_t length = 512;  // tokens: BOS, prompt, all questions and room for their answers
  size_t needles = 1;
  size_t queries = 1;  // how many of them are asked
  double depth = 0.5;  // of the first asked needle: 0 first, 1 last in the haystack; the others lie at random
  uint64_t seed = 0;
};

struct NeedlePrompt {
  std::string text;                                 // up to the first question's end
  std::vector<int32_t> ids;                         // of `text`, BOS in front where the tokenizer has add_bos
  std::vector<std::vector<int32_t>> questions;      // after answer i comes questions[i]: one fewer than are asked
  std::vector<Needle> asked;                        // in the order in which they are asked
  std::vector<TokenSpan> needles, cities, numbers;  // of the asked, in `ids`
  double depth = 0;           // the real one: tokens before the first asked needle / tokens of the haystack without it
  int64_t answer_tokens = 0;  // room for each answer
};

// Prompt `sample` of these options; a pure function of all arguments, equal haystack and needles for all depths. It
// ends with the first question. The haystack is cut between its units (Haystack), so prompt and room fall short of
// `length` by less than one; the needles and the questions are never cut. Errors: usage (numbers out of range, needles
// and questions longer than `length`); unsupported (a haystack that the vocabulary cannot write).
NeedlePrompt make_needle_prompt(const tokenizer::Tokenizer& tokenizer, const Haystack& haystack,
                                const NeedlePromptOptions& options, uint64_t sample);

}  // namespace unchain::text
