// Needles: models whose next token follows from the last one alone say known answers; attention is held against full
// passes without a cache.
#include "eval/needle.h"

#include <map>
#include <span>

#include "attention/maps.h"
#include "support/family_model.h"
#include "support/golden_model.h"
#include "support/tiny_model.h"

namespace unchain::test {
namespace {

using eval::NeedleOptions;

// The last row of every map of a pass: A1, and P = A1 − λ·A2 in double.
class LastRows : public attention::Observer {
 public:
  using Rows = std::vector<std::vector<std::vector<double>>>;  // [layer][head][key]

  void on_maps(const attention::MapPanel& panel) override {
    for (Rows* rows : {&positive, &combined, &bounds}) {
      rows->resize(static_cast<size_t>(panel.layer) + 1);
      rows->back().clear();
    }
    const int64_t r = panel.rows - 1;
    for (int h = 0; h < panel.heads; ++h) {
      const float* row = panel.positive_row(h, r);
      positive.back().emplace_back(row, row + panel.keys);
      std::vector<double> p = positive.back().back(), bound = p;
      for (int64_t j = 0; panel.noise && j < panel.keys; ++j) {
        const double noise =
            static_cast<double>(panel.lambda[h * panel.rows + r]) * static_cast<double>(panel.noise_row(h, r)[j]);
        p[static_cast<size_t>(j)] -= noise;
        bound[static_cast<size_t>(j)] += std::abs(noise);
      }
      combined.back().push_back(std::move(p));
      bounds.back().push_back(std::move(bound));
    }
  }
  Rows positive, combined, bounds;  // bounds: A1 + |λ|·A2, what roundings of P are relative to
};

double total(const std::vector<double>& row) {
  double sum = 0;
  for (const double weight : row) sum += std::abs(weight);
  return sum;
}

double share(const std::vector<double>& row, text::TokenSpan span) {
  return total({row.begin() + span.begin, row.begin() + span.end}) / total(row);
}

// A tiny model that says text after text, each a single token: `says` maps what was read last to what comes next.
struct Parrot {
  Parrot(const std::string& architecture, const std::string& vocabulary) {
    TinyModel options{architecture, vocabulary, true, {}};
    write_tiny_model(folder / "plain", options);
    tokenizer = model::ModelFile::open(folder / "plain").tokenizer();
  }
  // The token of a text that stands behind another one.
  int32_t id(const std::string& text) const {
    if (text == "END") return tokenizer->stops.at(0);
    const std::vector<int32_t> ids = tokenizer->encode(";" + text);
    EXPECT_EQ(tokenizer->decode({ids.back()}), text);
    return ids.back();
  }
  std::shared_ptr<const model::Transformer> load(const std::string& architecture, const std::string& vocabulary,
                                                 const std::map<int32_t, int32_t>& says) const {
    TinyModel options{architecture, vocabulary, true, {}};
    options.change = [&](const std::string& name, std::vector<float>& values) {
      if (name != "lm_head.weight") return;
      const std::vector<float> old = values;  // row t + 1 is loudest after token t
      for (const auto& [from, to] : says) std::fill_n(values.begin() + to * 32, 32, 0.0f);
      for (const auto& [from, to] : says) {
        for (size_t i = 0; i < 32; ++i)
          values[static_cast<size_t>(to) * 32 + i] += 8 * old[(static_cast<size_t>(from) + 1) * 32 + i];
      }
    };
    write_tiny_model(folder / "parrot", options);
    return model::load(folder / "parrot", DType::f32);
  }
  TemporaryFolder folder;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
};

// The tokens between the question and the first digit.
std::vector<int32_t> lead(const tokenizer::Tokenizer& tokenizer, text::NeedleForm form, const text::Needle& needle) {
  const std::string question = text::needle_question(form, needle.city);
  const std::vector<int32_t> before = tokenizer.encode(question);
  const std::string answer = text::needle_answer(form, needle.number);
  const std::vector<int32_t> whole = tokenizer.encode(question + answer.substr(0, answer.find(needle.number) + 1));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), whole.begin()));
  return {whole.begin() + static_cast<long>(before.size()), whole.end() - 1};
}

