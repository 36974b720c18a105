// Gains of layers against the same taken apart: editors, norms and losses of this file.
#include "analysis/layer_gain.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/loaded_family.h"
#include "support/attention_case.h"

namespace unchain::test {
namespace {

using namespace analysis;

struct NoLambda : attention::Editor {
  explicit NoLambda(int only_layer) : layer(only_layer) {}
  void edit_maps(attention::MapPanel& panel) override {
    if (panel.layer == layer) std::fill_n(panel.lambda, panel.heads * panel.rows, 0.0f);
  }
  int layer;
};

struct NoAttention : attention::Editor {
  explicit NoAttention(int only_layer) : layer(only_layer) {}
  bool wants(int which) const override { return which == layer; }
  void edit_maps(attention::MapPanel& panel) override {
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        std::fill_n(panel.positive_row(h, r), panel.keys, 0.0f);
        if (panel.noise) std::fill_n(panel.noise_row(h, r), panel.keys, 0.0f);
      }
    }
  }
  int layer;
};

struct Outputs : attention::Observer {
  explicit Outputs(int only_layer) : layer(only_layer) {}
  bool wants(int which) const override { return which == layer; }
  void on_maps(const attention::MapPanel& /*panel*/) override {}
  void on_outputs(const attention::OutputPanel& panel) override {
    for (int64_t r = 0; r < panel.rows; ++r) {
      const float* row = panel.output + r * panel.row_stride;
      rows.emplace_back(row, row + panel.heads * panel.value_width);
    }
  }
  int layer;
  std::vector<std::vector<double>> rows;
};

double mean_nll(const LoadedFamily& family, const std::vector<int32_t>& ids, std::vector<attention::Editor*> editors,
                const std::vector<size_t>& rows) {
  const auto logits = logits_with(family, ids, std::move(editors));
  double sum = 0;
  for (const size_t row : rows) sum += nll_from_logits(logits, ids, row);
  return sum / static_cast<double>(rows.size());
}

std::vector<size_t> all_rows(size_t tokens) {
  std::vector<size_t> rows;
  for (size_t i = 0; i + 1 < tokens; ++i) rows.push_back(i);
  return rows;
}

// Differences of two losses, each within 1e-5 (f32 sums in another order in logits of about 5).
constexpr double kTolerance = 2e-5;

TEST(LayerGain, IsTheRiseInLossWithoutTheNoiseTerm) {
  for (const std::string member : {"diff_v1", "diff_v2", "grouped_diff", "fixed_diff"}) {
    const LoadedFamily family(family_config(member));
    const TokenWindows windows = {token_ids(40), token_ids(40, 4)};
    WindowLoss loss(family.model, windows);
    const std::vector<LayerGain> gains = layer_gains(loss, 7);
    ASSERT_EQ(gains.size(), 2u);
    for (int layer = 0; layer < 2; ++layer) {
      double gain = 0, change = 0;
      for (const auto& ids : windows) {
        NoLambda without(layer);
        gain += mean_nll(family, ids, {&without}, all_rows(40)) - mean_nll(family, ids, {}, all_rows(40));
        Outputs before(layer), after(layer);
        logits_with(family, ids, {}, {&before});
        logits_with(family, ids, {&without}, {&after});
        for (size_t t = 0; t < 39; ++t) {
          double difference = 0, squares = 0;
          for (size_t i = 0; i < before.rows[t].size(); ++i) {
            difference += std::pow(after.rows[t][i] - before.rows[t][i], 2);
            squares += std::pow(before.rows[t][i], 2);
          }
          change += std::sqrt(difference / squares) / 39;
        }
      }
      const LayerGain& found = gains[static_cast<size_t>(layer)];
      EXPECT_EQ(found.layer, layer);
      EXPECT_EQ(found.gain.windows, 2);
      EXPECT_NEAR(found.gain.mean, gain / 2, kTolerance) << member << ", layer " << layer;
      EXPECT_NEAR(found.change.mean, change / 2, 1e-5 * change) << member << ", layer " << layer;
      EXPECT_GT(found.change.mean, 0.05) << member << ": there is something to compare";
      EXPECT_NEAR(found.excess.mean, found.gain.mean - found.random.mean, 1e-12);
      EXPECT_GT(std::abs(found.random.mean), 1e-4) << member << ": the control changes something";
    }
    const auto again = layer_gains(loss, 7), other = layer_gains(loss, 8);
    EXPECT_EQ(again[1].random.mean, gains[1].random.mean);
    EXPECT_NE(other[1].random.mean, gains[1].random.mean);
    EXPECT_EQ(other[1].gain.mean, gains[1].gain.mean) << "the seed is the control's";
  }
}

