#include "text/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "text/text_support.h"

namespace unchain::test {
namespace {

using text::Batch;
using text::Batches;
using text::BatchOptions;

class BatchesTest : public testing::Test {
 protected:
  // Three documents; every token can be told from where it stands in the stream.
  static text::TokenFile data() {
    const TemporaryFolder folder;
    std::vector<std::string> documents(3);
    for (int i = 0; i < 60; ++i) documents[0].append("stone ").append(std::to_string(i)).append(";\n");
    documents[1] = "short";
    for (int i = 0; i < 40; ++i) documents[2].append("water ").append(std::to_string(i * i)).append(".\n");
    text::write_token_file(folder / "t", documents, *own_tokenizer());
    return text::TokenFile::open(folder / "t", *own_tokenizer());
  }
  static std::shared_ptr<const text::NeedleDocuments> needles(int64_t context) {
    return std::make_shared<text::NeedleDocuments>(own_tokenizer(), text::NeedleDocumentOptions{.count = 2}, context);
  }
  using Row = std::vector<int32_t>;
  static Row row(const std::vector<int32_t>& values, const Batch& batch, int64_t r) {
    return {values.begin() + r * batch.context, values.begin() + (r + 1) * batch.context};
  }
  // Inputs and targets of each row.
  static std::vector<std::pair<Row, Row>> rows(const Batch& batch) {
    std::vector<std::pair<Row, Row>> result;
    for (int64_t r = 0; r < batch.rows; ++r)
      result.emplace_back(row(batch.inputs, batch, r), row(batch.targets, batch, r));
    return result;
  }
};

TEST_F(BatchesTest, EachSampleOnceAnEpochWhateverTheStep) {
  const text::TokenFile file = data();
  constexpr int64_t kContext = 16;
  Batches batches(file, {.context = kContext, .rows = 6, .seed = 3});
  const int64_t samples = (file.tokens() - 1) / kContext;
  ASSERT_EQ(batches.samples(), samples);
  ASSERT_NE(samples % 6, 0);      // epochs end within steps
  std::map<Row, int64_t> number;  // inputs → sample
  for (int64_t s = 0; s < samples; ++s) {
    Row ids(kContext);
    file.copy(s * kContext, ids);
    ASSERT_TRUE(number.emplace(ids, s).second);
  }
  std::vector<int64_t> order;
  for (int64_t step = 0; step * 6 < 3 * samples; ++step) {
    const Batch batch = batches.read(step, {0, 6});
    EXPECT_EQ(batch.text_targets, 6 * kContext);
    EXPECT_EQ(batch.answer_targets, 0);
    for (const auto& [inputs, targets] : rows(batch)) {
      const int64_t sample = number.at(inputs);
      Row expected(kContext);
      file.copy(sample * kContext + 1, expected);
      EXPECT_EQ(targets, expected);
      order.push_back(sample);
    }
  }
  std::set<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> one(order.begin() + epoch * samples, order.begin() + (epoch + 1) * samples);
    orders.insert(one);
    std::sort(one.begin(), one.end());
    for (int64_t s = 0; s < samples; ++s) EXPECT_EQ(one[static_cast<size_t>(s)], s);
  }
  EXPECT_EQ(orders.size(), 3u);
}

TEST_F(BatchesTest, AnyNumberOfRanksSharesTheRowsOfAStep) {
  const text::TokenFile file = data();
  const BatchOptions options = {.context = 64, .rows = 12, .steps = 10, .needle_share = 0.25, .seed = 5};
  Batches whole(file, options, needles(64));
  for (const int64_t step : {0, 1, 9}) {
    const auto expected = rows(whole.read(step, {0, 12}));
    for (const int64_t ranks : {1, 2, 3, 4, 5}) {
      for (const int64_t micro_rows : {1, 2, 3, 5}) {
        std::vector<std::pair<Row, Row>> found;
        for (int64_t micro = 0; micro * ranks * micro_rows < 12; ++micro) {
          for (int64_t rank = 0; rank < ranks; ++rank) {
            Batches own(file, options, needles(64));
            for (auto& r : rows(own.read(step, text::rows_of(12, micro_rows, micro, rank, ranks))))
              found.push_back(std::move(r));
          }
        }
        EXPECT_EQ(found, expected) << ranks << " ranks of " << micro_rows;
      }
    }
  }
}

TEST_F(BatchesTest, RanksBeyondTheRowsGetNone) {
  EXPECT_EQ(text::rows_of(3, 2, 0, 1, 4).count, 1);
  EXPECT_EQ(text::rows_of(3, 2, 0, 2, 4).count, 0);
  EXPECT_EQ(text::rows_of(3, 2, 5, 3, 4).count, 0);
  Batches batches(data(), {.context = 16, .rows = 3});
  EXPECT_EQ(batches.read(0, text::rows_of(3, 2, 0, 3, 4)).rows, 0);
}

TEST_F(BatchesTest, StepsCanBeReadInAnyOrder) {
  Batches one(data(), {.context = 16, .rows = 5, .seed = 9}), other(data(), {.context = 16, .rows = 5, .seed = 9});
  const Batch late = one.read(40, {0, 5});
  for (const int64_t step : {3, 40, 0}) other.read(step, {0, 5});
  EXPECT_EQ(rows(other.read(40, {0, 5})), rows(late));
  Batches seeded(data(), {.context = 16, .rows = 5, .seed = 10});
  EXPECT_NE(rows(seeded.read(40, {0, 5})), rows(late));
}

TEST_F(BatchesTest, DocumentStartsWhereDocumentsAreSeparate) {
  const text::TokenFile file = data();
  Batches joined(file, {.context = 50, .rows = 1}), apart(file, {.context = 50, .rows = 1, .separate_documents = true});
  int64_t beginnings = 0;
  for (int64_t sample = 0; sample < apart.samples(); ++sample) {
    const Batch batch = apart.in_order({sample, 1});
    for (int64_t i = 0; i < 50; ++i) {
      const int64_t start = std::max<int64_t>(0, file.document_start(sample * 50 + i) - sample * 50);
      EXPECT_EQ(batch.document_starts[static_cast<size_t>(i)], start) << sample << " " << i;
      beginnings += start == i && i > 0;
    }
    const Batch other = joined.in_order({sample, 1});
    EXPECT_EQ(other.inputs, batch.inputs);
    EXPECT_EQ(other.document_starts, std::vector<int32_t>(50, 0));
  }
  EXPECT_EQ(beginnings, 2);
}

TEST_F(BatchesTest, NeedleRowsAreTheShareOfEachStepAndLieEvenly) {
  Batches batches(data(), {.context = 64, .rows = 10, .steps = 4, .needle_share = 0.3}, needles(64));
  EXPECT_EQ(batches.needle_rows_at(0), 3);
  std::set<Row> seen;
  for (int64_t step = 0; step < 4; ++step) {
    const Batch batch = batches.read(step, {0, 10});
    EXPECT_EQ(std::count(batch.needles.begin(), batch.needles.end(), true), 3);
    EXPECT_EQ(std::count(batch.needles.begin(), batch.needles.begin() + 5, true), 1);
    EXPECT_EQ(batch.text_targets, 7 * 64);
    int64_t answers = 0;
    for (int64_t r = 0; r < 10; ++r) {
      if (!batch.needles[static_cast<size_t>(r)]) continue;
      EXPECT_TRUE(seen.insert(row(batch.inputs, batch, r)).second);
      const Row targets = row(batch.targets, batch, r);
      answers += 64 - std::count(targets.begin(), targets.end(), -1);
    }
    EXPECT_EQ(batch.answer_targets, answers);
    EXPECT_GT(answers, 0);
  }
}

// The first steps are needles alone; then text and needles go on as if there had been no such steps.
TEST_F(BatchesTest, NeedlesAloneAtTheBeginning) {
  const BatchOptions options = {.context = 64, .rows = 10, .steps = 6, .needle_share = 0.3};
  BatchOptions later = options;
  later.needle_steps = 2;
  Batches plain(data(), options, needles(64)), batches(data(), later, needles(64));
  std::set<Row> seen;
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_EQ(batches.needle_rows_at(step), step < 2 ? 10 : 3);
    const Batch batch = batches.read(step, {0, 10});
    EXPECT_EQ(std::count(batch.needles.begin(), batch.needles.end(), true), step < 2 ? 10 : 3);
    EXPECT_EQ(batch.text_targets, step < 2 ? 0 : 7 * 64);
    const Batch mixed = plain.read(std::max<int64_t>(step - 2, 0), {0, 10});
    for (int64_t r = 0; r < 10; ++r) {
      const Row now = row(batch.inputs, batch, r);
      if (batch.needles[static_cast<size_t>(r)]) {
        EXPECT_TRUE(seen.insert(now).second);
      } else {
        EXPECT_EQ(now, row(mixed.inputs, mixed, r));
      }
    }
  }
}

