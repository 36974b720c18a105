#include "analysis/background.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "analysis/planted_maps.h"
#include "support/temporary_folder.h"

namespace unchain::analysis {
namespace {

using Entry = std::function<double(size_t i, size_t j)>;

// One head whose A2 has these entries; A1 is random.
PlantedLayer with_noise(int64_t tokens, uint64_t seed, const Entry& entry) {
  PlantedLayer layer = plant(0, 1, tokens, seed, true);
  for (size_t i = 0; i < layer.noise[0].size(); ++i) {
    for (size_t j = 0; j <= i; ++j) layer.noise[0][i][j] = static_cast<float>(entry(i, j));
  }
  return layer;
}

Explained explained(const std::vector<PlantedLayer>& calibration, const std::vector<PlantedLayer>& unseen,
                    MapValue value, int64_t rows = 16) {
  MeanMaps mean(calibration[0].tokens, {}, true);
  for (const PlantedLayer& layer : calibration) show(layer, mean, rows);
  Background background(mean);
  for (const PlantedLayer& layer : unseen) {
    show(layer, background, rows);
    background.end_window();
  }
  const auto results = background.results();
  return results.at(0).heads.at(0)[value];
}

// c_ij + s·d: numbers of few bits, so that sums are exact. With texts of s = 1 and s = −1 on both sides the mean is c,
// the distance from it d² everywhere, and the variance that of c plus d².
TEST(Background, OfAContentFreeMapWithKnownVariation) {
  constexpr int64_t kTokens = 20;
  constexpr double kD = 0.125;
  const auto c = [](size_t i, size_t j) { return static_cast<double>((3 * i + 5 * j) % 8) / 8; };
  const auto text = [&](double s) {
    return with_noise(kTokens, 1, [&](size_t i, size_t j) { return c(i, j) + s * kD; });
  };
  double sum = 0, squares = 0, count = 0;
  for (size_t i = 1; i < kTokens; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      sum += c(i, j);
      squares += c(i, j) * c(i, j);
      ++count;
    }
  }
  const double variance = squares / count - sum / count * sum / count;
  const Explained e = explained({text(1), text(-1)}, {text(1), text(-1)}, MapValue::noise);
  EXPECT_NEAR(e.place.value(), 1 - kD * kD / (variance + kD * kD), 1e-12);
  EXPECT_EQ(e.entries, 2 * static_cast<int64_t>(count));
  // One calibration text of s = 1 alone misses by 0 and by 2d.
  const Explained off = explained({text(1)}, {text(1), text(-1)}, MapValue::noise);
  EXPECT_NEAR(off.place.value(), 1 - 2 * kD * kD / (variance + kD * kD), 1e-12);
}

TEST(Background, OfWhatDependsOnTheKeyOrTheRowAlone) {
  const auto text = [](const Entry& entry) { return with_noise(20, 1, entry); };
  const auto by_key = text([](size_t, size_t j) { return static_cast<double>(j % 4) / 4; });
  const Explained key = explained({by_key}, {by_key}, MapValue::noise);
  EXPECT_NEAR(key.place.value(), 1, 1e-12);
  EXPECT_NEAR(key.key.value(), 1, 1e-12);
  EXPECT_LT(key.row.value(), 0.3);
  // The uniform map knows nothing but how long a row is.
  const auto uniform = text([](size_t i, size_t) { return 1 / static_cast<double>(i + 1); });
  const Explained row = explained({uniform}, {uniform}, MapValue::noise);
  EXPECT_NEAR(row.place.value(), 1, 1e-12);
  EXPECT_NEAR(row.row.value(), 1, 1e-12);
  EXPECT_LT(row.key.value(), 0.9);
}

// Entries that differ from text to text: the mean of K texts is nothing but noise of its own, with 1/K of the variance.
TEST(Background, OfAContentMapIsAboutNothing) {
  constexpr int64_t kTokens = 64, kTexts = 16;
  const auto text = [](uint64_t seed) {
    Rng rng(seed, 9);
    return with_noise(kTokens, seed, [&](size_t, size_t) { return rng.uniform(); });
  };
  std::vector<PlantedLayer> calibration, unseen;
  for (uint64_t seed = 0; seed < kTexts; ++seed) calibration.push_back(text(seed));
  for (uint64_t seed = 100; seed < 104; ++seed) unseen.push_back(text(seed));
  const Explained e = explained(calibration, unseen, MapValue::noise);
  // 2079 places, 8316 entries: the product of both deviations adds 2/√(16·8316) = 0.0055 at one σ, the variation of the
  // mean's squares √(2/2079)/16 = 0.002.
  EXPECT_NEAR(e.place.value(), -1.0 / kTexts, 5 * 0.006);
  // Of 64 keys' and 63 rows' means of 33 places on average: 1/(16·33) below 0, products within 2/√(16·33·8316/5).
  EXPECT_NEAR(e.key.value(), 0, 0.01);
  EXPECT_NEAR(e.row.value(), 0, 0.01);
}

// R² as the formula reads, from whole maps.
struct Expected {
  double place, key, row;
};
Expected by_hand(const std::vector<PlantedLayer>& calibration, const std::vector<PlantedLayer>& unseen, bool noise,
                 bool log) {
  const auto window = static_cast<size_t>(calibration[0].window);
  const auto sees = [&](size_t i, size_t j) { return j <= i && (window == 0 || i - j < window); };
  const auto entry = [&](const PlantedLayer& layer, size_t i, size_t j) {
    const double a = (noise ? layer.noise : layer.positive)[0][i][j];
    return log ? std::log(std::max(a, 1e-8)) : a;
  };
  const auto n = static_cast<size_t>(calibration[0].tokens);
  const auto mean_over = [&](const std::vector<PlantedLayer>& layers,
                             const std::function<bool(size_t, size_t)>& chosen) {
    double sum = 0, count = 0;
    for (const PlantedLayer& layer : layers) {
      for (size_t i = 1; i < static_cast<size_t>(layer.tokens); ++i) {
        for (size_t j = 0; j <= i; ++j) {
          if (!sees(i, j) || !chosen(i, j)) continue;
          sum += entry(layer, i, j);
          ++count;
        }
      }
    }
    return sum / count;
  };
  std::vector<double> keys, rows = {0};
  for (size_t k = 0; k < n; ++k) {
    keys.push_back(mean_over(calibration, [&](size_t, size_t j) { return j == k; }));
    if (k > 0) rows.push_back(mean_over(calibration, [&](size_t i, size_t) { return i == k; }));
  }
  const double grand = mean_over(unseen, [](size_t, size_t) { return true; });
  double all = 0, place = 0, key = 0, row = 0;
  for (const PlantedLayer& layer : unseen) {
    for (size_t i = 1; i < static_cast<size_t>(layer.tokens); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        if (!sees(i, j)) continue;
        double mean = 0;
        for (const PlantedLayer& other : calibration)
          mean += entry(other, i, j) / static_cast<double>(calibration.size());
        const double a = entry(layer, i, j);
        all += (a - grand) * (a - grand);
        place += (a - mean) * (a - mean);
        key += (a - keys[j]) * (a - keys[j]);
        row += (a - rows[i]) * (a - rows[i]);
      }
    }
  }
  return {1 - place / all, 1 - key / all, 1 - row / all};
}

