// Choices: reading of lines, the border between context and option, and scores against full passes in double.
#include "eval/choice.h"

#include <algorithm>
#include <cmath>

#include "support/golden_model.h"
#include "support/tiny_model.h"

namespace unchain::test {
namespace {

using eval::ChoiceTemplate;

const std::string kLines =
    R"({"id": "a", "context": "The river meets", "choices": ["the sea", "a stone of iron", "it"], "answer": 2})"
    "\n\r\n"
    R"({"context": "Two birds ", "choices": ["sing — loudly", "sing"], "answer": 0})"
    "\n";

struct Tiny {
  explicit Tiny(const std::string& vocabulary) {
    write_tiny_model(folder.path(), {"llama", vocabulary, false, {}});
    model = model::load(folder.path(), DType::f32);
    tokenizer = model::ModelFile::open(folder.path()).tokenizer();
  }
  TemporaryFolder folder;
  std::shared_ptr<const model::Transformer> model;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
};

// log p of ids[at] after the ones before it, in double, and whether it is the likeliest.
std::pair<double, bool> log_probability(const Tiny& tiny, const std::vector<int32_t>& ids, size_t at) {
  const auto vocabulary = static_cast<size_t>(tiny.model->config.vocabulary);
  const std::vector<float> all = logits_of(tiny.model, ids);
  const std::vector<double> row(all.begin() + static_cast<long>((at - 1) * vocabulary),
                                all.begin() + static_cast<long>(at * vocabulary));
  double sum = 0;
  for (const double x : row) sum += std::exp(x);
  const auto id = static_cast<size_t>(ids[at]);
  return {row[id] - std::log(sum), std::max_element(row.begin(), row.end()) == row.begin() + ids[at]};
}

TEST(ChoiceItems, AreReadLineByLine) {
  const auto set = eval::read_choices(kLines, "x");
  EXPECT_FALSE(set.last_words);
  ASSERT_EQ(set.items.size(), 2u);
  EXPECT_EQ(set.items[0].id, "a");
  EXPECT_EQ(set.items[0].choices[1], "a stone of iron");
  EXPECT_EQ(set.items[0].answer, 2u);
  EXPECT_EQ(set.items[1].id, "3");
  EXPECT_EQ(set.items[1].line, 3);
  EXPECT_EQ(eval::read_choices(kLines, "x", 1).items.size(), 1u);
  const auto words = eval::read_choices("{\"text\": \"one two,\\n\\nthree. \\n\"}", "x");
  EXPECT_TRUE(words.last_words);
  EXPECT_EQ(words.items[0].context, "one two,");
  EXPECT_EQ(words.items[0].choices, std::vector<std::string>{"\n\nthree."});
}

TEST(ChoiceItems, BadLinesAreErrorsWithTheirNumber) {
  const std::string good = R"({"context": "a", "choices": ["b", "c"], "answer": 0})";
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"context": "a", "choices": ["b", "c"], "answer": 0)", "ends too early"},
      {R"(["a"])", "no JSON object"},
      {R"({"context": 1, "choices": ["b", "c"], "answer": 0})", "no string \"context\""},
      {R"({"context": "a", "answer": 0})", "no list \"choices\""},
      {R"({"context": "a", "choices": [], "answer": 0})", "number of choices: 0"},
      {R"({"context": "a", "choices": ["b"], "answer": 0})", "number of choices: 1"},
      {R"({"context": "a", "choices": ["b", 2], "answer": 0})", "choice 1 is no text"},
      {R"({"context": "a", "choices": ["b", " \n"], "answer": 0})", "choice 1 is empty"},
      {R"({"context": "a", "choices": ["b", "c"]})", "no whole number \"answer\""},
      {R"({"context": "a", "choices": ["b", "c"], "answer": 0.5})", "no whole number \"answer\""},
      {R"({"context": "a", "choices": ["b", "c"], "answer": 2})", "answer 2, expected 0 to 1"},
      {R"({"context": "a", "choices": ["b", "c"], "answer": -1})", "answer -1, expected 0 to 1"},
      {R"({"context": "a", "choices": ["b", "c"], "answer": 18446744073709551616})", "answer"},
      {R"({"text": "one two"})", "a last word among choices"},
      {"{\"context\": \"\xff\", \"choices\": [\"b\", \"c\"], \"answer\": 0}", "not valid JSON"},
  };
  for (const auto& [line, part] : wrong)
    expect_error([&, text = good + "\n" + line] { eval::read_choices(text, "file"); }, ErrorCode::format,
                 {"file: line 2", part});
  expect_error([&] { eval::read_choices("{\"text\": \"one two\"}\n" + good, "file"); }, ErrorCode::format,
               {"line 2", "a choice among last words"});
  for (const char* text : {"{\"text\": \"word\"}", "{\"text\": \" word \"}", "{\"text\": \"\"}"})
    expect_error([&] { eval::read_choices(text, "file"); }, ErrorCode::format, {"line 1", "fewer than two words"});
  expect_error([&] { eval::read_choices(" \n\n", "file"); }, ErrorCode::format, {"has no lines"});
  expect_error([&] { eval::read_choices(good, "file", -1); }, ErrorCode::usage, {"--max-items -1"});
}