// Holds the shares of an answer, whose row is the last of `ids`, against a pass over all of them. Returns how far they
// are from the shares of A1 alone, at most.
double expect_attention(const std::shared_ptr<const model::Transformer>& model, const std::vector<int32_t>& ids,
                        text::TokenSpan number, const eval::NeedleAnswer& answer) {
  LastRows rows;
  const attention::Taps taps{{&rows}, {}};
  logits_of(model, ids, &taps);
  EXPECT_EQ(answer.attention.size(), rows.combined.size());
  double sum = 0, heads = 0, farthest = 0;
  for (size_t l = 0; l < rows.combined.size(); ++l) {
    EXPECT_EQ(answer.attention.at(l).size(), rows.combined[l].size());
    for (size_t h = 0; h < rows.combined[l].size(); ++h) {
      const std::vector<double>& row = rows.combined[l][h];
      EXPECT_EQ(row.size(), ids.size());
      // The weights of one token read with a cache are off from those of a whole pass by some roundings of themselves.
      EXPECT_NEAR(answer.attention[l].at(h), share(row, number), 1e-6 * total(rows.bounds[l][h]) / total(row))
          << "layer " << l << " head " << h;
      sum += share(row, number);
      ++heads;
      farthest = std::max(farthest, std::abs(answer.attention[l][h] - share(rows.positive[l][h], number)));
    }
  }
  EXPECT_NEAR(eval::mean_attention(answer), sum / heads, 1e-6);
  return farthest;
}

struct Script {
  std::vector<std::string> says;  // after the question, token by token; the last one for ever where `said` is −1
  std::string answer;             // what is kept of it
  int64_t said = 0;               // tokens of it that the context reads before the next question; −1: all the room
  text::NeedleForm form = text::NeedleForm::sentence;
};

void expect_answers(const std::string& architecture, const std::string& vocabulary, const Script& script) {
  SCOPED_TRACE(architecture + " says " + script.answer);
  const Parrot parrot(architecture, vocabulary);
  NeedleOptions options;
  options.form = script.form;
  options.lengths = {script.form == text::NeedleForm::sentence ? 400 : 90};
  options.depths = {0, 1};
  options.needles = 3;
  options.queries = 2;
  options.samples = 2;
  const text::Haystack haystack;
  const auto tasks = eval::plan_needles(*parrot.tokenizer, haystack, options);
  ASSERT_EQ(tasks.size(), 2u);
  std::map<int32_t, int32_t> says;
  for (const auto& task : tasks) {
    for (const text::NeedlePrompt& prompt : task.prompts) {
      for (const auto& question : {prompt.ids, prompt.questions[0]}) says[question.back()] = parrot.id(script.says[0]);
    }
  }
  int32_t last = parrot.id(script.says[0]);
  for (const std::string& text : std::span(script.says).subspan(1)) last = says[last] = parrot.id(text);
  if (script.said < 0) says[last] = last;
  const auto model = parrot.load(architecture, vocabulary, says);
  size_t calls = 0, final = 0, total = 0;
  const auto result = eval::ask_needles(model, *parrot.tokenizer, options.form, tasks, [&](size_t done, size_t of) {
    ++calls;
    final = done;
    total = of;
  });
  EXPECT_EQ(calls, 4u);
  EXPECT_EQ(final, total);
  EXPECT_EQ(result.accuracy.asked, 8);
  for (size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(result.cells[t].depth, options.depths[t]);
    EXPECT_EQ(result.cells[t].all.asked, 4);
    EXPECT_EQ(result.cells[t].first.asked, 2);
    for (size_t s = 0; s < 2; ++s) {
      const text::NeedlePrompt& prompt = tasks[t].prompts[s];
      const eval::NeedleSample& sample = result.cells[t].samples[s];
      EXPECT_EQ(sample.depth, prompt.depth);
      EXPECT_EQ(sample.prompt_tokens, static_cast<int64_t>(prompt.ids.size()));
      std::vector<int32_t> ids = prompt.ids;
      for (size_t q = 0; q < 2; ++q) {
        const eval::NeedleAnswer& answer = sample.answers[q];
        EXPECT_EQ(answer.asked.number, prompt.asked[q].number);
        EXPECT_EQ(answer.text, script.answer);
        EXPECT_FALSE(answer.right);
        const std::vector<int32_t> blank = lead(*parrot.tokenizer, options.form, prompt.asked[q]);
        std::vector<int32_t> row = ids;
        row.insert(row.end(), blank.begin(), blank.end());
        expect_attention(model, row, prompt.numbers[q], answer);
        if (q > 0) break;
        EXPECT_EQ(eval::first_digit_context(*parrot.tokenizer, options.form, prompt), row);
        const int64_t said = script.said < 0 ? prompt.answer_tokens : script.said;
        for (int64_t i = 0; i < said; ++i) ids.push_back(says.at(ids.back()));
        ids.insert(ids.end(), prompt.questions[0].begin(), prompt.questions[0].end());
      }
    }
  }
}

