#include "analysis/key_tokens.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "analysis/planted_maps.h"
#include "support/twin_model.h"

namespace unchain::analysis {
namespace {

// Two heads of four tokens, λ 0.5 and 0.95 everywhere.
PlantedLayer by_hand() {
  PlantedLayer layer;
  layer.layer = 2;
  layer.tokens = 4;
  const ref::Matrix a1 = {{1, 0, 0, 0}, {0.25, 0.75, 0, 0}, {0.5, 0.25, 0.25, 0}, {0.125, 0.5, 0.25, 0.125}};
  const ref::Matrix a2 = {{1, 0, 0, 0}, {0.5, 0.5, 0, 0}, {0.25, 0.25, 0.5, 0}, {0.25, 0.25, 0.25, 0.25}};
  layer.positive = {a1, a1};
  layer.noise = {a2, a2};
  layer.lambda = {{0.5, 0.5, 0.5, 0.5}, {0.95, 0.95, 0.95, 0.95}};
  return layer;
}

std::vector<LayerKeyMass> measure(const PlantedLayer& layer, KeysOfRow keys, int64_t rows = 2) {
  KeyMass mass(std::move(keys));
  show(layer, mass, rows);
  return mass.results();
}

TEST(KeyTokens, MassByHand) {
  // Row 2, keys 0 and 1: P = {0.375, 0.125, 0}; row 3: P = {0, 0.375, 0.125, 0}. All of these are exact.
  const auto layers = measure(by_hand(), span_keys({2, 2}, {0, 2}));
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0].layer, 2);
  ASSERT_EQ(layers[0].heads.size(), 2u);
  const HeadKeyMass& first = layers[0].heads[0];
  EXPECT_EQ(first.rows, 2);
  EXPECT_DOUBLE_EQ(first.mass.value(), (0.5 + 0.375) / 2);
  EXPECT_DOUBLE_EQ(first.share.value(), (1 + 0.75) / 2);
  EXPECT_DOUBLE_EQ(first.mass_positive.value(), (0.75 + 0.625) / 2);
  EXPECT_DOUBLE_EQ(first.share_positive.value(), (0.75 + 0.625) / 2);
  EXPECT_DOUBLE_EQ(first.mass_rescaled.value(), (1 + 0.75) / 2) << "divided by 0.5";
  // λ = 0.95, which f32 rounds by 3e-8: row 2, P = {0.2625, 0.0125, −0.225}; row 3, P = {−0.1125, 0.2625, 0.0125,
  // −0.1125}. 1 − λ is below the floor of 0.1.
  const HeadKeyMass& second = layers[0].heads[1];
  EXPECT_NEAR(second.mass.value(), (0.275 + 0.15) / 2, 1e-7);
  EXPECT_NEAR(second.share.value(), (0.275 / 0.5 + 0.15 / 0.5) / 2, 1e-6);
  EXPECT_FALSE(first.share_value_weighted) << "the norms are not known";
  PlantedLayer with_norms = by_hand();
  with_norms.norms = {{4, 2, 1, 1}, {0, 0, 0, 0}};
  const auto written = measure(with_norms, span_keys({2, 2}, {1, 1}));
  // Key 1: row 2 writes 0.125·2 of 0.375·4 + 0.125·2; row 3 0.375·2 of that and 0.125·1.
  EXPECT_DOUBLE_EQ(written[0].heads[0].share_value_weighted.value(), (0.25 / 1.75 + 0.75 / 0.875) / 2);
  EXPECT_FALSE(written[0].heads[1].share_value_weighted) << "nothing is written";
  EXPECT_NEAR(second.mass_rescaled.value(), (2.75 + 1.5) / 2, 1e-6);
  EXPECT_DOUBLE_EQ(second.mass_positive.value(), first.mass_positive.value());
}

TEST(KeyTokens, WithoutNoiseAllFormsAgree) {
  PlantedLayer layer = by_hand();
  layer.noise.clear();
  const HeadKeyMass head = measure(layer, column_keys({1, 3}))[0].heads[0];
  EXPECT_EQ(head.rows, 3) << "row 0 is left out; key 3 is seen by row 3 alone";
  for (const auto& value : {head.mass, head.share, head.mass_positive, head.share_positive, head.mass_rescaled})
    EXPECT_DOUBLE_EQ(value.value(), (0.75 + 0.25 + 0.625) / 3);
}

