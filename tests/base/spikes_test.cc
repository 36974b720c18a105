#include "base/spikes.h"

#include <gtest/gtest.h>

#include <cmath>

namespace unchain {
namespace {

TEST(Spikes, OnlyALeapAboveTheLastStepsCounts) {
  SpikeDetector detector;
  EXPECT_FALSE(detector.add(1e9));  // the first values say nothing yet
  SpikeDetector noise;
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(noise.add(3 - 0.001 * i + 0.1 * std::sin(i))) << i;
  EXPECT_EQ(noise.window().size(), SpikeDetector::kWindow);
  EXPECT_FALSE(noise.add(0));  // a fall is none
  SpikeDetector alternating;
  for (int i = 0; i < 100; ++i) alternating.add(i % 2);  // mean 0.5, deviation 0.5025
  SpikeDetector same = alternating;
  EXPECT_FALSE(same.add(0.5 + 5.9 * 0.50252));
  const auto z = alternating.add(0.5 + 6.1 * 0.50252);
  ASSERT_TRUE(z);
  EXPECT_NEAR(*z, 6.1, 1e-3);
  EXPECT_FALSE(alternating.add(0.5 + 6.1 * 0.50252));  // it has widened the spread
}

}  // namespace
}  // namespace unchain
