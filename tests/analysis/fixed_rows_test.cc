#include "analysis/fixed_rows.h"

#include <gtest/gtest.h>

#include "analysis/planted_maps.h"
#include "analysis/small_models.h"
#include "ref/fixed_noise.h"
#include "ref/low_rank.h"

namespace unchain::analysis {
namespace {

using test::expect_error;
using test::family_config;

const std::vector<double> kDecays = {0.5f, 0.9f, 0.99f};
const std::vector<float> kDecaysF32 = {0.5f, 0.9f, 0.99f};

double mixed(const std::vector<double>& shares, int64_t i, int64_t j) {
  double weight = 0;
  for (size_t m = 0; m < shares.size(); ++m)
    weight += shares[m] * ref::fixed_weight(kDecays, static_cast<int64_t>(m), i, j);
  return weight;
}

// Of a fixed_diff model the mixture is its own, and to put it in the place of its noise changes nothing.
TEST(FixedRows, AreThoseOfTheMemberItself) {
  std::vector<std::vector<float>> logits;  // [L][H·R]
  const auto model = small_model(family_config("fixed_diff"), nullptr, [&](model::Parameter& p) {
    if (p.shape.size() == 2 && p.shape[1] == 5) logits.emplace_back(p.value.begin(), p.value.end());
  });
  ASSERT_EQ(logits.size(), model->layers.size());
  MeanMaps mean(40);
  const std::vector<int32_t> ids = small_text(41, 3);
  nll_of(model, ids, {}, {&mean});
  const FixedRows rows = fit_fixed_rows(mean, MapPart::noise, kDecaysF32);
  for (const auto& [layer, heads] : rows.shares) {
    const auto& w = logits[static_cast<size_t>(layer)];
    const auto expected = ref::softmax({w.begin(), w.end()}, heads.size(), 5);
    // Weights are f32; the rows' Gram matrix, of rows as alike as the uniform one and γ = 0.99, makes them uncertain
    // by its condition, about 1e4 here.
    for (size_t h = 0; h < heads.size(); ++h)
      for (size_t m = 0; m < 5; ++m) EXPECT_NEAR(heads[h][m], expected[h * 5 + m], 1e4 * 0x1p-23) << layer << ' ' << h;
  }
  FixedRowsReplacement editor({MapPart::noise, true, {}, {}}, rows);
  const auto before = nll_of(model, ids), after = nll_of(model, ids, {&editor});
  for (size_t t = 0; t < before.size(); ++t) EXPECT_NEAR(after[t], before[t], kNllTolerance);
}

// Of any other map: no mixture on a grid is nearer, over what a row sees.
TEST(FixedRows, NoMixtureIsNearer) {
  constexpr int64_t kTokens = 20;
  for (const int64_t window : {0, 6}) {
    const PlantedLayer layer = plant(0, 2, kTokens, 7, true, window);
    MeanMaps mean(kTokens);
    show(layer, mean, 64);
    for (const MapPart part : {MapPart::positive, MapPart::noise}) {
      const FixedRows rows = fit_fixed_rows(mean, part, kDecaysF32);
      for (size_t h = 0; h < 2; ++h) {
        const ref::Matrix& map = (part == MapPart::noise ? layer.noise : layer.positive)[h];
        const auto error = [&](const std::vector<double>& shares) {
          double sum = 0;
          for (size_t i = 0; i < kTokens; ++i)
            for (size_t j = 0; j <= i; ++j) {
              if (!ref::sees(i, j, static_cast<size_t>(window))) continue;
              const double d = map[i][j] - mixed(shares, static_cast<int64_t>(i), static_cast<int64_t>(j));
              sum += d * d;
            }
          return sum;
        };
        const std::vector<double>& best = rows.shares.at(0)[h];
        EXPECT_NEAR(std::accumulate(best.begin(), best.end(), 0.0), 1, 1e-12);
        EXPECT_GE(*std::min_element(best.begin(), best.end()), 0);
        const double least = error(best);
        constexpr int kParts = 8;
        for (int a = 0; a <= kParts; ++a)
          for (int b = 0; a + b <= kParts; ++b)
            for (int c = 0; a + b + c <= kParts; ++c)
              for (int d = 0; a + b + c + d <= kParts; ++d) {
                const int e = kParts - a - b - c - d;
                EXPECT_GE(error({a / 8.0, b / 8.0, c / 8.0, d / 8.0, e / 8.0}), least - 1e-12);
              }
      }
    }
  }
}

// The new row is the mixture at its place in the text, cut to what the old one saw.
TEST(FixedRows, TheNewMapSeesWhatTheOldOneSaw) {
  constexpr int64_t kTokens = 20, kFirst = 9, kRows = 6;
  const std::vector<std::vector<double>> shares = {{0.1, 0.2, 0.3, 0.4, 0}, {0, 0, 0, 0, 1}};
  const FixedRows rows{kDecays, {{0, shares}}};
  for (const int64_t window : {0, 6}) {
    for (const bool divide : {false, true}) {
      PlantedPanel planted(plant(0, 2, kTokens, 7, true, window), kFirst, kRows, false);
      FixedRowsReplacement({MapPart::noise, divide, {}, {}}, rows).edit_maps(planted.panel);
      for (int h = 0; h < 2; ++h) {
        for (int64_t r = 0; r < kRows; ++r) {
          const int64_t i = kFirst + r;
          const auto at = [&](int64_t j) {
            const bool seen = ref::sees(static_cast<size_t>(i), static_cast<size_t>(j), static_cast<size_t>(window));
            return seen ? mixed(shares[static_cast<size_t>(h)], i, j) : 0;
          };
          double sum = 0;
          for (int64_t j = 0; j <= i; ++j) sum += at(j);
          for (int64_t j = 0; j <= i; ++j)
            EXPECT_NEAR(planted.at(MapPart::noise, h, r, j), divide ? at(j) / std::max(sum, 0.1) : at(j), 0x1p-23);
        }
      }
    }
  }
}

TEST(FixedRows, BadInput) {
  MeanMaps none(8);
  show(plant(0, 2, 8, 1, false), none, 64);
  expect_error([&] { fit_fixed_rows(none, MapPart::noise, kDecaysF32); }, ErrorCode::usage, {"no mean noise map"});
  expect_error([&] { fit_fixed_rows(none, MapPart::positive, std::vector<float>{1.5f}); }, ErrorCode::usage,
               {"decay 1.5"});
  expect_error([&] { fit_fixed_rows(none, MapPart::positive, std::vector<float>(9, 0.5f)); }, ErrorCode::usage,
               {"9 decays"});
}

}  // namespace
}  // namespace unchain::analysis