// Plain loops over whole maps.
HeadKeyMass reference(const PlantedLayer& layer, size_t head, const std::vector<std::vector<int64_t>>& keys_of_row) {
  double share = 0, share_positive = 0, share_written = 0, mass = 0, mass_positive = 0, rescaled = 0;
  int64_t rows = 0;
  for (int64_t i = 1; i < layer.tokens; ++i) {
    const auto row = static_cast<size_t>(i);
    double sum = 0, sum_positive = 0, sum_written = 0, key = 0, key_positive = 0, key_written = 0, keys = 0;
    for (int64_t j = 0; j <= i; ++j) {
      const auto column = static_cast<size_t>(j);
      const double a1 = layer.positive[head][row][column];
      const double p = layer.noise.empty() ? a1 : a1 - layer.lambda[head][row] * layer.noise[head][row][column];
      sum += std::abs(p);
      sum_positive += std::abs(a1);
      const double norm = layer.norms[head][column];
      sum_written += norm * std::abs(p);
      const auto& wanted = keys_of_row[row];
      if (std::find(wanted.begin(), wanted.end(), j) == wanted.end()) continue;
      if (layer.window > 0 && j <= i - layer.window) continue;
      key += p;
      key_positive += a1;
      key_written += norm * p;
      ++keys;
    }
    if (keys == 0) continue;
    ++rows;
    mass += key;
    mass_positive += key_positive;
    share += key / sum;
    share_positive += key_positive / sum_positive;
    share_written += key_written / sum_written;
    const double left = layer.noise.empty() ? 1 : 1 - layer.lambda[head][row];
    rescaled += key / (left < 0.1 ? 0.1 : left);
  }
  const auto n = static_cast<double>(rows);
  return {rows, share / n, share_positive / n, share_written / n, mass / n, mass_positive / n, rescaled / n};
}

// The library adds the same f64 numbers in the same way up to their order: n·2⁻⁵³ of sums of at most 10.
TEST(KeyTokens, MassAgreesWithPlainLoops) {
  const int64_t n = 50;
  Rng rng(5);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(rng.below(6)));
  const std::vector<int64_t> columns = {0, 3, 17, 49};
  std::vector<std::vector<int64_t>> by_span(static_cast<size_t>(n)), by_column(by_span), by_induction(by_span);
  for (int64_t i = 0; i < n; ++i) {
    const auto row = static_cast<size_t>(i);
    if (i >= 20 && i < 45) by_span[row] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};
    by_column[row] = columns;
    for (int64_t j = 1; j <= i && i + 1 < n; ++j) {
      if (tokens[static_cast<size_t>(j - 1)] == tokens[row] && tokens[static_cast<size_t>(j)] == tokens[row + 1])
        by_induction[row].push_back(j);
    }
  }
  for (const bool noise : {false, true}) {
    for (const int64_t window : {int64_t{0}, int64_t{7}}) {
      const PlantedLayer layer = plant(1, 3, n, 9, noise, window);
      const auto check = [&](const KeysOfRow& keys, const std::vector<std::vector<int64_t>>& expected_keys) {
        const auto layers = measure(layer, keys, 16);
        ASSERT_EQ(layers.size(), 1u);
        for (size_t h = 0; h < 3; ++h) {
          const HeadKeyMass &got = layers[0].heads[h], expected = reference(layer, h, expected_keys);
          EXPECT_EQ(got.rows, expected.rows);
          EXPECT_GT(got.rows, 0);
          EXPECT_NEAR(got.share.value(), expected.share.value(), 1e-12);
          EXPECT_NEAR(got.share_positive.value(), expected.share_positive.value(), 1e-12);
          EXPECT_NEAR(got.share_value_weighted.value(), expected.share_value_weighted.value(), 1e-12);
          EXPECT_NEAR(got.mass.value(), expected.mass.value(), 1e-12);
          EXPECT_NEAR(got.mass_positive.value(), expected.mass_positive.value(), 1e-12);
          EXPECT_NEAR(got.mass_rescaled.value(), expected.mass_rescaled.value(), 1e-12);
        }
      };
      check(span_keys({20, 25}, {10, 15}), by_span);
      check(column_keys(columns), by_column);
      check(induction_keys(tokens), by_induction);
    }
  }
}

TEST(KeyTokens, WithoutKeyTokensThereIsNoMass) {
  const std::vector<int32_t> all_different = {1, 2, 3, 4};
  for (const KeysOfRow& keys : {column_keys({}), span_keys({0, 1}, {0, 1}), span_keys({1, 1}, {2, 2}),
                                span_keys({2, 2}, {0, 0}), induction_keys(all_different)}) {
    const HeadKeyMass head = measure(by_hand(), keys)[0].heads[0];
    EXPECT_EQ(head.rows, 0);
    EXPECT_FALSE(head.share || head.share_positive || head.mass || head.mass_positive || head.mass_rescaled);
  }
  // Rows without any weight have a mass, and no share.
  PlantedLayer empty = by_hand();
  empty.noise.clear();
  for (auto& map : empty.positive) map = ref::zeros(4, 4);
  const HeadKeyMass head = measure(empty, column_keys({0}))[0].heads[0];
  EXPECT_EQ(head.rows, 3);
  EXPECT_EQ(head.mass, 0.0);
  EXPECT_FALSE(head.share || head.share_positive);
}

