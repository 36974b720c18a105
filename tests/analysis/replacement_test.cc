#include "analysis/replacement.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/calibrated_basis.h"
#include "analysis/planted_maps.h"
#include "analysis/small_models.h"
#include "ref/low_rank.h"
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

// Systems of condition 1e7 in f64 (tests of LowRank) and one rounding to f32 of weights that are below 2.
constexpr double kMapTolerance = 40 * 1e7 * 2.2e-16 + 2 * 0x1p-24;

// A window limits A1, and A2 unless it is a state; at the same places the new map is what dense least squares make.
TEST(Replacement, TheNewMapSeesWhatTheOldOneSaw) {
  constexpr int64_t kTokens = 12;
  Rng rng(3);
  for (const int64_t window : {0, 4}) {
    for (const bool state : {false, true}) {
      PlantedLayer layer = plant(0, 2, kTokens, 9, true, window);
      if (state) layer.noise = {random_softmax(kTokens, 0, rng), random_softmax(kTokens, 0, rng)};
      for (const MapPart part : {MapPart::positive, MapPart::noise}) {
        const auto own_window = static_cast<size_t>(state && part == MapPart::noise ? 0 : window);
        const auto& maps = part == MapPart::noise ? layer.noise : layer.positive;
        PlantedPanel full(layer, 0, kTokens, state), two(layer, 0, kTokens, state);
        OwnLowRank({part, false, {}, {}}, Approximation::fitted, kFull).edit_maps(full.panel);
        OwnLowRank({part, false, {}, {}}, Approximation::fitted, 2).edit_maps(two.panel);
        for (int h = 0; h < 2; ++h) {
          const ref::Matrix& map = maps[static_cast<size_t>(h)];
          const auto f = ref::fit_visible(map, own_window, 2, 20, 1e-6);
          for (size_t i = 0; i < kTokens; ++i) {
            for (size_t j = 0; j < kTokens; ++j) {
              const auto r = static_cast<int64_t>(i), key = static_cast<int64_t>(j);
              EXPECT_NEAR(full.at(part, h, r, key), map[i][j], kMapTolerance);
              const bool seen = ref::sees(i, j, own_window);
              const double expected = seen ? f.u[i][0] * f.v[j][0] + f.u[i][1] * f.v[j][1] : 0;
              EXPECT_NEAR(two.at(part, h, r, key), expected, seen ? kMapTolerance : 0);
              const MapPart other = part == MapPart::noise ? MapPart::positive : MapPart::noise;
              const auto& untouched = part == MapPart::noise ? layer.positive : layer.noise;
              EXPECT_EQ(two.at(other, h, r, key), static_cast<float>(untouched[static_cast<size_t>(h)][i][j]));
            }
          }
        }
      }
    }
  }
}

TEST(Replacement, AFixedMapComesRowByRow) {
  constexpr int64_t kTokens = 12, kFirst = 5, kRows = 4;
  for (const int64_t window : {0, 4}) {
    const PlantedLayer layer = plant(0, 2, kTokens, 9, true, window);
    MeanMaps mean(kTokens);
    show(layer, mean, 64);
    for (const MapPart part : {MapPart::positive, MapPart::noise}) {
      const auto maps = fixed_maps(mean, part, {1, 2});
      PlantedPanel rows(layer, kFirst, kRows, false);
      FixedReplacement({part, true, {}, {}}, maps[1]).edit_maps(rows.panel);
      for (int h = 0; h < 2; ++h) {
        const auto& map = (part == MapPart::noise ? layer.noise : layer.positive)[static_cast<size_t>(h)];
        const auto f = ref::fit_visible(map, static_cast<size_t>(window), 2, 20, 1e-6);
        for (int64_t r = 0; r < kRows; ++r) {
          const auto i = static_cast<size_t>(kFirst + r);
          std::vector<double> row(i + 1);
          double sum = 0;
          for (size_t j = 0; j <= i; ++j) {
            if (!ref::sees(i, j, static_cast<size_t>(window))) continue;
            sum += row[j] = f.u[i][0] * f.v[j][0] + f.u[i][1] * f.v[j][1];
          }
          // Division by 0.1 at the least.
          for (size_t j = 0; j <= i; ++j)
            EXPECT_NEAR(rows.at(part, h, r, static_cast<int64_t>(j)), row[j] / std::max(sum, 0.1), 20 * kMapTolerance);
        }
      }
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
