// Editors do to a running model what their names say, and nothing else.
#include "analysis/edits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/loaded_family.h"
#include "support/attention_case.h"
#include "support/compare.h"

namespace unchain::test {
namespace {

using namespace analysis;
using attention::MapPanel;
using attention::OutputPanel;

// Keeps λ and both maps of every layer, rows of 64 keys.
struct MapRecorder : attention::Observer {
  static constexpr int64_t kKeys = 64;
  void on_maps(const MapPanel& panel) override {
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        std::vector<float> row(static_cast<size_t>(2 * kKeys));
        std::copy_n(panel.positive_row(h, r), panel.keys, row.begin());
        if (panel.noise) std::copy_n(panel.noise_row(h, r), panel.keys, row.begin() + kKeys);
        rows[{panel.layer, h, panel.first_row + r}] = row;
        if (panel.noise) lambda[{panel.layer, h, panel.first_row + r}] = panel.lambda[h * panel.rows + r];
      }
    }
  }
  using Place = std::tuple<int, int, int64_t>;  // layer, head, row
  std::map<Place, std::vector<float>> rows;
  std::map<Place, float> lambda;
};

bool has_noise(const std::string& member) {
  return member.find("diff") != std::string::npos;
}

// A head without edges has the output 0, the norm of which is 0 too, so nothing is left to round.
TEST(Edits, KnockingOutAllEdgesOfAHeadRemovesIt) {
  const auto ids = token_ids(50);
  for (const std::string& member : analysed_members()) {
    const LoadedFamily family(family_config(member));
    const auto plain = logits_with(family, ids);
    KnockOut edges(*family.model, {0, 50}, {}, {{1}, {2}});
    ScaleHead removed(*family.model, 0, {{1}, {2}});
    const auto without_edges = logits_with(family, ids, {&edges});
    EXPECT_TRUE(close(without_edges, widen(logits_with(family, ids, {&removed})), 0)) << member;
    EXPECT_FALSE(close(without_edges, widen(plain), 1e-2)) << member << ": the head counts";
    KnockOut all(*family.model, {0, 50}, {}, {{0}, {}});
    ZeroAttention none(*family.model, 0);
    const auto without_layer = logits_with(family, ids, {&all});
    EXPECT_TRUE(close(without_layer, widen(logits_with(family, ids, {&none})), 0)) << member;
    EXPECT_FALSE(close(without_layer, widen(plain), 1e-2)) << member;
  }
}

TEST(Edits, FactorsOfOneChangeNoBit) {
  const auto ids = token_ids(50);
  for (const std::string& member : analysed_members()) {
    const LoadedFamily family(family_config(member));
    attention::Editor idle;
    const auto plain = logits_with(family, ids, {&idle});
    ScaleHead head(*family.model, 1, {});
    EXPECT_TRUE(same_bits(logits_with(family, ids, {&head}), plain)) << member;
    KnockOut nothing(*family.model, {7, 7}, {});
    EXPECT_TRUE(same_bits(logits_with(family, ids, {&nothing}), plain)) << member;
    if (!has_noise(member)) continue;
    ScaleLambda lambda(*family.model, 1);
    EXPECT_TRUE(same_bits(logits_with(family, ids, {&lambda}), plain)) << member;
    ScaleLambda other(*family.model, 1.5);
    EXPECT_FALSE(close(logits_with(family, ids, {&other}), widen(plain), 1e-3)) << member;
  }
}

// Rows of heads 0, 2, 4 … of W_Q [2·8·6, 24].
std::vector<float> even_heads(const std::vector<double>& query) {
  constexpr size_t kHead = 6 * 24;
  std::vector<float> even;
  for (size_t h = 0; h < 16; h += 2)
    even.insert(even.end(), query.begin() + static_cast<std::ptrdiff_t>(h * kHead),
                query.begin() + static_cast<std::ptrdiff_t>((h + 1) * kHead));
  return even;
}

TEST(Edits, WithoutLambdaDiffV2IsSoftmaxOfItsEvenHeads) {
  const LoadedFamily diff(family_config("diff_v2"));
  const LoadedFamily softmax(family_config("softmax"), [&](const std::string& name, std::span<float> values) {
    const std::vector<double>& from = diff.weights.at(name);
    if (name.ends_with("q_proj.weight")) {
      const std::vector<float> even = even_heads(from);
      ASSERT_EQ(even.size(), values.size());
      std::copy(even.begin(), even.end(), values.begin());
    } else {
      ASSERT_EQ(from.size(), values.size()) << name;
      std::transform(from.begin(), from.end(), values.begin(), [](double x) { return static_cast<float>(x); });
    }
  });
  const auto ids = token_ids(50);
  ScaleLambda zero(*diff.model, 0);
  const auto expected = logits_with(softmax, ids);
  // Two orders of sums in f32: each within 4e-6 of the largest logit, see tests/props/model_laws_test.cc.
  const float largest = *std::max_element(expected.begin(), expected.end());
  EXPECT_TRUE(close(logits_with(diff, ids, {&zero}), widen(expected), 1e-5 * static_cast<double>(largest)));
  EXPECT_FALSE(close(logits_with(diff, ids), widen(expected), 1e-2));
}

