// The public header alone: what a program that links the library sees.
#include "unchain/language_model.h"

#include <cmath>
#include <numeric>

#include "support/family_model.h"
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

// diff_v1 pairs its heads: half as many maps as heads; its second layer is softmax.
TEST(LibraryDifference, MapsHaveParts) {
  TemporaryFolder folder;
  write_tiny_model(folder / "base", {});
  model::Config config = family_config("diff_v1");
  config.vocabulary = 700;
  config.attention.last_layer = 0;
  model::Trainable weights(config, DType::f32, 1);
  stir(weights);
  write_folder(folder / "m", weights);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    if (std::filesystem::exists(folder / "base" / name))
      std::filesystem::copy_file(folder / "base" / name, folder / "m" / name);
  }
  const LanguageModel model = LanguageModel::load((folder / "m").string(), Precision::f32);
  EXPECT_EQ(model.heads(), 8);
  EXPECT_EQ(model.maps(0), 4);
  EXPECT_EQ(model.maps(1), 8);
  std::vector<int32_t> ids(20);
  std::iota(ids.begin(), ids.end(), 30);
  const auto maps = model.capture(ids, 0);
  ASSERT_EQ(maps.size(), 4u);
  for (size_t h = 0; h < maps.size(); ++h) {
    const AttentionMap& map = maps[h];
    ASSERT_EQ(map.weights.size(), 400u);
    ASSERT_EQ(map.positive.size(), 400u);
    ASSERT_EQ(map.noise.size(), 400u);
    ASSERT_EQ(map.lambda.size(), 20u);
    EXPECT_EQ(model.capture(ids, 0, static_cast<int64_t>(h)).weights, map.weights);
    for (size_t i = 0; i < 20; ++i) {
      double sum = 0, sum1 = 0, sum2 = 0;
      for (size_t j = 0; j < 20; ++j) {
        const size_t at = i * 20 + j;
        EXPECT_NEAR(map.weights[at], map.positive[at] - map.lambda[i] * map.noise[at], 1e-6);
        sum += static_cast<double>(map.weights[at]);
        sum1 += static_cast<double>(map.positive[at]);
        sum2 += static_cast<double>(map.noise[at]);
      }
      EXPECT_NEAR(sum1, 1, 1e-5);
      EXPECT_NEAR(sum2, 1, 1e-5);
      EXPECT_NEAR(sum, 1 - static_cast<double>(map.lambda[i]), 1e-5);
      EXPECT_NE(map.lambda[i], 0.0f);
    }
  }
  EXPECT_NE(maps[0].weights, maps[3].weights);
  const AttentionMap softmax = model.capture(ids, 1, 7);
  EXPECT_TRUE(softmax.positive.empty() && softmax.noise.empty() && softmax.lambda.empty());
  expect_error([&] { model.capture(ids, 0, 4); }, ErrorCode::usage, {"head 4", "layer 0"});
  expect_error([&] { model.capture(ids, 2); }, ErrorCode::usage, {"layer 2"});
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