TEST(Needle, AnAnswerEndsWhereItsDigitsDo) {
  for (const auto& [architecture, vocabulary, form] : {std::tuple{"llama", "byte_level", text::NeedleForm::sentence},
                                                       std::tuple{"llama", "gemma_like", text::NeedleForm::sentence},
                                                       std::tuple{"gemma3", "gemma_like", text::NeedleForm::pair}}) {
    expect_answers(architecture, vocabulary, {{" ", "7", ";"}, " 7;", 3, form});
    expect_answers(architecture, vocabulary, {{" ", "7", "\n"}, " 7", 2, form});
    expect_answers(architecture, vocabulary, {{" ", "7", "END"}, " 7", 2, form});
    expect_answers(architecture, vocabulary, {{"x", "7", ";"}, "x7;", 3, form});
  }
}

TEST(Needle, AnAnswerEndsWhereItsRoomDoes) {
  expect_answers("llama", "byte_level", {{"x"}, "xxxxxxx", -1});
  expect_answers("llama", "byte_level", {{"END"}, "", 0});
}

TEST(Needle, CountsRightAnswers) {
  const Parrot parrot("llama", "byte_level");
  NeedleOptions options;
  options.form = text::NeedleForm::pair;
  options.lengths = {60};
  options.depths = {0.5};
  options.needles = 1;
  options.samples = 30;
  const auto tasks = eval::plan_needles(*parrot.tokenizer, text::Haystack(), options);
  // The number of the first prompt with two different digits is said to all questions.
  std::string number = "00";
  for (const auto& prompt : tasks[0].prompts) {
    if (number[0] == number[1]) number = prompt.asked[0].number;
  }
  const int32_t asked = tasks[0].prompts[0].ids.back(), first = parrot.id(number.substr(0, 1)),
                second = parrot.id(number.substr(1));
  const auto model =
      parrot.load("llama", "byte_level",
                  {{asked, parrot.id(" ")}, {parrot.id(" "), first}, {first, second}, {second, parrot.id(";")}});
  const auto result = eval::ask_needles(model, *parrot.tokenizer, options.form, tasks);
  int64_t right = 0;
  for (const auto& prompt : tasks[0].prompts) right += prompt.asked[0].number == number;
  EXPECT_GT(right, 0);
  EXPECT_LT(right, 30);
  EXPECT_EQ(result.accuracy.right, right);
  EXPECT_EQ(result.cells[0].first.right, right);
  EXPECT_EQ(result.cells[0].samples[0].answers[0].text, " " + number + ";");
}