TEST(Edits, KnockOutTouchesItsEdgesAlone) {
  const auto ids = token_ids(50);
  for (const std::string& member : analysed_members()) {
    const LoadedFamily family(family_config(member));
    MapRecorder before, after;
    logits_with(family, ids, {}, {&before});
    // In the last layer, so that what it reads stays as it was. Keys beyond a row are 0 anyway.
    KnockOut knock_out(*family.model, {10, 30}, {49, 20}, {{1}, {0, 3}});
    logits_with(family, ids, {&knock_out}, {&after});
    ASSERT_EQ(before.rows.size(), after.rows.size());
    for (auto& [place, row] : before.rows) {
      const auto& [layer, head, position] = place;
      if (layer == 1 && (head == 0 || head == 3) && (position == 20 || position == 49)) {
        for (const int64_t map : {int64_t{0}, MapRecorder::kKeys})
          std::fill_n(row.begin() + static_cast<std::ptrdiff_t>(map) + 10, 20, 0.0f);
      }
      EXPECT_EQ(row, after.rows.at(place)) << member << ", layer " << layer << ", head " << head << ", " << position;
    }
    EXPECT_EQ(before.lambda, after.lambda);
  }
}

TEST(Edits, ScaleLambdaTouchesItsHeadsAlone) {
  const auto ids = token_ids(50);
  for (const std::string& member : analysed_members()) {
    if (!has_noise(member)) continue;
    const LoadedFamily family(family_config(member));
    MapRecorder before, after;
    logits_with(family, ids, {}, {&before});
    ScaleLambda scale(*family.model, -0.5, {{1}, {1, 2}});
    logits_with(family, ids, {&scale}, {&after});
    for (auto& [place, lambda] : before.lambda) {
      const auto& [layer, head, position] = place;
      if (layer == 1 && (head == 1 || head == 2)) lambda *= -0.5f;
      EXPECT_EQ(lambda, after.lambda.at(place)) << member << ", layer " << layer << ", head " << head;
    }
    EXPECT_EQ(before.rows, after.rows) << member;
  }
}

TEST(Edits, ScaleHeadTouchesItsHeadAlone) {
  const LoadedFamily family(family_config("diff_v1"));
  ScaleHead scale(*family.model, 0.25, {{0}, {1}});
  EXPECT_TRUE(scale.wants(0));
  EXPECT_FALSE(scale.wants(1));
  std::vector<float> output(3 * 20);  // 3 rows of 4 heads of 4, rows 20 apart
  for (size_t i = 0; i < output.size(); ++i) output[i] = static_cast<float>(i);
  std::vector<float> expected = output;
  for (const size_t row : {0u, 20u, 40u}) {
    for (size_t i = row + 4; i < row + 8; ++i) expected[i] *= 0.25f;
  }
  OutputPanel panel{0, 4, 7, 3, 4, output.data(), 20};
  scale.edit_outputs(panel);
  EXPECT_EQ(output, expected);
}

// Rows first … of 300 rows of 4 heads of 5, changed by this editor.
std::vector<float> randomly_changed(RandomChange change, const std::vector<float>& before,
                                    const std::vector<int64_t>& pieces) {
  std::vector<float> output = before;
  int64_t first = 0;
  for (const int64_t rows : pieces) {
    OutputPanel panel{1, 4, first, rows, 5, output.data() + first * 20, 20};
    change.edit_outputs(panel);
    first += rows;
  }
  return output;
}

