#include "analysis/functional_rank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "analysis/fixed_rows.h"
#include "analysis/small_models.h"

namespace unchain::analysis {
namespace {

using test::expect_error;
using test::family_config;

TEST(FunctionalRank, EveryPointIsWhatItsEditorMakes) {
  const auto model = small_model(family_config("diff_v2"));
  const std::vector<std::vector<int32_t>> windows = {small_text(40, 1), small_text(33, 2)};
  MeanMaps mean(39);
  for (uint64_t seed = 3; seed < 6; ++seed) nll_of(model, small_text(40, seed), {}, {&mean});
  for (const MapPart part : {MapPart::positive, MapPart::noise}) {
    FunctionalRankOptions options;
    options.part = part;
    options.ranks = {0, 2};
    size_t calls = 0, last = 0;
    options.progress = [&](size_t done, size_t all) {
      ++calls;
      last = all;
      EXPECT_EQ(done, calls);
    };
    const FunctionalRank result = functional_rank(model, windows, &mean, options);
    EXPECT_EQ(calls, last);
    EXPECT_EQ(calls, 2 * (1 + 3 * 2 * 3u));
    for (size_t w = 0; w < 2; ++w) EXPECT_NEAR(result.nll_nats[w], mean_of(nll_of(model, windows[w])), kNllTolerance);
    ASSERT_EQ(result.points.size(), 18u);
    size_t p = 0;
    for (const RankMethod method : {RankMethod::truncated, RankMethod::fitted, RankMethod::mean}) {
      for (const bool divide : {false, true}) {
        for (const std::optional<int64_t> rank : {std::optional<int64_t>(0), std::optional<int64_t>(2), {}}) {
          const FunctionalRankPoint& point = result.points[p++];
          EXPECT_EQ(point.method, method);
          EXPECT_EQ(point.divided, divide);
          EXPECT_EQ(point.rank, rank);
          const int64_t r = rank.value_or(64);
          const auto fixed = fixed_maps(mean, part, {r});
          FixedReplacement from_mean({part, divide, {}, {}}, fixed[0]);
          OwnLowRank own({part, divide, {}, {}},
                         method == RankMethod::fitted ? Approximation::fitted : Approximation::truncated, r);
          attention::Editor* editor = method == RankMethod::mean ? static_cast<attention::Editor*>(&from_mean) : &own;
          for (size_t w = 0; w < 2; ++w) {
            EXPECT_NEAR(point.nll_nats[w], mean_of(nll_of(model, windows[w], {editor})), 1e-9);
            if (!rank && method != RankMethod::mean) {
              EXPECT_NEAR(point.nll_nats[w], result.nll_nats[w], kNllTolerance);
            }
          }
        }
      }
    }
  }
}

TEST(FunctionalRank, RowsOfFixedDiffAreOnePoint) {
  const auto model = small_model(family_config("diff_v2"));
  const std::vector<std::vector<int32_t>> windows = {small_text(40, 1)};
  MeanMaps mean(39);
  nll_of(model, small_text(40, 3), {}, {&mean});
  FunctionalRankOptions options;
  options.methods = {RankMethod::fixed_rows};
  const FunctionalRank result = functional_rank(model, windows, &mean, options);
  ASSERT_EQ(result.points.size(), 2u);
  const FixedRows rows = fit_fixed_rows(mean, MapPart::noise, attention::preset("fixed_diff").decays);
  for (const FunctionalRankPoint& point : result.points) {
    EXPECT_EQ(point.rank, 5);
    FixedRowsReplacement editor({MapPart::noise, point.divided, {}, {}}, rows);
    EXPECT_NEAR(point.nll_nats[0], mean_of(nll_of(model, windows[0], {&editor})), 1e-9);
  }
  expect_error([&] { functional_rank(model, windows, nullptr, options); }, ErrorCode::usage, {"mean map"});
}

// The noise of lowrank_diff is a map of rank R where rows see it. Prototypes that look at a key each, and these keys in
// front, where all rows but the first few see them, so that its factors are well posed: then least squares is at its
// end before its 20 sweeps are, and what remains is the ridge's 1e-6 and the roundings of f32 maps.
TEST(FunctionalRank, FindsTheRankOfPrototypes) {
  constexpr int64_t kRank = 4, kRows = 39;
  model::Config config = family_config("lowrank_diff");
  config.attention.rank = kRank;
  const auto model = small_model(config, nullptr, [](model::Parameter& p) {
    if (!p.name.ends_with("prototypes")) return;
    for (float& x : p.value) x *= 10;
  });
  for (const int head : {0, 5, 7}) {  // of those whose prototypes look at different keys
    SCOPED_TRACE(head);
    const std::vector<int32_t> text = small_text(kRows + 1, 1);
    MeanMaps map(kRows);
    nll_of(model, text, {}, {&map});
    const std::vector<double> noise = map.mean(0, head, MapValue::noise);
    std::vector<double> most(kRows);  // of the rows that see most keys
    for (size_t i = (kRows + 1) / 2; i < kRows; ++i)
      for (size_t j = 0; j < kRows; ++j) most[j] = std::max(most[j], noise[i * kRows + j]);
    std::vector<size_t> order(kRows);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return most[a] > most[b]; });
    std::vector<int32_t> window;
    for (const size_t j : order) window.push_back(text[j]);
    window.push_back(text.back());
    FunctionalRankOptions options;
    options.methods = {RankMethod::fitted};
    options.divide = {false};
    options.ranks = {1, 2, 3, 4, 5};
    options.layers = {0};
    options.heads = {head};
    const FunctionalRank result = functional_rank(model, {window}, nullptr, options);
    ASSERT_EQ(result.points.size(), 6u);
    for (const FunctionalRankPoint& point : result.points) {
      const double rise = std::abs(point.nll_nats[0] - result.nll_nats[0]);
      if (point.rank.value_or(kRows) >= kRank) {
        EXPECT_LT(rise, kNllTolerance) << "rank " << point.rank.value_or(kRows);
      } else {
        EXPECT_GT(rise, 100 * kNllTolerance) << "rank " << *point.rank;
      }
    }
  }
}

