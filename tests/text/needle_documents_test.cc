#include "text/needle_documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

#include "text/text_support.h"

namespace unchain::test {
namespace {

using namespace text;

struct Row {
  std::vector<int32_t> inputs, targets, starts;
  bool operator==(const Row&) const = default;
};

Row row_of(const NeedleDocuments& documents, uint64_t index, double progress) {
  const auto size = static_cast<size_t>(documents.context());
  Row row{std::vector<int32_t>(size), std::vector<int32_t>(size), std::vector<int32_t>(size)};
  documents.fill_row(index, progress, row.inputs, row.targets, row.starts);
  return row;
}

// The texts of a row's documents, and what of each counts, written the slow way.
struct Seen {
  std::string text, answers;
};
std::vector<Seen> documents_of(const Row& row, const tokenizer::Tokenizer& tokenizer) {
  std::vector<Seen> result;
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    if (row.starts[i] == static_cast<int32_t>(i)) {
      result.emplace_back();
      EXPECT_EQ(row.inputs[i], tokenizer.bos);
    } else {
      result.back().text += tokenizer.decode({row.inputs[i]});
    }
    EXPECT_FALSE(result.empty());
    if (row.targets[i] >= 0) {
      if (i + 1 < row.inputs.size()) {
        EXPECT_EQ(row.targets[i], row.inputs[i + 1]);
      }
      result.back().answers += tokenizer.decode({row.targets[i]});
    }
  }
  return result;
}

class NeedleDocumentsTest : public testing::TestWithParam<NeedleForm> {};

// Every document by its own words: needles somewhere, each asked at the end with its number and as many asked again,
// loss on the answers alone, cities and numbers of the training split.
TEST_P(NeedleDocumentsTest, AsksEveryNeedleAtTheEnd) {
  const bool pair = GetParam() == NeedleForm::pair;
  const auto tokenizer = own_tokenizer();
  const NeedleDocuments documents(tokenizer, {.form = GetParam(), .count = 4, .seed = 7}, 512);
  const auto& train_cities = needle_cities(NeedleSplit::train);
  const auto& train_numbers = needle_numbers(GetParam(), NeedleSplit::train);
  const std::regex needle(pair ? "([A-Z][a-z]+)([0-9]+);" : "The magic number of ([A-Z][a-z]+) is ([0-9]+)[.;]");
  size_t whole = 0, longest = 0, shortest = 1000;
  for (uint64_t index = 0; index < 40; ++index) {
    const Row row = row_of(documents, index, 1);
    const std::vector<Seen> all = documents_of(row, *tokenizer);
    std::set<std::string> cities;
    for (size_t d = 0; d < all.size(); ++d) {
      if (d + 1 == all.size()) continue;  // may be filler without an end, or without the last token, a target only
      const Seen& seen = all[d];
      SCOPED_TRACE(seen.text);
      std::vector<std::pair<std::string, std::string>> found;
      for (std::sregex_iterator at(seen.text.begin(), seen.text.end(), needle), end; at != end; ++at)
        found.emplace_back((*at)[1], (*at)[2]);
      ASSERT_EQ(found.size(), 12u);
      const std::vector<std::pair<std::string, std::string>> asked(found.begin() + 4, found.end());
      const std::set<std::pair<std::string, std::string>> needles(found.begin(), found.begin() + 4);
      EXPECT_EQ(needles.size(), 4u);
      EXPECT_EQ(std::set(asked.begin(), asked.end()), needles);
      for (const auto& [city, number] : needles) {
        EXPECT_TRUE(std::count(train_cities.begin(), train_cities.end(), city)) << city;
        EXPECT_TRUE(std::count(train_numbers.begin(), train_numbers.end(), number)) << number;
        EXPECT_TRUE(cities.insert(city).second) << city << " twice in a row";
      }
      std::string answers, questions;
      for (const auto& [city, number] : asked) {
        answers += needle_answer(GetParam(), number);
        questions += needle_question(GetParam(), city) + needle_answer(GetParam(), number);
      }
      EXPECT_EQ(seen.answers, answers);
      EXPECT_TRUE(seen.text.ends_with(questions));
      ++whole;
      longest = std::max(longest, seen.text.size());
      shortest = std::min(shortest, seen.text.size());
    }
  }
  EXPECT_GT(whole, 20u);
  EXPECT_GT(longest, 700u);
  EXPECT_LT(shortest, pair ? 200u : 540u);  // twelve needles and questions alone have about 110 and 450
}

TEST_P(NeedleDocumentsTest, SameIndexSameRow) {
  const NeedleDocumentOptions options = {.form = GetParam(), .count = 3, .seed = 1};
  const NeedleDocuments one(own_tokenizer(), options, 300), same(own_tokenizer(), options, 300);
  NeedleDocumentOptions other = options;
  other.seed = 2;
  const NeedleDocuments seeded(own_tokenizer(), other, 300);
  std::set<std::vector<int32_t>> rows;
  for (const uint64_t index : {uint64_t{5}, uint64_t{0}, uint64_t{1} << 35}) {
    const Row row = row_of(one, index, 0.5);
    EXPECT_EQ(row, row_of(same, index, 0.5));
    EXPECT_FALSE(row == row_of(seeded, index, 0.5));
    EXPECT_TRUE(rows.insert(row.inputs).second);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, NeedleDocumentsTest, testing::Values(NeedleForm::sentence, NeedleForm::pair),
                         [](const auto& form) { return std::string(to_string(form.param)); });

TEST(NeedleSchedule, CountDoublesOverTheRise) {
  const NeedleDocuments four(own_tokenizer(), {.count = 4, .rise = 0.3}, 512);
  const auto at = [](const NeedleDocuments& documents, const std::vector<double>& places) {
    std::vector<int64_t> counts;
    counts.reserve(places.size());
    for (const double place : places) counts.push_back(documents.needles_at(place));
    return counts;
  };
  EXPECT_EQ(at(four, {0, 0.09, 0.11, 0.19, 0.21, 0.29, 0.3, 1}), (std::vector<int64_t>{1, 1, 2, 2, 4, 4, 4, 4}));
  const NeedleDocuments six(own_tokenizer(), {.count = 6, .rise = 0.4}, 512);
  EXPECT_EQ(at(six, {0, 0.05, 0.15, 0.25, 0.35, 0.4, 1}), (std::vector<int64_t>{1, 1, 2, 4, 6, 6, 6}));
  const NeedleDocuments one(own_tokenizer(), {.count = 1, .rise = 0.1}, 512);
  EXPECT_EQ(at(one, {0, 0.05, 1}), (std::vector<int64_t>{1, 1, 1}));
  const NeedleDocuments at_once(own_tokenizer(), {.count = 8, .rise = 0}, 512);
  EXPECT_EQ(at(at_once, {0, 0.05, 1}), (std::vector<int64_t>{8, 8, 8}));
}

TEST(NeedleSchedule, FillerIsLimitedAndMayRise) {
  const NeedleDocuments short_filler(own_tokenizer(), {.count = 1, .rise = 0, .filler = 20}, 512);
  const NeedleDocuments rising(own_tokenizer(), {.count = 1, .rise = 0, .filler_rise = 0.5}, 512);
  EXPECT_EQ(short_filler.filler_at(0), 20);
  EXPECT_EQ(rising.filler_at(0), 0);
  EXPECT_EQ(rising.filler_at(0.25), 256);
  EXPECT_EQ(rising.filler_at(0.75), 512);
  for (const Seen& seen : documents_of(row_of(rising, 3, 0), *own_tokenizer())) EXPECT_LT(seen.text.size(), 60u);
  for (const Seen& seen : documents_of(row_of(short_filler, 3, 0), *own_tokenizer())) EXPECT_LT(seen.text.size(), 160u);
}

TEST(NeedleFiller, HalfOfTheDocumentsTakeTheGivenText) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "quibble zigzag quibble zigzag. ";
  const NeedleDocuments documents(own_tokenizer(), {.count = 1, .rise = 0}, 256,
                                  std::make_shared<const Haystack>(text, "t"));
  int given = 0, own = 0;
  for (uint64_t index = 0; index < 60; ++index) {
    for (const Seen& seen : documents_of(row_of(documents, index, 1), *own_tokenizer())) {
      const bool zigzag = seen.text.find("zigzag") != std::string::npos;
      (zigzag ? given : own) += seen.text.size() > 100 && seen.answers.size() > 2;
    }
  }
  EXPECT_GT(given, 20);
  EXPECT_GT(own, 20);
}

TEST(NeedleFiller, OtherTokenizersGiveRowsToo) {
  for (const char* file : {"byte_level.json", "gemma_like.model", "llama_like.model"}) {
    SCOPED_TRACE(file);
    const auto tokenizer = other_tokenizer(file);
    const NeedleDocuments documents(tokenizer, {.count = 2, .rise = 0}, 600);
    const Row row = row_of(documents, 1, 1);
    std::vector<int32_t> answers;
    for (const int32_t id : row.targets) {
      if (id >= 0) answers.push_back(id);
    }
    const std::string text = tokenizer->decode(answers);
    EXPECT_TRUE(std::regex_match(text, std::regex("([0-9]{2};)+[0-9]?[0-9]?"))) << text;
  }
}

TEST(NeedleDocumentsOptions, BadOnes) {
  const auto make = [](const NeedleDocumentOptions& options, int64_t context) {
    return [options, context] { NeedleDocuments(own_tokenizer(), options, context); };
  };
  expect_error(make({}, 0), ErrorCode::usage, {"context is 0"});
  expect_error(make({.count = 0}, 256), ErrorCode::usage, {"needles.count"});
  expect_error(make({.count = 61}, 100'000), ErrorCode::usage, {"61", "expected 1 to"});
  expect_error(make({.filler = -1}, 256), ErrorCode::usage, {"needles.filler"});
  for (const double bad : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    expect_error(make({.rise = bad}, 256), ErrorCode::usage, {"needles.rise"});
    expect_error(make({.filler_rise = bad}, 256), ErrorCode::usage, {"needles.rise"});
  }
  expect_error(make({.count = 8}, 60), ErrorCode::usage, {"8 needles", "tokens", "context is 60"});
  // Eight needles alone would fit, with their sixteen questions they do not.
  expect_error(make({.count = 8}, 150), ErrorCode::usage, {"8 needles", "tokens", "context is 150"});
}

}  // namespace
}  // namespace unchain::test