TEST(ChoiceItems, TheOptionIsWhatFollowsTheTokensOfTheContext) {
  for (const char* vocabulary : {"byte_level", "gemma_like", "llama_like"}) {
    SCOPED_TRACE(vocabulary);
    const Tiny tiny(vocabulary);
    const auto set = eval::read_choices(kLines, "x");
    for (const auto form : {ChoiceTemplate::plain, ChoiceTemplate::question}) {
      const auto items = eval::encode_choices(*tiny.tokenizer, set, form, "x");
      for (size_t i = 0; i < items.size(); ++i) {
        const std::string question = form == ChoiceTemplate::question
                                         ? "Question: " + set.items[i].context + "\nAnswer: "
                                         : set.items[i].context + " ";
        std::string context = question;
        while (context.back() == ' ') context.pop_back();
        for (size_t c = 0; c < items[i].options.size(); ++c) {
          const eval::OptionTokens& option = items[i].options[c];
          EXPECT_EQ(option.ids, tiny.tokenizer->encode_with_bos(question + set.items[i].choices[c]));
          EXPECT_EQ(option.first, static_cast<int64_t>(tiny.tokenizer->encode_with_bos(context).size()));
          EXPECT_EQ(option.bytes, set.items[i].choices[c].size());
          EXPECT_LT(items[i].shared, option.first);
          EXPECT_TRUE(
              std::equal(option.ids.begin(), option.ids.begin() + items[i].shared, items[i].options[0].ids.begin()));
        }
      }
    }
  }
}

TEST(ChoiceItems, AnEmptyContextWithoutBosIsAnError) {
  const Tiny tiny("byte_level");
  const auto set = eval::read_choices(R"({"context": " ", "choices": ["b", "c"], "answer": 0})", "file");
  expect_error([&] { eval::encode_choices(*tiny.tokenizer, set, ChoiceTemplate::plain, "file"); }, ErrorCode::format,
               {"file: line 1", "the context is empty"});
  EXPECT_NO_THROW(eval::encode_choices(*tiny.tokenizer, set, ChoiceTemplate::question, "file"));
}

// Hears nothing from the first blank on.
class Deaf : public tokenizer::Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, tokenizer::Control, tokenizer::Missing*) const override {
    return std::vector<int32_t>(std::min(text.size(), text.find(' ')), 1);
  }
  std::string decode(const std::vector<int32_t>& ids) const override { return std::string(ids.size(), 'a'); }
  int32_t size() const override { return 2; }
  std::string piece(int32_t) const override { return "a"; }
  bool is_control(int32_t) const override { return false; }
};