// What an editor changes is changed in every pass: it sees each position of a prompt and of its answer once, but for
// the blank that is read for the row's sake alone.
TEST(Needle, EditorsSeeEveryToken) {
  class Count : public attention::Editor {
   public:
    void edit_maps(attention::MapPanel& panel) override {
      if (panel.layer == 0) rows += panel.rows;
    }
    int64_t rows = 0;
  };
  const Parrot parrot("llama", "gemma_like");
  NeedleOptions options;
  options.form = text::NeedleForm::pair;
  options.lengths = {90};
  options.depths = {0.5};
  options.needles = 2;
  options.samples = 1;
  const auto tasks = eval::plan_needles(*parrot.tokenizer, text::Haystack(), options);
  const auto& prompt = tasks[0].prompts[0];
  const auto model =
      parrot.load("llama", "gemma_like", {{prompt.ids.back(), parrot.id("7")}, {parrot.id("7"), parrot.id(";")}});
  Count count;
  const auto result = eval::ask_needles(model, *parrot.tokenizer, options.form, tasks, {}, {&count});
  EXPECT_EQ(result.cells[0].samples[0].answers[0].text, "7;");
  const auto blanks = static_cast<int64_t>(lead(*parrot.tokenizer, options.form, prompt.asked[0]).size());
  EXPECT_EQ(count.rows, static_cast<int64_t>(prompt.ids.size()) + 1 + blanks);  // and the digit
  EXPECT_EQ(eval::ask_needles(model, *parrot.tokenizer, options.form, tasks).cells[0].samples[0].answers[0].text, "7;");
}

// Of models that subtract a map, Σ|P| is that of the signed combination: A1 alone would give other shares.
TEST(Needle, AttentionOfADifferentialModelIsThatOfItsSignedMaps) {
  const Parrot parrot("llama", "byte_level");
  NeedleOptions options;
  options.form = text::NeedleForm::pair;
  options.lengths = {90};
  options.depths = {0, 1};
  options.needles = 3;
  options.samples = 2;
  const auto tasks = eval::plan_needles(*parrot.tokenizer, text::Haystack(), options);
  for (const char* member : {"diff_v1", "diff_v2", "lowrank_diff"}) {
    SCOPED_TRACE(member);
    model::Config config = family_config(member);
    config.vocabulary = parrot.tokenizer->size();
    config.context = 128;
    model::Trainable weights(config, DType::f32, 1);
    stir(weights);
    write_folder(parrot.folder / member, weights);
    const auto model = model::load(parrot.folder / member, DType::f32);
    const auto result = eval::ask_needles(model, *parrot.tokenizer, options.form, tasks);
    double farthest = 0;
    for (size_t t = 0; t < tasks.size(); ++t) {
      for (size_t s = 0; s < tasks[t].prompts.size(); ++s) {
        const text::NeedlePrompt& prompt = tasks[t].prompts[s];
        const std::vector<int32_t> blank = lead(*parrot.tokenizer, options.form, prompt.asked[0]);
        std::vector<int32_t> row = prompt.ids;
        row.insert(row.end(), blank.begin(), blank.end());
        const eval::NeedleAnswer& answer = result.cells[t].samples[s].answers[0];
        farthest = std::max(farthest, expect_attention(model, row, prompt.numbers[0], answer));
      }
    }
    EXPECT_GT(farthest, 0.01);
  }
}

TEST(Needle, WrongPlansAreErrors) {
  const Parrot parrot("llama", "byte_level");
  const auto wrong = [&](const char* part, const std::function<void(NeedleOptions&)>& change) {
    NeedleOptions options;
    change(options);
    expect_error([&] { eval::plan_needles(*parrot.tokenizer, text::Haystack(), options); }, ErrorCode::usage, {part});
  };
  wrong("lengths", [](NeedleOptions& o) { o.lengths.clear(); });
  wrong("lengths 256 is given twice", [](NeedleOptions& o) { o.lengths = {256, 256}; });
  wrong("depths", [](NeedleOptions& o) { o.depths.clear(); });
  wrong("depth 1.5", [](NeedleOptions& o) { o.depths = {1.5}; });
  wrong("0 samples", [](NeedleOptions& o) { o.samples = 0; });
  wrong("5 of 4 needles", [](NeedleOptions& o) { o.queries = 5; });
  wrong("length 20", [](NeedleOptions& o) { o.lengths = {20}; });
}

}  // namespace
}  // namespace unchain::test
