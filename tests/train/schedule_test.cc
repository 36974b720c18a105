#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/spikes.h"

namespace unchain::test {
namespace {

train::TrainKeys keys(const std::string& schedule, double warmup = 0.1) {
  train::TrainKeys keys;
  keys.batch_tokens = 256;
  keys.tokens = 101 * 256;  // 101 steps, 10 of them warm-up
  keys.learning_rate = 1;
  keys.min_learning_rate = 0.2;
  keys.warmup = warmup;
  keys.schedule = schedule;
  return keys;
}

TEST(Schedule, RisesToThePeakThenFallsToTheLeast) {
  for (const char* name : {"cosine", "linear", "constant"}) {
    const train::TrainKeys k = keys(name);
    EXPECT_DOUBLE_EQ(train::learning_rate(k, 0), 0.1) << name;
    EXPECT_DOUBLE_EQ(train::learning_rate(k, 4), 0.5) << name;
    EXPECT_DOUBLE_EQ(train::learning_rate(k, 9), 1) << name;
    EXPECT_DOUBLE_EQ(train::learning_rate(k, 10), 1) << name;
  }
  EXPECT_DOUBLE_EQ(train::learning_rate(keys("cosine"), 100), 0.2);
  EXPECT_DOUBLE_EQ(train::learning_rate(keys("linear"), 100), 0.2);
  EXPECT_DOUBLE_EQ(train::learning_rate(keys("constant"), 100), 1);
  EXPECT_DOUBLE_EQ(train::learning_rate(keys("cosine"), 55), 0.6);  // half way
  EXPECT_DOUBLE_EQ(train::learning_rate(keys("linear"), 55), 0.6);
  EXPECT_DOUBLE_EQ(train::learning_rate(keys("linear"), 28), 0.84);                // a fifth of the way
  EXPECT_NEAR(train::learning_rate(keys("cosine"), 40), 0.2 + 0.8 * 0.75, 1e-12);  // a third: cos 60° = 1/2
}

TEST(Schedule, WithoutWarmUpAndOfOneStep) {
  EXPECT_DOUBLE_EQ(train::learning_rate(keys("cosine", 0), 0), 1);
  EXPECT_DOUBLE_EQ(train::learning_rate(keys("cosine", 1), 100), 1);
  train::TrainKeys one = keys("cosine", 0);
  one.tokens = 1;
  EXPECT_EQ(one.steps(), 1);
  EXPECT_DOUBLE_EQ(train::learning_rate(one, 0), 1);
}

TEST(Spikes, OnlyALeapAboveTheLastStepsCounts) {
  train::SpikeDetector detector;
  EXPECT_FALSE(detector.add(1e9));  // the first values say nothing yet
  train::SpikeDetector noise;
  for (int i = 0; i < 300; ++i) EXPECT_FALSE(noise.add(3 - 0.001 * i + 0.1 * std::sin(i))) << i;
  EXPECT_EQ(noise.window().size(), train::SpikeDetector::kWindow);
  EXPECT_FALSE(noise.add(0));  // a fall is none
  train::SpikeDetector alternating;
  for (int i = 0; i < 100; ++i) alternating.add(i % 2);  // mean 0.5, deviation 0.5025
  train::SpikeDetector same = alternating;
  EXPECT_FALSE(same.add(0.5 + 5.9 * 0.50252));
  const auto z = alternating.add(0.5 + 6.1 * 0.50252);
  ASSERT_TRUE(z);
  EXPECT_NEAR(*z, 6.1, 1e-3);
  EXPECT_FALSE(alternating.add(0.5 + 6.1 * 0.50252));  // it has widened the spread
}

}  // namespace
}  // namespace unchain::test