TEST(Edits, RandomChangeHasTheAskedNormInEveryRow) {
  const LoadedFamily family(family_config("diff_v1"));
  const auto before = random_floats(300 * 20, 5);
  std::vector<double> norms(300);
  for (size_t i = 0; i < norms.size(); ++i) norms[i] = 0.01 * static_cast<double>(i);
  const auto make = [&](uint64_t seed, uint64_t stream) { return RandomChange(*family.model, 1, norms, seed, stream); };
  EXPECT_TRUE(make(1, 0).wants(1));
  EXPECT_FALSE(make(1, 0).wants(0));
  const auto changed = randomly_changed(make(1, 0), before, {300});
  std::vector<double> mean(20);
  for (size_t row = 0; row < 300; ++row) {
    double squares = 0, sum = 0, magnitude = 0;
    for (size_t i = row * 20; i < row * 20 + 20; ++i) {
      const double difference = static_cast<double>(changed[i]) - static_cast<double>(before[i]);
      squares += difference * difference;
      sum += difference;
      magnitude += static_cast<double>(std::abs(changed[i])) + std::abs(difference);
      if (row > 0) mean[i % 20] += difference / norms[row] / 299;
    }
    // A number is rounded once as a change and once as a sum.
    EXPECT_NEAR(std::sqrt(squares), norms[row], kEpsF32 * magnitude) << row;
    EXPECT_NE(sum, row > 0 ? 0.0 : 1.0);
  }
  // A coordinate of a random direction has the variance 1/20; the mean over 299 rows within 5 standard deviations.
  for (const double x : mean) EXPECT_LT(std::abs(x), 5 / std::sqrt(20.0 * 299));
  EXPECT_TRUE(same_bits(randomly_changed(make(1, 0), before, {300}), changed));
  EXPECT_TRUE(same_bits(randomly_changed(make(1, 0), before, {1, 128, 128, 43}), changed)) << "whatever the panels";
  EXPECT_FALSE(same_bits(randomly_changed(make(2, 0), before, {300}), changed)) << "another seed";
  EXPECT_FALSE(same_bits(randomly_changed(make(1, 1), before, {300}), changed)) << "another stream";
}

TEST(Edits, WhatTheModelHasNotIsAnError) {
  const LoadedFamily softmax(family_config("softmax"));
  model::Config config = family_config("diff_v1");
  config.attention.last_layer = 0;  // the second layer is softmax: 8 heads, the first has 4
  const LoadedFamily family(config);
  const model::Transformer& model = *family.model;
  expect_error([&] { ScaleHead(model, 0, {{2}, {}}); }, ErrorCode::usage, {"layer 2", "0 to 1"});
  expect_error([&] { ScaleHead(model, 0, {{-1}, {}}); }, ErrorCode::usage, {"layer -1"});
  expect_error([&] { ScaleHead(model, 0, {{0}, {4}}); }, ErrorCode::usage, {"head 4", "layer 0", "0 to 3"});
  expect_error([&] { ScaleHead(model, 0, {{0}, {-2, 1}}); }, ErrorCode::usage, {"head -2"});
  expect_error([&] { ScaleHead(model, 0, {{}, {7}}); }, ErrorCode::usage, {"head 7", "layer 0"});
  EXPECT_NO_THROW(ScaleHead(model, 0, {{1}, {7}}));
  expect_error([&] { ScaleLambda(model, 0, {{1}, {}}); }, ErrorCode::usage, {"layer 1", "no noise term"});
  expect_error([&] { ScaleLambda(*softmax.model, 0); }, ErrorCode::usage, {"no layer", "noise term"});
  EXPECT_TRUE(ScaleLambda(model, 0).wants(0));
  EXPECT_FALSE(ScaleLambda(model, 0).wants(1));
  expect_error([&] { ZeroAttention(model, 5); }, ErrorCode::usage, {"layer 5"});
  expect_error([&] { KnockOut(model, {3, 2}, {}); }, ErrorCode::usage, {"3 to 2"});
  expect_error([&] { KnockOut(model, {-1, 2}, {}); }, ErrorCode::usage, {"-1 to 2"});
  expect_error([&] { KnockOut(model, {0, 2}, {4, -3}); }, ErrorCode::usage, {"row -3"});
  expect_error([&] { KnockOut(model, {0, 2}, {}, {{9}, {}}); }, ErrorCode::usage, {"layer 9"});
  expect_error([&] { RandomChange(model, 3, {1}, 1); }, ErrorCode::usage, {"layer 3"});
  expect_error([&] { RandomChange(model, 0, {1, -1}, 1); }, ErrorCode::numeric, {"-1", "position 1"});
  expect_error([&] { RandomChange(model, 0, {NAN}, 1); }, ErrorCode::numeric, {"nan", "position 0"});
  RandomChange few(model, 0, {1, 1}, 1);
  expect_error([&] { logits_with(family, token_ids(3), {&few}); }, ErrorCode::usage,
               {"layer 0", "position 2", "2 positions"});
}

}  // namespace
}  // namespace unchain::test
