#include "train/schedule.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace unchain::test
