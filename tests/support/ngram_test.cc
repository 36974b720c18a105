// Probabilities worked out by hand, and that they sum to 1.
#include "support/ngram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace unchain::test {
namespace {

constexpr int32_t kBos = 0, kA = 1, kB = 2, kC = 3;

// "a b a b c" of four pieces.
NGram tiny_ngram() {
  NGram model(4);
  model.add(std::vector<int32_t>{kBos, kA, kB, kA, kB, kC});
  return model;
}

TEST(NGram, ProbabilitiesAreThoseWorkedOutByHand) {
  const NGram model = tiny_ngram();
  const auto p = [&](const std::vector<int32_t>& history, int32_t next) { return model.probability(history, next); };
  // Five tokens of three kinds: a and b twice, c once, BOS never. The uniform part: 0.75·3/5·1/4 = 0.1125.
  EXPECT_DOUBLE_EQ(p({}, kA), 1.25 / 5 + 0.1125);
  EXPECT_DOUBLE_EQ(p({}, kB), 0.3625);
  EXPECT_DOUBLE_EQ(p({}, kC), 0.25 / 5 + 0.1125);
  EXPECT_DOUBLE_EQ(p({}, kBos), 0.1125);
  // After a: b twice. After b: a and c once each.
  EXPECT_DOUBLE_EQ(p({kA}, kB), 1.25 / 2 + 0.75 * 1 / 2 * 0.3625);
  EXPECT_DOUBLE_EQ(p({kA}, kC), 0.75 * 1 / 2 * 0.1625);
  EXPECT_DOUBLE_EQ(p({kB}, kA), 0.25 / 2 + 0.75 * 2 / 2 * 0.3625);
  EXPECT_DOUBLE_EQ(p({kBos}, kA), 0.25 / 1 + 0.75 * 0.3625);
  // After a b: a and c once each; after b a: b once.
  EXPECT_DOUBLE_EQ(p({kA, kB}, kA), 0.25 / 2 + 0.75 * 0.396875);
  EXPECT_DOUBLE_EQ(p({kA, kB}, kC), 0.25 / 2 + 0.75 * (0.25 / 2 + 0.75 * 0.1625));
  EXPECT_DOUBLE_EQ(p({kB, kA}, kB), 0.25 / 1 + 0.75 * 0.7609375);
  // Histories that were never seen, or never followed: the shorter one.
  EXPECT_DOUBLE_EQ(p({kC}, kA), p({}, kA));
  EXPECT_DOUBLE_EQ(p({kC, kA}, kB), p({kA}, kB));
  // No more than two pieces count.
  EXPECT_DOUBLE_EQ(p({kC, kC, kA, kB}, kC), p({kA, kB}, kC));
}

TEST(NGram, ADocumentIsTheProductOfItsTokensButTheFirst) {
  const NGram model = tiny_ngram();
  // a after BOS, c after BOS a (followed by b alone), b after a c (never seen) and c (never followed).
  const double a = 0.25 + 0.75 * 0.3625, c = 0.75 * 0.0609375, b = 0.3625;
  EXPECT_NEAR(model.nats(std::vector<int32_t>{kBos, kA, kC, kB}), -std::log(a * c * b), 1e-12);
  EXPECT_EQ(model.nats(std::vector<int32_t>{kBos}), 0);
}

TEST(NGram, ProbabilitiesOfAllPiecesSumToOne) {
  constexpr int32_t kPieces = 30;
  for (const size_t order : {1, 2, 3}) {
    NGram model(kPieces, order);
    Rng rng(1);
    const auto draw = [&] { return static_cast<int32_t>(rng.below(rng.below(kPieces) + 1)); };  // small ones often
    for (int document = 0; document < 3; ++document) {
      std::vector<int32_t> ids(400);
      for (int32_t& id : ids) id = draw();
      model.add(ids);
    }
    for (int i = 0; i < 200; ++i) {
      std::vector<int32_t> history(rng.below(4));
      for (int32_t& id : history) id = draw();
      double sum = 0;
      for (int32_t next = 0; next < kPieces; ++next) {
        EXPECT_GT(model.probability(history, next), 0);
        sum += model.probability(history, next);
      }
      EXPECT_NEAR(sum, 1, 1e-12);
    }
  }
}

TEST(NGram, WithoutATextAllPiecesAreEquallyLikely) {
  EXPECT_EQ(NGram(8).probability({}, 3), 0.125);
  EXPECT_EQ(NGram(8).probability(std::vector<int32_t>{1, 2}, 3), 0.125);
}

}  // namespace
}  // namespace unchain::test
