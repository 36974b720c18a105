#include "text/needle_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "text/haystack.h"
#include "text/text_support.h"

namespace unchain::test {
namespace {

using namespace text;

std::string cut(const std::string& text, ByteSpan span) {
  return text.substr(span.begin, span.end - span.begin);
}

TEST(NeedleTexts, FormsAreWrittenAsAgreed) {
  EXPECT_EQ(needle_sentence(NeedleForm::sentence, {"Corton", "1234"}), "The magic number of Corton is 1234.");
  EXPECT_EQ(needle_question(NeedleForm::sentence, "Corton"), "\nThe magic number of Corton is");
  EXPECT_EQ(needle_sentence(NeedleForm::pair, {"Corton", "42"}), "Corton42;");
  EXPECT_EQ(needle_question(NeedleForm::pair, "Corton"), "\nCorton");
  EXPECT_EQ(needle_answer(NeedleForm::sentence, "1234"), " 1234;");
  EXPECT_EQ(needle_answer(NeedleForm::pair, "42"), "42;");
  for (const NeedleForm form : {NeedleForm::sentence, NeedleForm::pair})
    EXPECT_EQ(parse_needle_form(to_string(form)), form);
  expect_error([] { parse_needle_form("verse"); }, ErrorCode::usage, {"verse", "sentence or pair"});
}

TEST(NeedleTexts, AnswerIsTheFirstWholeRunOfDigits) {
  for (const char* right : {"42", " 42;", "is 42.", "42, or 17", " 42;\n43"})
    EXPECT_TRUE(is_right_answer(right, "42")) << right;
  for (const char* wrong : {"", " none", "421", "142", "4 2", "17, no: 42", "042", "4"})
    EXPECT_FALSE(is_right_answer(wrong, "42")) << wrong;
}

TEST(NeedleTexts, TrainingAndTestShareNothing) {
  const auto check = [](const std::vector<std::string>& train, const std::vector<std::string>& test, size_t all) {
    std::set<std::string> both(train.begin(), train.end());
    both.insert(test.begin(), test.end());
    EXPECT_EQ(both.size(), all);
    EXPECT_EQ(train.size() + test.size(), all);
    EXPECT_NEAR(static_cast<double>(test.size()), static_cast<double>(all) / 3, 1);
  };
  check(needle_cities(NeedleSplit::train), needle_cities(NeedleSplit::test), 400);
  check(needle_numbers(NeedleForm::pair, NeedleSplit::train), needle_numbers(NeedleForm::pair, NeedleSplit::test), 90);
  check(needle_numbers(NeedleForm::sentence, NeedleSplit::train),
        needle_numbers(NeedleForm::sentence, NeedleSplit::test), 9000);
  // Fixed for good: models trained before must stay testable.
  EXPECT_EQ(needle_cities(NeedleSplit::test).front(), "Bastand");
  EXPECT_EQ(needle_numbers(NeedleForm::pair, NeedleSplit::test).front(), "10");
}

TEST(NeedleTexts, DrawnNeedlesDiffer) {
  Rng rng(1);
  NeedleDrawer drawer(NeedleForm::pair, NeedleSplit::train);
  std::set<std::string> cities;
  for (int call = 0; call < 30; ++call) {
    std::set<std::string> numbers, beginnings;
    for (const Needle& needle : drawer.draw(8, rng)) {
      EXPECT_TRUE(cities.insert(needle.city).second) << needle.city;
      EXPECT_TRUE(numbers.insert(needle.number).second);
      beginnings.insert(needle.city.substr(0, 3));
    }
    if (call < 10) {
      EXPECT_EQ(beginnings.size(), 8u);
    }
  }
  // More than there are names left: they begin again.
  for (int call = 0; call < 20; ++call) EXPECT_EQ(drawer.draw(60, rng).size(), 60u);
  const size_t most = needle_numbers(NeedleForm::pair, NeedleSplit::test).size();
  NeedleDrawer test(NeedleForm::pair, NeedleSplit::test);
  EXPECT_EQ(test.draw(most, rng).size(), most);
  for (const size_t bad : {size_t{0}, most + 1, SIZE_MAX})
    expect_error([&] { test.draw(bad, rng); }, ErrorCode::usage, {"expected 1 to " + std::to_string(most)});
}

TEST(InsertionPoint, AfterASentenceWithinReachElseAtABlank) {
  const std::string text = "One is 3.14 long. Two! Three?\nFour five";
  EXPECT_EQ(insertion_point(text, 0), 0u);
  EXPECT_EQ(insertion_point(text, text.size()), text.size());
  EXPECT_EQ(insertion_point(text, SIZE_MAX), text.size());
  EXPECT_EQ(insertion_point(text, 10), text.find("Two"));  // not inside 3.14
  EXPECT_EQ(insertion_point(text, 20), text.find("Two"));
  EXPECT_EQ(insertion_point(text, 22), text.find("Three"));
  EXPECT_EQ(insertion_point(text, 31), text.find("Four"));
  std::string plain;
  while (plain.size() < 1000) plain += "words without end ";
  plain.pop_back();
  EXPECT_EQ(insertion_point(plain, 500), plain.rfind(' ', 500) + 1);
  EXPECT_EQ(insertion_point(plain, 199), 0u);  // the text's start is near enough
  plain.insert(300, ". ");
  EXPECT_EQ(insertion_point(plain, 500), 302u - 0u + (plain[301] == ' ' ? 0u : 1u));
  EXPECT_NE(insertion_point(plain, 503), 302u);
  const std::string solid(1000, 'x');
  EXPECT_EQ(insertion_point(solid, 400), 0u);
  EXPECT_EQ(insertion_point(solid, 600), 1000u);
  EXPECT_EQ(insertion_point("", 0), 0u);
  EXPECT_EQ(insertion_point("", 7), 0u);
}

TEST(InsertNeedles, TextStaysAndSpansFit) {
  const std::string body = "One stone. Two stones.\nThree stones.";
  const std::vector<Needle> needles = {{"Corton", "42"}, {"Elmby", "17"}, {"Dunlow", "99"}, {"Marport", "23"}};
  const NeedleText result = insert_needles(body, NeedleForm::pair, needles, {body.size(), 12, 0, body.size() - 1});
  EXPECT_EQ(result.text, "Dunlow99; One stone. Elmby17; Two stones.\nThree stones. Marport23; Corton42;");
  for (size_t i = 0; i < needles.size(); ++i) {
    EXPECT_EQ(cut(result.text, result.needles[i]), needle_sentence(NeedleForm::pair, needles[i]));
    EXPECT_EQ(cut(result.text, result.cities[i]), needles[i].city);
    EXPECT_EQ(cut(result.text, result.numbers[i]), needles[i].number);
  }
  const NeedleText sentence = insert_needles(body, NeedleForm::sentence, {{"Elmby", "1700"}}, {23});
  EXPECT_EQ(sentence.text, "One stone. Two stones.\nThe magic number of Elmby is 1700. Three stones.");
  EXPECT_EQ(cut(sentence.text, sentence.cities[0]), "Elmby");
  EXPECT_EQ(cut(sentence.text, sentence.numbers[0]), "1700");
  EXPECT_EQ(insert_needles("", NeedleForm::pair, {needles[0], needles[1]}, {0, 0}).text, "Corton42; Elmby17;");
  EXPECT_EQ(insert_needles("solid", NeedleForm::pair, {needles[0]}, {5}).text, "solid Corton42;");
}

TEST(TokenSpans, AreTheTokensThatHoldTheBytes) {
  const std::string text = " Ünë Corton42;  last\n\n\xff x";
  for (const auto& tokenizer : {own_tokenizer(), other_tokenizer("byte_level.json"),
                                other_tokenizer("gemma_like.model"), other_tokenizer("llama_like.model")}) {
    SCOPED_TRACE(tokenizer->kind);
    const std::vector<int32_t> ids = tokenizer->encode(text);
    const std::vector<size_t> ends = token_ends(*tokenizer, text, ids);
    ASSERT_EQ(ends.size(), ids.size());
    EXPECT_EQ(ends.back(), text.size());
    for (size_t begin = 0; begin < text.size(); ++begin) {
      for (size_t end = begin + 1; end <= text.size(); ++end) {
        const TokenSpan span = tokens_of({begin, end}, ends);
        for (int64_t t = 0; t < static_cast<int64_t>(ids.size()); ++t) {
          const size_t first = t == 0 ? 0 : ends[static_cast<size_t>(t) - 1], last = ends[static_cast<size_t>(t)];
          const bool overlaps = first < end && last > begin;
          // Tokens without bytes may lie between.
          if (first < last) {
            EXPECT_EQ(overlaps, t >= span.begin && t < span.end) << begin << " " << end << " " << t;
          }
        }
      }
    }
  }
}

TEST(HaystackTest, UnitsAreSentencesAndJoinToTheText) {
  const std::string text = "One two. Three!\nFour\n\nFive " + std::string(500, 'y') + " six? " +
                           std::string("\xc3\xa9", 2) + std::string(3, 'z');
  const Haystack haystack(text, "t");
  Haystack::Run run(haystack, Rng(4));
  std::string joined;
  std::set<std::string> units;
  for (int i = 0; i < 40; ++i) {
    const std::string unit(run.next());
    EXPECT_LE(unit.size(), 200u);
    EXPECT_FALSE(unit.empty());
    units.insert(unit);
    joined += unit;
  }
  EXPECT_NE(joined.find(text), std::string::npos);
  for (const char* unit : {"One two. ", "Three!\n", "Four\n", "\n", "Five "}) EXPECT_TRUE(units.contains(unit)) << unit;
  for (const char* blank : {"", " ", "\n \t\r\n"})
    expect_error([&] { Haystack(blank, "t.txt"); }, ErrorCode::format, {"t.txt", "no text"});
  const Haystack wide(
      std::string(150, 'x') +
          [] {
            std::string accents;
            for (int i = 0; i < 300; ++i) accents += "é";
            return accents;
          }(),
      "t");
  Haystack::Run characters(wide, Rng(0));
  for (int i = 0; i < 10; ++i) EXPECT_NE(static_cast<uint8_t>(characters.next()[0]) & 0xc0, 0x80);
}

TEST(HaystackTest, NeutralSentencesComeAllBeforeOneComesAgain) {
  const size_t count = neutral_sentences().size();
  EXPECT_GE(count, 60u);
  for (const std::string_view sentence : neutral_sentences()) {
    EXPECT_TRUE(sentence.ends_with('.'));
    EXPECT_EQ(sentence.find_first_of("0123456789=;\n"), std::string_view::npos) << sentence;
  }
  const Haystack haystack;
  Haystack::Run run(haystack, Rng(2)), same(haystack, Rng(2)), other(haystack, Rng(3));
  bool differs = false;
  std::set<std::vector<std::string_view>> orders;
  for (int pass = 0; pass < 3; ++pass) {
    std::set<std::string_view> seen;
    std::vector<std::string_view> order;
    for (size_t i = 0; i < count; ++i) {
      const std::string_view unit = run.next();
      EXPECT_EQ(unit, same.next());
      differs = differs || unit != other.next();
      seen.insert(unit);
      order.push_back(unit);
    }
    EXPECT_TRUE(orders.insert(order).second);
    EXPECT_EQ(seen.size(), count);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace unchain::test
