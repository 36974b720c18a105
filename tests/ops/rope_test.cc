// Rotary position against double, in both layouts of pairs.
#include "ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ref/rope.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/simd_targets.h"

namespace unchain::test {
namespace {

std::vector<double> frequencies(int64_t width, double theta) {
  std::vector<double> result;
  for (int64_t i = 0; i < width / 2; ++i) {
    result.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width)));
  }
  return result;
}

TEST(Rope, BothPairings) {
  for (const int64_t width : {2, 4, 10, 32, 34, 64, 256}) {
    for (const double theta : {10000.0, 1e6}) {
      ops::RopeTable table;
      table.extend(3000, frequencies(width, theta), 1);
      ASSERT_EQ(table.positions(), 3000);
      for (const int64_t position : {0, 1, 20, 511, 2999}) {
        for (const bool neighbours : {false, true}) {
          SCOPED_TRACE(testing::Message() << width << " at " << position << ", neighbours " << neighbours);
          auto x = random_floats(static_cast<size_t>(width), 1);
          const auto expected = ref::rope(widen(x), position, theta, neighbours);
          // cos and sin are rounded once, then two products and a sum: 3 roundings of |a| + |b| ≤ 2·max|x|. Angles are
          // exact to 2⁻⁵³·position.
          double largest = 0;
          for (const float v : x) largest = std::max(largest, std::abs(static_cast<double>(v)));
          const auto pairs = neighbours ? ops::RopePairs::neighbours : ops::RopePairs::halves;
          std::vector<float> out(x.size());
          ops::rope_forward(out.data(), x.data(), table, position, pairs);
          EXPECT_TRUE(close(out, expected, 3 * kEpsF32 * 2 * largest));
          ops::rope_forward(x.data(), x.data(), table, position, pairs);
          EXPECT_TRUE(same_bits(x, out)) << "in place";
          if (position == 0) {
            EXPECT_TRUE(close(out, widen(random_floats(static_cast<size_t>(width), 1)), 0));
          }
        }
      }
    }
  }
}

TEST(Rope, BackwardTurnsBack) {
  on_every_target([] {
    for (const int64_t width : {2, 4, 10, 30, 32, 34, 64, 100}) {
      for (const double magnitude : {1.0, 1.5}) {
        for (const double scale : {0.0, 1.0, 1e10}) {
          ops::RopeTable table;
          table.extend(300, frequencies(width, 1e4), magnitude);
          for (const int64_t position : {0, 1, 299}) {
            for (const bool neighbours : {false, true}) {
              SCOPED_TRACE(testing::Message() << width << " at " << position << ", neighbours " << neighbours);
              auto up = random_floats(static_cast<size_t>(width), 1, scale);
              auto expected = ref::rope_backward(widen(up), position, 1e4, neighbours);
              double largest = 0;
              for (const float v : up) largest = std::max(largest, std::abs(static_cast<double>(v)));
              for (double& v : expected) v *= magnitude;  // forward scales by it, and so does its transpose
              const auto pairs = neighbours ? ops::RopePairs::neighbours : ops::RopePairs::halves;
              std::vector<float> out(up.size());
              ops::rope_backward(out.data(), up.data(), table, position, pairs);
              // As forward: 3 roundings of |a| + |b|.
              EXPECT_TRUE(close(out, expected, 3 * kEpsF32 * 2 * largest * magnitude));
              ops::rope_backward(up.data(), up.data(), table, position, pairs);
              EXPECT_TRUE(same_bits(up, out)) << "in place";
            }
          }
        }
      }
    }
  });
}

TEST(Rope, TablesGrowWithoutChanging) {
  ops::RopeTable whole, grown;
  whole.extend(100, frequencies(8, 1e4), 1.5);
  for (const int64_t count : {1, 7, 7, 3, 64, 100}) grown.extend(count, frequencies(8, 1e4), 1.5);
  EXPECT_EQ(grown.positions(), 100);
  EXPECT_TRUE(same_bits(whole.cosine, grown.cosine));
  EXPECT_TRUE(same_bits(whole.sine, grown.sine));
  EXPECT_EQ(whole.cosine[0], 1.5f) << "the magnitude scales both";
}

}  // namespace
}  // namespace unchain::test
