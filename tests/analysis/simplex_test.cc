#include "analysis/simplex.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "analysis/planted_maps.h"
#include "support/temporary_folder.h"

namespace unchain::analysis {
namespace {

// By hand, in f64, over the rows 1 … of a head.
SimplexCounts counted(const PlantedLayer& layer, size_t head, const std::vector<int32_t>& tokens) {
  SimplexCounts c;
  const ref::Matrix p = layer.map(head);
  for (size_t i = 1; i < p.size(); ++i) {
    const auto window = static_cast<size_t>(layer.window);
    const double lambda = layer.noise.empty() ? 0 : layer.lambda[head][i];
    std::vector<bool> key(p.size(), false);
    bool any = false;
    for (size_t j = 1; j <= i && i + 1 < p.size(); ++j)
      if (tokens[j - 1] == tokens[i] && tokens[j] == tokens[i + 1]) any = key[j] = true;
    double sum = 0;
    for (size_t j = window > 0 && i >= window ? i - window + 1 : 0; j <= i; ++j) {
      sum += p[i][j];
      ++c.entries;
      ++c.rescaled;
      if (p[i][j] > 1.00001) ++c.over_one;
      if (p[i][j] / (1 - lambda) > 1.00001) ++c.rescaled_over_one;
      if (!any || key[j]) continue;
      ++c.non_key;
      const double small = 1 / (10.0 * static_cast<double>(i + 1));
      if (std::abs(p[i][j]) < small) ++c.small;
      if (std::abs(p[i][j]) < small || p[i][j] < 0) ++c.small_or_negative;
    }
    ++c.rows;
    if (std::abs(sum - 1) > 0.05) ++c.rows_off;
  }
  return c;
}

void expect_equal(const SimplexCounts& got, const SimplexCounts& want) {
  EXPECT_EQ(got.rows, want.rows);
  EXPECT_EQ(got.rows_off, want.rows_off);
  EXPECT_EQ(got.entries, want.entries);
  EXPECT_EQ(got.over_one, want.over_one);
  EXPECT_EQ(got.rescaled, want.rescaled);
  EXPECT_EQ(got.rescaled_over_one, want.rescaled_over_one);
  EXPECT_EQ(got.non_key, want.non_key);
  EXPECT_EQ(got.small, want.small);
  EXPECT_EQ(got.small_or_negative, want.small_or_negative);
}

TEST(Simplex, CountsAsByHand) {
  for (const bool noise : {false, true}) {
    for (const int64_t window : {0, 5}) {
      SCOPED_TRACE(testing::Message() << "noise " << noise << ", window " << window);
      const int64_t n = 40;
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(i * i % 7));
      SimplexObserver observer;
      observer.begin_window(tokens);
      const std::vector<PlantedLayer> layers = {plant(0, 3, n, 11, noise, window), plant(1, 3, n, 11, noise, window)};
      for (const PlantedLayer& layer : layers) show(layer, observer, 16);
      SimplexCounts total;
      ASSERT_EQ(observer.counts().size(), 2u);
      for (size_t l = 0; l < 2; ++l) {
        ASSERT_EQ(observer.counts()[l].size(), 3u);
        for (size_t h = 0; h < 3; ++h) {
          const SimplexCounts want = counted(layers[l], h, tokens);
          EXPECT_GT(want.non_key, 0);
          expect_equal(observer.counts()[l][h], want);
          total.add(want);
        }
      }
      expect_equal(observer.total(), total);
      // Softmax stays on the simplex; a difference leaves it, and no raw weight passes 1.
      EXPECT_EQ(total.rows_off > 0, noise);
      EXPECT_EQ(total.over_one, 0);
    }
  }
}

TEST(Simplex, AWeightThatIsNotFiniteIsNamed) {
  PlantedLayer layer = plant(4, 2, 20, 1, true);
  layer.positive[1][9][3] = std::numeric_limits<double>::quiet_NaN();
  SimplexObserver observer;
  observer.begin_window(std::vector<int32_t>(20, 1));
  test::expect_error([&] { show(layer, observer, 8); }, ErrorCode::numeric, {"layer 4 head 1", "row 9", "key 3"});
}

}  // namespace
}  // namespace unchain::analysis