TEST(KeyTokens, WeightsThatAreNotFiniteAreReported) {
  PlantedLayer layer = by_hand();
  layer.noise[1][3][2] = std::numeric_limits<double>::quiet_NaN();
  test::expect_error([&] { measure(layer, column_keys({0})); }, ErrorCode::numeric,
                     {"layer 2", "head 1", "row 3", "not finite"});
}

TEST(KeyTokens, ColumnScoresByHand) {
  // Two rows of two heads, from row 1 on; P of head 1 = A1 − 0.5·A2.
  std::vector<float> positive = {0.25f, 0.75f, 0, 0.5f, 0.25f, 0.25f, 0.5f, 0.5f, 0, 0.25f, 0.5f, 0.25f};
  std::vector<float> noise(12), lambda = {0, 0, 0.5f, 0.5f};
  noise[6] = 1;
  noise[10] = 1;
  const std::vector<float> d_map = {4, -1, 0, 2, 0, 8, 3, 1, 0, 4, 9, -2};
  attention::GradientPanel panel;
  panel.maps.heads = 2;
  panel.maps.first_row = 1;
  panel.maps.rows = 2;
  panel.maps.keys = panel.maps.row_stride = 3;
  panel.maps.head_stride = 6;
  panel.maps.positive = positive.data();
  panel.maps.noise = noise.data();
  panel.maps.lambda = lambda.data();
  panel.d_map = d_map.data();
  ColumnScores scores(3);
  scores.on_maps(panel);
  const std::vector<double> expected = {1 + 1 + 0 + 1, 0.75 + 0 + 0.5 + 0, 0 + 2 + 0 + 0.5};
  EXPECT_EQ(std::vector<double>(scores.scores().begin(), scores.scores().end()), expected);
  ColumnScores few(2);
  test::expect_error([&] { few.on_maps(panel); }, ErrorCode::shape, {"3 keys", "2 tokens"});
}

TEST(KeyTokens, TopColumnsAreTheLargest) {
  const std::vector<double> scores = {1, 9, 3, 9, 0, 2, 0, 0};
  EXPECT_EQ(top_columns(scores, 0.25), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(top_columns(scores, 0.375), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(top_columns(scores, 1), (std::vector<int64_t>{0, 1, 2, 3, 5})) << "never one without a score";
  EXPECT_TRUE(top_columns(scores).empty()) << "8 tokens have no twentieth";
  EXPECT_TRUE(top_columns({}).empty());
  std::vector<double> twenty(20);
  twenty[7] = 1;
  EXPECT_EQ(top_columns(twenty), std::vector<int64_t>{7});
  EXPECT_TRUE(top_columns(std::span(twenty).first(19)).empty());
}

// Which columns are chosen, from all the maps and their gradients at once.
TEST(KeyTokens, LossColumnsAreChosenFromAllLayersAndHeads) {
  struct Whole : attention::GradientObserver {
    void on_maps(const attention::GradientPanel& panel) override {
      for (int h = 0; h < panel.maps.heads; ++h) {
        for (int64_t r = 0; r < panel.maps.rows; ++r) {
          for (int64_t j = 0; j < panel.maps.keys; ++j) {
            double p = static_cast<double>(panel.maps.positive_row(h, r)[j]);
            if (panel.maps.noise) {
              p -= static_cast<double>(panel.maps.lambda[h * panel.maps.rows + r]) *
                   static_cast<double>(panel.maps.noise_row(h, r)[j]);
            }
            score[j] += std::abs(p * static_cast<double>(panel.d_row(h, r)[j]));
          }
        }
      }
    }
    std::map<int64_t, double> score;
  };
  const std::vector<int32_t> window = test::ScoredText(61).ids;
  for (const char* member : {"softmax", "diff_v1", "lowrank_diff"}) {
    test::TwinModel twin(test::family_config(member));
    const std::vector<int32_t> inputs(window.begin(), window.end() - 1), targets(window.begin() + 1, window.end());
    Whole whole;
    std::vector<double> nll(60);
    twin.learns.forward_backward(nll, {1, 60, inputs, targets, {}, {}}, &whole);
    std::vector<int64_t> best;
    for (int i = 0; i < 3; ++i) {
      const auto top = std::max_element(whole.score.begin(), whole.score.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
      best.push_back(top->first);
      whole.score.erase(top);
    }
    std::sort(best.begin(), best.end());
    EXPECT_EQ(loss_columns(twin.learns, window), best) << member;
  }
  model::Trainable m(test::family_config("softmax"), DType::f32, 1);
  const std::vector<int32_t> one = {1};
  test::expect_error([&] { loss_columns(m, one); }, ErrorCode::usage, {"1 tokens"});
  EXPECT_TRUE(loss_columns(m, std::span(window).first(20)).empty()) << "19 keys have no twentieth";
}

}  // namespace
}  // namespace unchain::analysis