TEST(ChoiceItems, AnOptionThatAddsNoTokenIsAnError) {
  const auto set = eval::read_choices(R"({"context": "aa", "choices": ["b", "c"], "answer": 0})", "file");
  expect_error([&] { eval::encode_choices(Deaf(), set, ChoiceTemplate::plain, "file"); }, ErrorCode::format,
               {"file: line 1", "choice 0 adds no token to the context's 2"});
}

TEST(Choice, ScoresAreSumsOfLogProbabilities) {
  for (const char* vocabulary : {"byte_level", "gemma_like"}) {
    SCOPED_TRACE(vocabulary);
    const Tiny tiny(vocabulary);
    const auto set = eval::read_choices(kLines, "x");
    const auto items = eval::encode_choices(*tiny.tokenizer, set, ChoiceTemplate::plain, "x");
    size_t done = 0, total = 0;
    const auto result = eval::score_choices(tiny.model, items, false, [&](size_t d, size_t t) {
      done = d;
      total = t;
    });
    EXPECT_EQ(done, total);
    EXPECT_EQ(total, static_cast<size_t>(eval::choice_tokens(items)));
    EXPECT_NEAR(result.chance, (1 / 3. + 1 / 2.) / 2, 1e-12);
    int64_t right = 0, right_per_byte = 0;
    double answers = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      std::vector<double> raw, per_byte;
      for (size_t c = 0; c < items[i].options.size(); ++c) {
        const eval::OptionTokens& option = items[i].options[c];
        double sum = 0;
        for (size_t at = static_cast<size_t>(option.first); at < option.ids.size(); ++at)
          sum += log_probability(tiny, option.ids, at).first;
        EXPECT_NEAR(result.items[i].options[c].log_likelihood, sum, 1e-4);
        EXPECT_EQ(result.items[i].options[c].tokens, static_cast<int64_t>(option.ids.size()) - option.first);
        raw.push_back(sum);
        per_byte.push_back(sum / static_cast<double>(set.items[i].choices[c].size()));
      }
      const auto largest = [](const std::vector<double>& x) {
        return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
      };
      EXPECT_EQ(result.items[i].chosen, largest(raw));
      EXPECT_EQ(result.items[i].chosen_per_byte, largest(per_byte));
      right += largest(raw) == set.items[i].answer;
      right_per_byte += largest(per_byte) == set.items[i].answer;
      answers -= raw[set.items[i].answer] / 2;
    }
    EXPECT_EQ(result.accuracy.right, right);
    EXPECT_EQ(result.per_byte.right, right_per_byte);
    EXPECT_NEAR(result.answer_nll, answers, 1e-4);
  }
}

TEST(Choice, ALastWordIsRightIfEachOfItsTokensIsTheLikeliest) {
  // After token t comes t + 1: the word that follows in the vocabulary is foretold, others are not.
  const TemporaryFolder folder;
  write_tiny_model(folder.path(), {"llama", "byte_level", true, {}});
  const auto model = model::load(folder.path(), DType::f32);
  const auto chain = [](std::vector<int32_t> ids, int64_t first) {
    return eval::ChoiceTokens{"", {{std::move(ids), first, 3}}, 0, first - 1, false};
  };
  const auto result =
      eval::score_choices(model, {chain({40, 41, 42}, 1), chain({40, 41, 43}, 1), chain({40, 43, 44}, 1)}, true);
  EXPECT_TRUE(result.items[0].options[0].likeliest);
  EXPECT_FALSE(result.items[1].options[0].likeliest);
  EXPECT_FALSE(result.items[2].options[0].likeliest);
  EXPECT_EQ(result.accuracy.right, 1);
  EXPECT_EQ(result.accuracy.asked, 3);
  EXPECT_EQ(result.per_byte.asked, 0);
}

}  // namespace
}  // namespace unchain::test
