#include "analysis/attribution.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/twin_model.h"

namespace unchain::analysis {
namespace {

constexpr int64_t kTokens = 40;

// Multiplies the last row's weights for some keys by a factor: P, by both of its maps.
struct ScaleWeights : attention::Editor {
  bool wants(int l) const override { return l == layer; }
  void edit_maps(attention::MapPanel& panel) override {
    const int64_t r = kTokens - 1 - panel.first_row;
    for (int64_t j = keys.first; j < keys.end(); ++j) {
      panel.positive_row(head, r)[j] *= factor;
      if (panel.noise) panel.noise_row(head, r)[j] *= factor;
    }
  }
  int layer = 0, head = 0;
  TokenSpan keys;
  float factor = 1;
};

// Scaling the weights of a span by 1 + s changes the loss by s times the attribution that it gets. The loss is one NLL;
// tolerance: its rounding, see slope_at_zero(), and 0.5 % of what is attributed to all keys, for the rest of order h⁴
// and the gradient's own arithmetic.
TEST(Attribution, OfASpanIsTheSlopeOfTheLoss) {
  const double h = 0.02;
  for (const char* member : {"softmax", "diff_v1", "grouped_diff", "lowrank_diff", "gated", "sink"}) {
    model::Config config = test::family_config(member);
    config.layers[1].window = 9;
    test::TwinModel twin(config);
    test::ScoredText text(kTokens);
    std::fill(text.targets.begin(), text.targets.end(), -1);
    std::fill(text.weights.begin(), text.weights.end(), 1.0f);
    text.targets.back() = 17;
    const std::vector<LayerAttribution> found = attribute(twin.learns, text.ids, 17);
    ASSERT_EQ(found.size(), 2u);
    for (const LayerAttribution& layer : found) {
      EXPECT_EQ(layer.layer, &layer == &found[0] ? 0 : 1);
      EXPECT_EQ(layer.first_key, layer.layer == 0 ? 0 : kTokens - 9);
      for (size_t head = 0; head < layer.heads.size(); ++head) {
        ASSERT_EQ(layer.heads[head].size(), static_cast<size_t>(kTokens));
        double all = 0;
        for (const double x : layer.heads[head]) all += std::abs(x);
        for (const TokenSpan keys : {TokenSpan{0, kTokens}, {5, 7}, {33, 4}, {kTokens - 1, 1}}) {
          double expected = 0;
          for (int64_t j = keys.first; j < keys.end(); ++j) expected += layer.heads[head][static_cast<size_t>(j)];
          ScaleWeights scale;
          scale.layer = layer.layer;
          scale.head = static_cast<int>(head);
          scale.keys = keys;
          const auto [slope, loss] = test::slope_in_factor(twin, text, scale, h);
          EXPECT_NEAR(expected, slope, 3 * test::loss_rounding(loss) / h + 0.005 * all)
              << member << " layer " << layer.layer << " head " << head << " keys " << keys.first;
        }
      }
    }
  }
}

TEST(Attribution, DirectedShareByHand) {
  const LayerAttribution layer{3, 0, {{1, -3, 0, 4}, {0, 0, -2, 0}, {0, 0, 0, 0}}};
  const auto share = directed_share(layer, 0, {1, 2});
  ASSERT_TRUE(share);
  EXPECT_DOUBLE_EQ(share->share, 3.0 / 8);
  EXPECT_DOUBLE_EQ(share->expected, 0.5);
  EXPECT_DOUBLE_EQ(directed_share(layer, 1, {2, 1})->share, 1);
  EXPECT_DOUBLE_EQ(directed_share(layer, 1, {2, 1})->expected, 0.25);
  EXPECT_DOUBLE_EQ(directed_share(layer, {1, 2})->share, 5.0 / 10);
  EXPECT_FALSE(directed_share(layer, 2, {1, 2})) << "nothing is attributed";
  // A window leaves keys 2 and 3: one of the span's two, then none.
  const LayerAttribution windowed{3, 2, {{0, 0, 1, 3}}};
  EXPECT_DOUBLE_EQ(directed_share(windowed, {1, 2})->share, 0.25);
  EXPECT_DOUBLE_EQ(directed_share(windowed, {1, 2})->expected, 0.5);
  EXPECT_DOUBLE_EQ(directed_share(windowed, {0, 2})->share, 0);
  EXPECT_DOUBLE_EQ(directed_share(windowed, {0, 2})->expected, 0);
}

TEST(Attribution, WhatMakesNoSenseIsRefused) {
  const LayerAttribution layer{3, 0, {{1, 2}}};
  test::expect_error([&] { directed_share(layer, {1, 2}); }, ErrorCode::usage, {"2 keys from 1", "the 2 of the row"});
  test::expect_error([&] { directed_share(layer, {0, 0}); }, ErrorCode::usage, {"0 keys"});
  test::expect_error([&] { directed_share(layer, {-1, 1}); }, ErrorCode::usage, {"from -1"});
  test::expect_error([&] { directed_share(layer, 1, {0, 1}); }, ErrorCode::usage, {"head 1 of layer 3", "has 1"});
  model::Trainable m(test::family_config("softmax"), DType::f32, 1);
  test::expect_error([&] { attribute(m, {}, 3); }, ErrorCode::usage, {"empty prompt"});
  const std::vector<int32_t> prompt = {1, 2};
  test::expect_error([&] { attribute(m, prompt, 50); }, ErrorCode::usage, {"50"});
}

}  // namespace
}  // namespace unchain::analysis
