#include "analysis/head_importance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/twin_model.h"

namespace unchain::analysis {
namespace {

std::vector<std::vector<int32_t>> some_windows() {
  return {test::ScoredText(40, 1).ids, test::ScoredText(23, 2).ids};
}

// The window as a text whose every next token is scored alike.
test::ScoredText scored(const std::vector<int32_t>& window) {
  test::ScoredText text(0);
  text.ids.assign(window.begin(), window.end() - 1);
  text.targets.assign(window.begin() + 1, window.end());
  text.weights.assign(text.ids.size(), 1 / static_cast<float>(text.ids.size()));
  return text;
}

// The loss is a mean NLL; tolerance: its rounding, see slope_at_zero(), and 0.5 % of the largest slope for the rest of
// order h⁴ and the gradient's own arithmetic.
TEST(HeadImportance, GatesAreSlopesOfTheLoss) {
  const double h = 0.05;
  const auto windows = some_windows();
  for (const char* member : {"softmax", "diff_v1", "diff_v2", "lowrank_diff", "gated", "sink"}) {
    test::TwinModel twin(test::family_config(member));
    const HeadEffects found = gate_importance(twin.learns, windows);
    ASSERT_EQ(found.values.size(), 2u);
    const std::vector<double> means = found.means();
    const double largest = *std::max_element(means.begin(), means.end());
    size_t at = 0;
    for (size_t layer = 0; layer < 2; ++layer) {
      ASSERT_EQ(found.values[layer].size(), twin.reads->layers[layer].attention.shape.layout.outputs.size());
      for (size_t head = 0; head < found.values[layer].size(); ++head, ++at) {
        double mean = 0;
        ASSERT_EQ(found.values[layer][head].size(), windows.size());
        for (size_t w = 0; w < windows.size(); ++w) {
          test::ScaleOutput scale;
          scale.layer = static_cast<int>(layer);
          scale.head = static_cast<int>(head);
          const test::ScoredText text = scored(windows[w]);
          const auto [slope, loss] = test::slope_in_factor(twin, text, scale, h);
          EXPECT_NEAR(found.values[layer][head][w], std::abs(slope),
                      3 * test::loss_rounding(loss) / h + 0.005 * largest)
              << member << " layer " << layer << " head " << head << " window " << w;
          mean += found.values[layer][head][w] / 2;
        }
        EXPECT_DOUBLE_EQ(means[at], mean);
      }
    }
    EXPECT_EQ(means.size(), at);
  }
}

// W_O without the columns of a head.
void cut(model::Trainable& m, int64_t layer, int64_t head, int64_t heads) {
  for (model::Parameter& p : m.parameters()) {
    if (p.name != "model.layers." + std::to_string(layer) + ".self_attn.o_proj.weight") continue;
    const int64_t cols = p.shape[1], width = cols / heads;
    for (int64_t r = 0; r < p.shape[0]; ++r) std::fill_n(p.value.begin() + r * cols + head * width, width, 0.0f);
  }
}

// A head whose columns of W_O are zero writes nothing, so that without it nothing changes; and a head is gone in the
// same way when it is silent as when its columns are zero: losses of two models, each with its rounding.
TEST(HeadImportance, AblationIsTheLossWithoutTheColumnsOfWO) {
  const auto windows = some_windows();
  for (const char* member : {"softmax", "diff_v1", "diff_v2", "fixed_diff"}) {
    const model::Config config = test::family_config(member);
    const test::TwinModel whole(config);
    const auto heads = static_cast<int64_t>(whole.reads->layers[0].attention.shape.layout.outputs.size());
    const HeadEffects found = ablation(whole.reads, windows);
    for (int64_t layer = 0; layer < 2; ++layer) {
      for (int64_t head = 0; head < heads; ++head) {
        const test::TwinModel without(config, [&](model::Trainable& m) { cut(m, layer, head, heads); });
        for (size_t w = 0; w < windows.size(); ++w) {
          const test::ScoredText text = scored(windows[w]);
          const double expected = without.loss(text) - whole.loss(text);
          const double value = found.values[static_cast<size_t>(layer)][static_cast<size_t>(head)][w];
          EXPECT_NEAR(value, expected, 4 * test::loss_rounding(whole.loss(text)));
          EXPECT_NE(value, 0);
        }
        if (layer == 1 && head == 2) {
          const HeadEffects gone = ablation(without.reads, windows);
          EXPECT_EQ(gone.values[1][2], std::vector<double>(windows.size(), 0.0)) << member;
          EXPECT_NE(gone.values[1][1][0], 0) << member;
        }
      }
    }
  }
}

TEST(HeadImportance, GiniOfKnownValues) {
  const auto of = [](std::vector<double> values) { return gini(values); };
  EXPECT_DOUBLE_EQ(of({2, 2, 2}).value(), 0);
  EXPECT_DOUBLE_EQ(of({7}).value(), 0);
  EXPECT_DOUBLE_EQ(of({0, 5, 0, 0}).value(), 0.75);
  EXPECT_DOUBLE_EQ(of({1, 2, 3, 4}).value(), 0.25);  // differences 1 1 1 2 2 3, twice: 20/(2·4·10)
  EXPECT_DOUBLE_EQ(of({4, 1, 3, 2}).value(), 0.25);
  EXPECT_DOUBLE_EQ(of({400, 100, 300, 200}).value(), 0.25);
  EXPECT_FALSE(of({}));
  EXPECT_FALSE(of({0, 0}));
  test::expect_error([&] { of({1, -1}); }, ErrorCode::usage, {"-1"});
  test::expect_error([&] { of({std::numeric_limits<double>::quiet_NaN()}); }, ErrorCode::usage, {"nan"});
}

TEST(HeadImportance, WhatMakesNoSenseIsRefused) {
  test::TwinModel twin(test::family_config("softmax"));
  const std::vector<std::vector<int32_t>> none, shorter = {{1, 2, 3}, {4}}, unknown = {{1, 50, 2}};
  test::expect_error([&] { gate_importance(twin.learns, none); }, ErrorCode::usage, {"no window"});
  test::expect_error([&] { ablation(twin.reads, none); }, ErrorCode::usage, {"no window"});
  test::expect_error([&] { gate_importance(twin.learns, shorter); }, ErrorCode::usage, {"1 tokens"});
  test::expect_error([&] { ablation(twin.reads, shorter); }, ErrorCode::usage, {"1 tokens"});
  test::expect_error([&] { gate_importance(twin.learns, unknown); }, ErrorCode::usage, {"50"});
  test::expect_error([&] { ablation(twin.reads, unknown); }, ErrorCode::usage, {"50"});
}

}  // namespace
}  // namespace unchain::analysis
