#include "analysis/replacement.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/calibrated_basis.h"
#include "analysis/small_models.h"
#include "support/compare.h"

namespace unchain::analysis {
namespace {

using test::close;
using test::expect_error;
using test::family_config;

constexpr int64_t kFull = 1000;

const std::vector<std::string> kWithNoise = {"diff_v1",      "diff_v2",    "shared_diff",           "grouped_diff",
                                             "lowrank_diff", "fixed_diff", "fixed_diff, calibrated"};

TEST(Replacement, AMapByItselfChangesNothing) {
  for (const std::string& member : test::members()) {
    const auto model = small_model(family_config(member));
    const auto ids = small_text(60, 2);
    const auto nll = nll_of(model, ids);
    const bool noise = std::find(kWithNoise.begin(), kWithNoise.end(), member) != kWithNoise.end();
    for (const MapPart part : {MapPart::positive, MapPart::noise}) {
      if (part == MapPart::noise && !noise) continue;
      for (const Approximation approximation : {Approximation::truncated, Approximation::fitted}) {
        // The mass that off_by_one and sink keep back stays back only in rows as they fall.
        for (const bool divide : {false, true}) {
          if (divide && (member == "off_by_one" || member == "sink")) continue;
          OwnLowRank editor({part, divide, {}, {}}, approximation, kFull);
          EXPECT_TRUE(close(nll_of(model, ids, {&editor}), nll, kNllTolerance)) << member;
        }
      }
      OwnLowRank other({part, false, {}, {}}, Approximation::fitted, 1);
      EXPECT_FALSE(close(nll_of(model, ids, {&other}), nll, 1e-3)) << member << ": rank one is another model";
    }
  }
}

TEST(Replacement, AWindowLimitsTheNewMapAsTheOld) {
  for (const std::string& member : kWithNoise) {
    model::Config config = family_config(member);
    config.layers[0].window = 9;
    const auto model = small_model(config);
    const auto ids = small_text(60, 2);
    for (const MapPart part : {MapPart::positive, MapPart::noise}) {
      // A noise map that is a state sees all keys, and at full rank must keep them.
      OwnLowRank full({part, false, {}, {}}, Approximation::fitted, kFull);
      EXPECT_TRUE(close(nll_of(model, ids, {&full}), nll_of(model, ids), kNllTolerance)) << member;
      struct Outside : attention::Observer {
        void on_maps(const attention::MapPanel& panel) override {
          for (int h = 0; h < panel.heads; ++h) {
            for (int64_t r = 0; r < panel.rows; ++r) {
              for (int64_t j = 0; j < panel.keys; ++j) {
                const bool past = j > panel.first_row + r;
                if (past || j < panel.first_key(r)) most = std::max(most, std::abs(panel.positive_row(h, r)[j]));
                if (past || j < panel.first_noise_key(r)) most = std::max(most, std::abs(panel.noise_row(h, r)[j]));
              }
            }
          }
        }
        float most = 0;
      } outside;
      OwnLowRank two({part, true, {}, {}}, Approximation::fitted, 2);
      nll_of(model, ids, {&two}, {&outside});
      EXPECT_EQ(outside.most, 0) << member;
    }
  }
}

TEST(Replacement, RankZeroIsLambdaZero) {
  for (const std::string member : {"diff_v2", "lowrank_diff", "fixed_diff"}) {  // those without a head norm
    const model::Config config = family_config(member);
    model::Config held = config;
    held.attention.lambda = attention::LambdaRule::held;
    held.attention.held_lambda = 0;
    const auto ids = small_text(60, 3);
    const auto expected = nll_of(small_model(held, &config), ids);
    for (const bool divide : {false, true}) {
      OwnLowRank editor({MapPart::noise, divide, {}, {}}, Approximation::fitted, 0);
      EXPECT_TRUE(close(nll_of(small_model(config), ids, {&editor}), expected, kNllTolerance)) << member;
    }
    EXPECT_FALSE(close(nll_of(small_model(config), ids), expected, 1e-3)) << member;
  }
}

// The map that layer 1 loses is the one it has once layer 0 has lost its own.
TEST(Replacement, UpperLayersAreTakenAsTheyAreWithLowerOnesReplaced) {
  const auto model = small_model(family_config("diff_v2"));
  const auto ids = small_text(60, 4);
  OwnLowRank both({MapPart::noise, false, {}, {}}, Approximation::fitted, 2);
  const auto expected = nll_of(model, ids, {&both});
  OwnLowRank first({MapPart::noise, false, {0}, {}}, Approximation::fitted, 2);
  MeanMaps seen(59, {1}), untouched(59, {1});  // of one text: its maps
  nll_of(model, ids, {&first}, {&seen});
  nll_of(model, ids, {}, {&untouched});
  const auto fixed = fixed_maps(seen, MapPart::noise, {2});
  const auto other = fixed_maps(untouched, MapPart::noise, {2});
  FixedReplacement second({MapPart::noise, false, {1}, {}}, fixed[0]);
  FixedReplacement from_above({MapPart::noise, false, {1}, {}}, other[0]);
  EXPECT_TRUE(close(nll_of(model, ids, {&first, &second}), expected, kNllTolerance));
  EXPECT_FALSE(close(nll_of(model, ids, {&first, &from_above}), expected, 1e-4));
}

TEST(Replacement, OnlyChosenHeadsAndLayersChange) {
  struct Silence : attention::Editor {
    bool wants(int layer) const override { return layer == 1; }
    void edit_maps(attention::MapPanel& panel) override {
      for (const int head : {2, 5}) {
        for (int64_t r = 0; r < panel.rows; ++r) std::fill_n(panel.noise_row(head, r), panel.keys, 0.0f);
      }
    }
  } silence;
  const auto model = small_model(family_config("diff_v2"));
  const auto ids = small_text(60, 5);
  OwnLowRank editor({MapPart::noise, false, {1}, {2, 5}}, Approximation::truncated, 0);
  EXPECT_TRUE(close(nll_of(model, ids, {&editor}), nll_of(model, ids, {&silence}), kNllTolerance));
}

// The frozen map of `calibrated` and the editor's fixed one are the same map, computed as a state and as a map.
TEST(Replacement, TheFixedMapIsThatOfTheCalibratedMember) {
  const auto source = small_model(family_config("diff_v2"));
  MeanMaps mean(64);
  for (uint64_t seed = 20; seed < 24; ++seed) nll_of(source, small_text(65, seed), {}, {&mean});
  const model::Config plain = family_config("fixed_diff");
  const auto model = small_model(plain);
  for (const int64_t rank : {1, 3}) {
    model::Config calibrated = plain;
    calibrated.attention.calibrated = true;
    calibrated.attention.rank = rank;
    const std::vector<CalibratedBasis> bases = {calibrated_basis(mean, 0, rank), calibrated_basis(mean, 1, rank)};
    const auto member = small_model(calibrated, &plain, [&](model::Parameter& p) {
      const CalibratedBasis& basis = bases[p.name.find("layers.1.") != std::string::npos ? 1 : 0];
      if (!p.name.ends_with("basis_u") && !p.name.ends_with("basis_v")) return;
      const std::vector<float>& from = p.name.ends_with("basis_u") ? basis.u : basis.v;
      ASSERT_EQ(p.shape, (Shape{basis.heads, basis.tokens, basis.rank}));
      std::copy(from.begin(), from.end(), p.value.begin());
    });
    const auto fixed = fixed_maps(mean, MapPart::noise, {rank});
    FixedReplacement editor({MapPart::noise, true, {}, {}}, fixed[0]);
    const auto ids = small_text(50, 6);
    EXPECT_TRUE(close(nll_of(model, ids, {&editor}), nll_of(member, ids), kNllTolerance)) << rank;
    EXPECT_FALSE(close(nll_of(model, ids), nll_of(member, ids), 1e-3)) << rank;
  }
}

TEST(Replacement, WhatCannotBeReplacedIsSaid) {
  const auto plain = small_model(family_config("softmax")), diff = small_model(family_config("diff_v2"));
  const auto ids = small_text(40, 7);
  OwnLowRank chosen({MapPart::noise, false, {1}, {}}, Approximation::truncated, 1);
  expect_error([&] { nll_of(plain, ids, {&chosen}); }, ErrorCode::usage, {"layer 1", "no noise map"});
  OwnLowRank any({MapPart::noise, false, {}, {}}, Approximation::truncated, 1);
  EXPECT_TRUE(close(nll_of(plain, ids, {&any}), nll_of(plain, ids), kNllTolerance));
  OwnLowRank head({MapPart::noise, false, {}, {8}}, Approximation::truncated, 1);
  expect_error([&] { nll_of(diff, ids, {&head}); }, ErrorCode::usage, {"head 8", "heads 0 to 7"});
  const attention::Taps taps{{}, {&any}};
  model::Context context(diff, 40);
  context.extend(std::span(ids).first(10));
  expect_error([&] { context.extend(std::span(ids).first(10), -1, &taps); }, ErrorCode::usage, {"position 10"});
  MeanMaps mean(30);
  nll_of(diff, small_text(31, 8), {}, {&mean});
  MeanMaps without(39);
  nll_of(plain, ids, {}, {&without});
  expect_error([&] { fixed_maps(without, MapPart::noise, {1}); }, ErrorCode::usage, {"no mean noise map"});
  const auto maps = fixed_maps(mean, MapPart::noise, {1});
  FixedReplacement fixed({MapPart::noise, false, {}, {}}, maps[0]);
  expect_error([&] { nll_of(diff, ids, {&fixed}); }, ErrorCode::shape, {"39 tokens", "30 tokens"});
  const auto halved = small_model(family_config("diff_v1"));
  expect_error([&] { nll_of(halved, small_text(20, 1), {&fixed}); }, ErrorCode::shape, {"4 heads"});
}

}  // namespace
}  // namespace unchain::analysis
