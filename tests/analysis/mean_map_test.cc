#include "analysis/mean_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/planted_maps.h"
#include "support/temporary_folder.h"

namespace unchain::analysis {
namespace {

using test::expect_error;

TEST(MeanMaps, AreTheMeansOfWindows) {
  for (const int64_t rows : {1, 7, 30}) {
    for (const int64_t window : {0, 5}) {
      std::vector<PlantedLayer> windows;
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        windows.push_back(plant(2, 3, 30, seed, true, window));
        windows.back().positive[1][9][8] = windows.back().noise[2][7][7] = seed == 1 ? 0 : 1e-9f;
      }
      MeanMaps mean(30, {}, true);
      for (const PlantedLayer& layer : windows) show(layer, mean, rows);
      ASSERT_EQ(mean.layers().size(), 1u);
      EXPECT_EQ(mean.layers().at(2).windows, 3);
      for (int head = 0; head < 3; ++head) {
        const auto h = static_cast<size_t>(head);
        for (size_t k = 0; k < kMapValues; ++k) {
          const bool noise = k % 2 == 1, log = k >= 2;
          const auto got = mean.mean(2, head, static_cast<MapValue>(k));
          for (size_t i = 0; i < 30; ++i) {
            for (size_t j = 0; j < 30; ++j) {
              double expected = 0;
              for (const PlantedLayer& layer : windows) {
                const double a = (noise ? layer.noise : layer.positive)[h][i][j];
                const bool seen = j <= i && (window == 0 || i - j < static_cast<size_t>(window));
                if (seen) expected += (log ? std::log(std::max(a, 1e-8)) : a) / 3;
              }
              EXPECT_NEAR(got[i * 30 + j], expected, 1e-14) << k << " " << i << " " << j;
            }
          }
        }
      }
    }
  }
}

TEST(MeanMaps, KeepOnlyWhatIsWanted) {
  MeanMaps mean(10, {3});
  EXPECT_TRUE(mean.wants(3));
  EXPECT_FALSE(mean.wants(2));
  show(plant(3, 2, 10, 1, false), mean, 64);
  EXPECT_EQ(mean.mean(3, 1, MapValue::positive).size(), 100u);
  expect_error([&] { mean.mean(3, 1, MapValue::noise); }, ErrorCode::usage, {"layer 3", "not kept"});
  expect_error([&] { mean.mean(3, 1, MapValue::log_positive); }, ErrorCode::usage, {"not kept"});
  expect_error([&] { mean.mean(3, 2, MapValue::positive); }, ErrorCode::usage, {"head 2", "not seen"});
  expect_error([&] { mean.mean(4, 0, MapValue::positive); }, ErrorCode::usage, {"layer 4"});
}

TEST(MeanMaps, WindowsAreOfOneLength) {
  expect_error([] { MeanMaps(0); }, ErrorCode::usage, {"0 tokens"});
  MeanMaps mean(20);
  expect_error([&] { show(plant(0, 2, 21, 1, true), mean, 64); }, ErrorCode::shape,
               {"layer 0", "windows of 20 tokens"});
  show(plant(1, 2, 12, 1, true), mean, 64);
  expect_error([&] { mean.mean(1, 0, MapValue::noise); }, ErrorCode::usage, {"not at its end"});
  expect_error([&] { show(plant(1, 2, 20, 1, true), mean, 64); }, ErrorCode::shape, {"layer 1", "rows from 12 on"});
  show(plant(5, 2, 20, 1, true), mean, 64);
  expect_error([&] { show(plant(5, 3, 20, 1, true), mean, 64); }, ErrorCode::shape, {"layer 5", "3 heads"});
  expect_error([&] { show(plant(5, 2, 20, 1, false), mean, 64); }, ErrorCode::shape, {"expected 2 heads with noise"});
}

TEST(MeanMaps, NotFiniteIsAnError) {
  PlantedLayer layer = plant(1, 2, 20, 1, true);
  layer.noise[1][13][4] = std::nan("");
  MeanMaps mean(20);
  expect_error([&] { show(layer, mean, 8); }, ErrorCode::numeric, {"layer 1 head 1 row 13"});
}

}  // namespace
}  // namespace unchain::analysis
