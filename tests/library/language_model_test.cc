// The public header alone: what a program that links the library sees.
#include "unchain/language_model.h"

#include <cmath>
#include <numeric>

#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace unchain::test {
namespace {

class LibraryModel : public testing::Test {
 protected:
  void SetUp() override { write_tiny_model(folder_ / "m", {"gemma3", "gemma_like", false, {}}); }
  LanguageModel load() const { return LanguageModel::load((folder_ / "m").string(), Precision::f32); }
  TemporaryFolder folder_;
};

TEST_F(LibraryModel, Sizes) {
  const LanguageModel model = load();
  EXPECT_EQ(model.layers(), 3);
  EXPECT_EQ(model.heads(), 4);
  EXPECT_EQ(model.vocabulary(), 700);
}

TEST_F(LibraryModel, TextGoesToIdsAndBack) {
  const LanguageModel model = load();
  const std::string text("the café\n\n\xff and\0 so", 19);
  auto ids = model.tokenize(text);
  EXPECT_EQ(ids.at(0), 1);
  ids.erase(ids.begin());
  EXPECT_EQ(model.detokenize(ids), text);
  EXPECT_EQ(model.bytes_without_piece(text), 0u);
}

TEST_F(LibraryModel, BytesWithoutAPieceAreCounted) {
  write_tiny_model(folder_ / "gap", {});
  std::string tokenizer = read_file(folder_ / "gap/tokenizer.json");
  const std::string piece = "\"ÿ\":";  // the byte ff
  ASSERT_NE(tokenizer.find(piece), std::string::npos);
  tokenizer.replace(tokenizer.find(piece), piece.size(), "\"gone\":");
  write_file(folder_ / "gap/tokenizer.json", tokenizer);
  const LanguageModel model = LanguageModel::load((folder_ / "gap").string(), Precision::f32);
  EXPECT_EQ(model.bytes_without_piece("a\xff\xff b\xfe"), 2u);
  EXPECT_EQ(model.detokenize(model.tokenize("a\xff\xff b\xfe")), "a b\xfe");
}

TEST_F(LibraryModel, ScoresAreThoseOfNextLogits) {
  const LanguageModel model = load();
  const auto ids = model.tokenize("the river and the sea");
  const auto nll = model.score(ids);
  ASSERT_EQ(nll.size(), ids.size() - 1);
  for (size_t i = 1; i < ids.size(); ++i) {
    const auto logits = model.next_logits({ids.begin(), ids.begin() + static_cast<int64_t>(i)});
    ASSERT_EQ(logits.size(), 700u);
    double sum = 0;
    for (const float z : logits) sum += std::exp(static_cast<double>(z));
    EXPECT_NEAR(nll[i - 1], std::log(sum) - static_cast<double>(logits[static_cast<size_t>(ids[i])]), 1e-4);
  }
  EXPECT_TRUE(model.score({5}).empty());
}

TEST_F(LibraryModel, MapsAreCausalAndSumToOne) {
  const LanguageModel model = load();
  std::vector<int32_t> ids(70);
  std::iota(ids.begin(), ids.end(), 20);
  for (const int64_t layer : {0, 1}) {
    const AttentionMap map = model.capture(ids, layer, 3);
    ASSERT_EQ(map.tokens, 70);
    ASSERT_EQ(map.weights.size(), 4900u);
    for (int64_t i = 0; i < 70; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < 70; ++j) {
        sum += static_cast<double>(map.at(i, j));
        const bool visible = j <= i && (layer == 1 || j > i - 6);  // layer 0 sees a window of 6
        if (!visible) {
          EXPECT_EQ(map.at(i, j), 0.0f) << i << " " << j;
        }
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

TEST_F(LibraryModel, CopiesOutliveTheOriginal) {
  auto first = std::make_unique<LanguageModel>(load());
  const LanguageModel copy = *first;
  const auto expected = first->next_logits({1, 2, 3});
  first.reset();
  EXPECT_EQ(copy.next_logits({1, 2, 3}), expected);
}

TEST_F(LibraryModel, ErrorsHaveCodes) {
  const LanguageModel model = load();
  expect_error([&] { model.score({}); }, ErrorCode::usage, {"ids"});
  expect_error([&] { model.next_logits({}); }, ErrorCode::usage, {"ids"});
  expect_error([&] { model.capture({}, 0, 0); }, ErrorCode::usage, {"ids"});
  expect_error([&] { model.score({1, 700}); }, ErrorCode::usage, {"700"});
  expect_error([&] { model.score({1, -1}); }, ErrorCode::usage, {"-1"});
  expect_error([&] { model.detokenize({700}); }, ErrorCode::usage, {"700"});
  expect_error([&] { model.capture({1, 2}, 3, 0); }, ErrorCode::usage, {"layer 3"});
  expect_error([&] { model.capture({1, 2}, 0, 4); }, ErrorCode::usage, {"head 4"});
  expect_error([&] { model.capture({1, 2}, -1, 0); }, ErrorCode::usage, {"layer -1"});
  expect_error([&] { LanguageModel::load((folder_ / "absent").string()); }, ErrorCode::io, {"absent"});
  expect_error([&] { set_threads(-1); }, ErrorCode::usage, {"-1"});
}

}  // namespace
}  // namespace unchain::test