TEST_F(BatchesTest, AsLongAsTheDataAndNoLonger) {
  const text::TokenFile file = data();
  EXPECT_EQ(Batches(file, {.context = file.tokens() - 1, .rows = 2}).samples(), 1);
  Batches twice(file, {.context = file.tokens() - 1, .rows = 2});
  const auto both = rows(twice.read(0, {0, 2}));
  EXPECT_EQ(both[0], both[1]);  // the next epoch begins within the step
  expect_error([&] { Batches(file, {.context = file.tokens(), .rows = 1}); }, ErrorCode::format,
               {"tokens", "a sample takes", "shorter train.context"});
}

TEST_F(BatchesTest, BadOptions) {
  const text::TokenFile file = data();
  for (const BatchOptions& bad : {BatchOptions{.context = 0}, BatchOptions{.context = -5}, BatchOptions{.rows = 0},
                                  BatchOptions{.context = int64_t{1} << 40}, BatchOptions{.rows = -1}})
    expect_error([&] { Batches(file, bad); }, ErrorCode::usage, {"expected both from 1"});
  for (const double share : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    expect_error([&] { Batches(file, {.context = 16, .needle_share = share}); }, ErrorCode::usage, {"needles.share"});
  expect_error([&] { Batches(file, {.context = 16, .rows = 4, .needle_share = 0.5}); }, ErrorCode::usage,
               {"no needles"});
  expect_error([&] { Batches(file, {.context = 16, .rows = 4, .needle_share = 0.1}); }, ErrorCode::usage,
               {"half a row"});
  expect_error([&] { Batches(file, {.context = 16, .rows = 4, .needle_steps = 1}); }, ErrorCode::usage, {"no needles"});
  expect_error([&] { Batches(file, {.context = 16, .rows = 4, .needle_steps = -1}); }, ErrorCode::usage,
               {"-1 steps of needles"});
  expect_error([&] { Batches(file, {.context = 16, .rows = 4, .needle_share = 0.5}, needles(64)); },
               ErrorCode::internal, {"context 64"});
}

}  // namespace
}  // namespace unchain::test
