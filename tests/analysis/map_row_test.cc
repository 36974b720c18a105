#include "analysis/map_row.h"

#include <gtest/gtest.h>

#include "analysis/planted_maps.h"
#include "support/temporary_folder.h"

namespace unchain::analysis {
namespace {

// Every row of every panel, the last of one and the first of the next among them.
TEST(MapRow, CopiesTheRowThatWasPlanted) {
  const int64_t n = 21;
  for (const bool noise : {false, true}) {
    for (const int64_t window : {0, 5}) {
      const std::vector<PlantedLayer> layers = {plant(0, 3, n, 7, noise, window), plant(2, 2, n, 7, noise, window)};
      for (int64_t row = 0; row < n; ++row) {
        SCOPED_TRACE(testing::Message() << "noise " << noise << ", window " << window << ", row " << row);
        MapRow observer(row);
        for (const PlantedLayer& layer : layers) show(layer, observer, 8);
        ASSERT_EQ(observer.layers().size(), 2u);
        for (size_t l = 0; l < 2; ++l) {
          const LayerRow& seen = observer.layers()[l];
          const size_t heads = layers[l].positive.size();
          EXPECT_EQ(seen.layer, layers[l].layer);
          ASSERT_EQ(seen.positive.size(), heads);
          ASSERT_EQ(seen.noise.size(), noise ? heads : 0);
          ASSERT_EQ(seen.lambda.size(), noise ? heads : 0);
          for (size_t h = 0; h < heads; ++h) {
            const auto i = static_cast<size_t>(row);
            ASSERT_EQ(seen.positive[h].size(), i + 1);
            for (size_t j = 0; j <= i; ++j) {
              EXPECT_EQ(static_cast<double>(seen.positive[h][j]), layers[l].positive[h][i][j]);
              if (noise) {
                EXPECT_EQ(static_cast<double>(seen.noise[h][j]), layers[l].noise[h][i][j]);
              }
            }
            if (noise) {
              EXPECT_EQ(static_cast<double>(seen.lambda[h]), layers[l].lambda[h][i]);
            }
          }
        }
      }
    }
  }
}

TEST(MapRow, ARowThatIsNotReachedIsNotThere) {
  MapRow observer(20);
  show(plant(0, 2, 20, 1, true), observer, 8);
  EXPECT_TRUE(observer.layers().empty());
}

TEST(MapRow, AWeightThatIsNotFiniteIsNamed) {
  PlantedLayer layer = plant(4, 2, 20, 1, true);
  layer.noise[1][9][3] = std::numeric_limits<double>::quiet_NaN();
  MapRow other(10), same(9);
  show(layer, other, 8);
  test::expect_error([&] { show(layer, same, 8); }, ErrorCode::numeric, {"layer 4 head 1", "row 9"});
}

}  // namespace
}  // namespace unchain::analysis