TEST(Background, AgreesWithTheFormulaOnRandomMaps) {
  for (const int64_t window : {0, 6}) {
    std::vector<PlantedLayer> calibration, unseen;
    for (uint64_t seed = 1; seed <= 3; ++seed) calibration.push_back(plant(0, 2, 24, seed, true, window));
    for (uint64_t seed = 4; seed <= 5; ++seed) unseen.push_back(plant(0, 2, 24, seed, true, window));
    unseen.push_back(plant(0, 2, 17, 6, true, window));  // shorter ones are places of the same maps
    for (size_t k = 0; k < kMapValues; ++k) {
      const Expected expected = by_hand(calibration, unseen, k % 2 == 1, k >= 2);
      for (const int64_t rows : {1, 7, 64}) {
        const Explained e = explained(calibration, unseen, static_cast<MapValue>(k), rows);
        // Sums of 800 numbers in f64, and a variance that is a difference of sums up to 100 times larger.
        EXPECT_NEAR(e.place.value(), expected.place, 1e-10) << k;
        EXPECT_NEAR(e.key.value(), expected.key, 1e-10) << k;
        EXPECT_NEAR(e.row.value(), expected.row, 1e-10) << k;
        // What windows add is all there is, and a window alone is known by hand.
        ASSERT_EQ(e.windows.size(), unseen.size());
        double place = 0, key = 0, row = 0, variation = 0;
        for (const ExplainedWindow& w : e.windows)
          place += w.place, key += w.key, row += w.row, variation += w.variation;
        EXPECT_NEAR(1 - place / variation, expected.place, 1e-10) << k;
        EXPECT_NEAR(1 - key / variation, expected.key, 1e-10) << k;
        EXPECT_NEAR(1 - row / variation, expected.row, 1e-10) << k;
        const Explained last = explained(calibration, {unseen.back()}, static_cast<MapValue>(k), rows);
        EXPECT_NEAR(last.windows.at(0).place, e.windows[2].place, 1e-10 * e.windows[2].place) << k;
        EXPECT_LE(last.windows.at(0).variation, e.windows[2].variation * (1 + 1e-10)) << "about its own mean";
      }
    }
  }
}

TEST(Background, AbsentWhereNothingVaries) {
  const auto flat = with_noise(12, 1, [](size_t, size_t) { return 0.3; });
  const Explained e = explained({flat}, {flat}, MapValue::noise);
  EXPECT_FALSE(e.place || e.key || e.row);
  EXPECT_EQ(e.entries, 12 * 13 / 2 - 1);
  PlantedLayer one = with_noise(1, 1, [](size_t, size_t) { return 1; });
  EXPECT_FALSE(explained({one}, {one}, MapValue::positive).place) << "row 0 does not count";
  // Without a noise map there is nothing to say of one.
  const PlantedLayer plain = plant(0, 1, 12, 1, false);
  EXPECT_TRUE(explained({plain}, {plain}, MapValue::positive).place);
  EXPECT_EQ(explained({plain}, {plain}, MapValue::noise).entries, 0);
}

TEST(Background, RefusesOtherMaps) {
  using test::expect_error;
  MeanMaps mean(20, {2});
  show(plant(2, 2, 20, 1, true), mean, 64);
  Background background(mean);
  EXPECT_TRUE(background.wants(2));
  EXPECT_FALSE(background.wants(1));
  expect_error([&] { show(plant(2, 2, 21, 1, true), background, 64); }, ErrorCode::shape, {"21 tokens", "20 tokens"});
  expect_error([&] { show(plant(2, 3, 20, 1, true), background, 64); }, ErrorCode::shape, {"3 heads", "2 heads"});
  expect_error([&] { show(plant(2, 2, 20, 1, false), background, 64); }, ErrorCode::shape, {"2 heads with noise"});
  expect_error([&] { show(plant(2, 2, 20, 1, true, 4), background, 64); }, ErrorCode::shape, {"window 4", "window 0"});
  PlantedLayer bad = plant(2, 2, 20, 1, true);
  bad.noise[1][9][3] = std::nan("");
  expect_error([&] { show(bad, background, 6); }, ErrorCode::numeric, {"layer 2 head 1 row 9"});
}

}  // namespace
}  // namespace unchain::analysis
