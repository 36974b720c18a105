#include "text/needle_prompts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "text/text_support.h"

namespace unchain::test {
namespace {

using namespace text;

std::string decode(const tokenizer::Tokenizer& tokenizer, const std::vector<int32_t>& ids, TokenSpan span) {
  return tokenizer.decode({ids.begin() + span.begin, ids.begin() + span.end});
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// All that holds of every prompt. Returns the tokens that are left of the length.
int64_t check(const tokenizer::Tokenizer& tokenizer, const NeedlePromptOptions& options, const NeedlePrompt& prompt) {
  std::vector<int32_t> text = prompt.ids;
  if (tokenizer.add_bos) {
    EXPECT_EQ(text.front(), tokenizer.bos);
    text.erase(text.begin());
  }
  EXPECT_EQ(text, tokenizer.encode(prompt.text));
  EXPECT_EQ(prompt.asked.size(), options.queries);
  EXPECT_EQ(prompt.needles.size(), options.queries);
  EXPECT_EQ(prompt.questions.size(), options.queries - 1);
  const std::string question = needle_question(options.form, prompt.asked[0].city);
  EXPECT_TRUE(prompt.text.ends_with(question)) << prompt.text;
  EXPECT_EQ(count_of(prompt.text, question), 1u);
  const std::regex sentence(options.form == NeedleForm::pair ? "[a-z][0-9]{2};"
                                                             : "magic number of [A-Z][a-z]+ is [0-9]");
  const std::sregex_iterator sentences(prompt.text.begin(), prompt.text.end(), sentence);
  EXPECT_EQ(std::distance(sentences, std::sregex_iterator()), static_cast<std::ptrdiff_t>(options.needles));
  const auto& cities = needle_cities(NeedleSplit::test);
  const auto& numbers = needle_numbers(options.form, NeedleSplit::test);
  int64_t used = static_cast<int64_t>(prompt.ids.size()) + prompt.answer_tokens * static_cast<int64_t>(options.queries);
  for (size_t i = 0; i < options.queries; ++i) {
    const Needle& needle = prompt.asked[i];
    EXPECT_EQ(std::count(cities.begin(), cities.end(), needle.city), 1) << needle.city;
    EXPECT_EQ(std::count(numbers.begin(), numbers.end(), needle.number), 1) << needle.number;
    EXPECT_EQ(count_of(prompt.text, needle_sentence(options.form, needle)), 1u);
    EXPECT_EQ(count_of(prompt.text, needle.number), 1u);
    const std::string found = decode(tokenizer, prompt.ids, prompt.numbers[i]);
    EXPECT_NE(found.find(needle.number), std::string::npos) << found;
    EXPECT_LE(found.size(), needle.number.size() + 2) << found;
    if (&tokenizer == own_tokenizer().get()) {  // digits alone
      EXPECT_EQ(found, needle.number);
    }
    const std::string city = decode(tokenizer, prompt.ids, prompt.cities[i]);
    EXPECT_NE(city.find(needle.city), std::string::npos) << city;
    EXPECT_LE(prompt.cities[i].end, prompt.needles[i].end);
    EXPECT_GE(prompt.cities[i].begin, prompt.needles[i].begin);
    const std::string shown = decode(tokenizer, prompt.ids, prompt.needles[i]);
    EXPECT_NE((" " + shown).find(needle_sentence(options.form, needle)), std::string::npos) << shown;
    EXPECT_GE(prompt.answer_tokens,
              static_cast<int64_t>(tokenizer.encode(needle_answer(options.form, needle.number)).size()));
    if (i > 0) {
      const std::string next = tokenizer.decode(prompt.questions[i - 1]);
      EXPECT_NE(next.find(needle_question(options.form, needle.city)), std::string::npos) << next;
      used += static_cast<int64_t>(prompt.questions[i - 1].size());
    }
  }
  EXPECT_LE(used, options.length);
  return options.length - used;
}

TEST(NeedlePrompts, FillTheLengthForEveryTokenizerFormAndDepth) {
  const Haystack haystack;
  for (const auto& tokenizer : {own_tokenizer(), other_tokenizer("byte_level.json"),
                                other_tokenizer("gemma_like.model"), other_tokenizer("llama_like.model")}) {
    for (const NeedleForm form : {NeedleForm::sentence, NeedleForm::pair}) {
      for (const double depth : {0.0, 0.25, 0.5, 0.75, 1.0}) {
        SCOPED_TRACE(testing::Message() << tokenizer->kind << " " << to_string(form) << " " << depth);
        const NeedlePromptOptions options = {form, 900, 4, 2, depth, 11};
        const NeedlePrompt prompt = make_needle_prompt(*tokenizer, haystack, options, 3);
        // A sentence of the program has at most 60 bytes, and at most as many tokens.
        EXPECT_LE(check(*tokenizer, options, prompt), 62);
        EXPECT_NEAR(prompt.depth, depth, 0.1);
        if (depth == 0) {
          EXPECT_EQ(prompt.depth, 0);
          EXPECT_TRUE(prompt.text.starts_with(needle_sentence(form, prompt.asked[0])));
        }
        if (depth == 1) {
          EXPECT_EQ(prompt.depth, 1);
          EXPECT_TRUE(prompt.text.ends_with(" " + needle_sentence(form, prompt.asked[0]) +
                                            needle_question(form, prompt.asked[0].city)));
        }
      }
    }
  }
}

TEST(NeedlePrompts, EveryLengthFromTheShortestOn) {
  const Haystack haystack;
  const auto tokenizer = own_tokenizer();
  NeedlePromptOptions options = {NeedleForm::pair, 1, 4, 4, 0.5, 2};
  int64_t shortest = 0;
  size_t previous = 0;
  for (options.length = 1; options.length < 400; ++options.length) {
    SCOPED_TRACE(options.length);
    const auto error = error_of([&] { make_needle_prompt(*tokenizer, haystack, options, 0); });
    if (error) {
      EXPECT_EQ(error->code(), ErrorCode::usage);
      EXPECT_EQ(shortest, 0) << error->what();
      EXPECT_NE(std::string(error->what()).find("4 needles, 4 questions"), std::string::npos) << error->what();
      continue;
    }
    if (shortest == 0) shortest = options.length;
    const NeedlePrompt prompt = make_needle_prompt(*tokenizer, haystack, options, 0);
    EXPECT_LE(check(*tokenizer, options, prompt), 62);
    EXPECT_GE(prompt.ids.size() + 4, previous);  // where needles land may cost a blank
    previous = prompt.ids.size();
  }
  EXPECT_GT(shortest, 20);
  EXPECT_LT(shortest, 200);
}

TEST(NeedlePrompts, SamplesDifferAndCanBeMadeAgain) {
  const Haystack haystack;
  const NeedlePromptOptions options = {NeedleForm::sentence, 500, 3, 2, 0.5, 5};
  std::set<std::string> texts;
  std::set<std::string> firsts;
  for (uint64_t sample = 0; sample < 20; ++sample) {
    const NeedlePrompt prompt = make_needle_prompt(*own_tokenizer(), haystack, options, sample);
    EXPECT_EQ(prompt.ids, make_needle_prompt(*own_tokenizer(), haystack, options, sample).ids);
    texts.insert(prompt.text);
    firsts.insert(prompt.asked[0].city);
    NeedlePromptOptions deeper = options;
    deeper.depth = 1;
    EXPECT_EQ(make_needle_prompt(*own_tokenizer(), haystack, deeper, sample).asked[0].city, prompt.asked[0].city);
  }
  EXPECT_EQ(texts.size(), 20u);
  EXPECT_GT(firsts.size(), 10u);
}

TEST(NeedlePrompts, GivenHaystacks) {
  std::string plain, numbered;
  for (int i = 0; i < 600; ++i) plain += "words without an end ";
  for (int i = 0; i < 300; ++i) numbered.append("It was ").append(std::to_string(i)).append(".5 then.\nAnd ");
  for (const std::string& text : {plain, std::string(5000, 'x'), numbered, std::string("short")}) {
    for (const double depth : {0.0, 0.3, 1.0}) {
      SCOPED_TRACE(text.substr(0, 20));
      const Haystack haystack(text, "t");
      const NeedlePromptOptions options = {NeedleForm::pair, 700, 4, 1, depth, 5};
      const NeedlePrompt prompt = make_needle_prompt(*own_tokenizer(), haystack, options, 1);
      EXPECT_LE(static_cast<int64_t>(prompt.ids.size()) + prompt.answer_tokens, 700);
      EXPECT_GE(static_cast<int64_t>(prompt.ids.size()) + prompt.answer_tokens, 700 - 202);
      EXPECT_NE(prompt.text.find(needle_sentence(NeedleForm::pair, prompt.asked[0])), std::string::npos);
    }
  }
}

TEST(NeedlePrompts, BadOptions) {
  const Haystack haystack;
  const auto refuse = [&](const NeedlePromptOptions& options, std::initializer_list<std::string> parts) {
    expect_error([&] { make_needle_prompt(*own_tokenizer(), haystack, options, 0); }, ErrorCode::usage, parts);
  };
  refuse({.length = 0}, {"length 0"});
  refuse({.length = int64_t{1} << 40}, {"length", "expected 1 to"});
  refuse({.needles = 0}, {"0 needles"});
  refuse({.needles = 2, .queries = 3}, {"3 of 2 needles"});
  refuse({.queries = 0}, {"0 of 1 needles"});
  refuse({.depth = 1.01}, {"depth 1.01"});
  refuse({.depth = -1}, {"depth -1"});
  refuse({.depth = std::numeric_limits<double>::quiet_NaN()}, {"depth nan"});
  refuse({.form = NeedleForm::pair, .length = 5000, .needles = 31}, {"31", "expected 1 to 30"});
  refuse({.length = 20}, {"length 20", "take", "larger length"});
}

}  // namespace
}  // namespace unchain::test