// λ held at 0: nothing to lose, and a control without size. What is left is another way through the same sums.
TEST(LayerGain, IsZeroWithoutLambda) {
  model::Config config = family_config("diff_v2");
  config.attention.lambda = attention::LambdaRule::held;
  config.attention.held_lambda = 0;
  const LoadedFamily family(config);
  WindowLoss loss(family.model, {token_ids(40)});
  for (const LayerGain& gain : layer_gains(loss, 1)) {
    EXPECT_NEAR(gain.gain.mean, 0, kTolerance);
    EXPECT_NEAR(gain.random.mean, 0, kTolerance);
    EXPECT_NEAR(gain.change.mean, 0, 1e-6);
  }
}

TEST(LayerGain, OnlyOfLayersWithANoiseTerm) {
  model::Config config = family_config("diff_v1");
  config.attention.first_layer = config.attention.last_layer = 1;
  const LoadedFamily hybrid(config), softmax(family_config("softmax"));
  WindowLoss loss(hybrid.model, {token_ids(10)}), plain(softmax.model, {token_ids(10)});
  const auto gains = layer_gains(loss, 1);
  ASSERT_EQ(gains.size(), 1u);
  EXPECT_EQ(gains[0].layer, 1);
  expect_error([&] { layer_gains(plain, 1); }, ErrorCode::usage, {"no layer", "noise"});
}

TEST(LayerSensitivity, IsTheRiseInLossOnInductionTargets) {
  const LoadedFamily family(family_config("softmax"));
  // Rows with a target: 4 (5 6), 5 (6 7) and 8 (5 6); in the second window 3 (1 2); none in the third.
  const TokenWindows windows = {{5, 6, 7, 1, 5, 6, 7, 9, 5, 6}, {1, 2, 3, 1, 2}, {1, 2, 3}};
  const std::vector<std::vector<size_t>> targets = {{4, 5, 8}, {3}};
  WindowLoss loss(family.model, windows);
  const auto sensitivity = layer_sensitivity(loss, 1);
  ASSERT_EQ(sensitivity.size(), 2u);
  for (int layer = 0; layer < 2; ++layer) {
    const LayerSensitivity& found = sensitivity[static_cast<size_t>(layer)];
    ASSERT_EQ(found.rise_by_window.size(), 3u);
    double rises = 0;
    for (size_t w = 0; w < 2; ++w) {
      NoAttention none(layer);
      const double rise =
          mean_nll(family, windows[w], {&none}, targets[w]) - mean_nll(family, windows[w], {}, targets[w]);
      EXPECT_NEAR(found.rise_by_window[w].value(), rise, kTolerance);
      rises += rise;
    }
    EXPECT_FALSE(found.rise_by_window[2]);
    ASSERT_TRUE(found.rise);
    EXPECT_EQ(found.rise->windows, 2);
    EXPECT_NEAR(found.rise->mean, rises / 2, kTolerance);
    EXPECT_GT(std::abs(found.rise->mean), 1e-2);
  }
  WindowLoss nothing(family.model, {{1, 2, 3}});
  for (const LayerSensitivity& none : layer_sensitivity(nothing, 1)) EXPECT_FALSE(none.rise);
}

}  // namespace
}  // namespace unchain::test