TEST(FunctionalRank, OfASoftmaxModelIsThatOfItsOneMap) {
  const auto model = small_model(family_config("softmax"));
  FunctionalRankOptions options;
  options.methods = {RankMethod::fitted};
  options.part = MapPart::positive;
  options.layers = {1};
  const FunctionalRank result = functional_rank(model, {small_text(40, 1)}, nullptr, options);
  ASSERT_EQ(result.points.size(), 2u * 8);
  EXPECT_NEAR(result.points[7].nll_nats[0], result.nll_nats[0], kNllTolerance);
  EXPECT_GT(std::abs(result.points[0].nll_nats[0] - result.nll_nats[0]), 1e-3);
}

TEST(FunctionalRank, WhatMakesNoSenseIsSaid) {
  const auto plain = small_model(family_config("softmax")), diff = small_model(family_config("diff_v2"));
  const std::vector<std::vector<int32_t>> windows = {small_text(10, 1)};
  expect_error([&] { functional_rank(plain, windows, nullptr); }, ErrorCode::usage, {"no noise map"});
  expect_error([&] { functional_rank(diff, windows, nullptr); }, ErrorCode::usage, {"mean"});
  expect_error([&] { functional_rank(diff, {{1}}, nullptr); }, ErrorCode::usage, {"1 tokens"});
  FunctionalRankOptions options;
  options.layers = {2};
  expect_error([&] { functional_rank(diff, windows, nullptr, options); }, ErrorCode::usage, {"layer 2", "0 to 1"});
  options.layers = {1};
  options.methods = {RankMethod::mean};
  MeanMaps other(9, {0});
  nll_of(diff, windows[0], {}, {&other});
  expect_error([&] { functional_rank(diff, windows, &other, options); }, ErrorCode::usage, {"mean", "no layer 1"});
  options.layers = {0};
  EXPECT_EQ(functional_rank(diff, windows, &other, options).points.size(), 2u * 8);
  model::Config half = family_config("diff_v2");
  half.attention.last_layer = 0;
  options.layers = {1};
  expect_error([&] { functional_rank(small_model(half), windows, &other, options); }, ErrorCode::usage,
               {"layer 1 has no noise map"});
}

}  // namespace
}  // namespace unchain::analysis
