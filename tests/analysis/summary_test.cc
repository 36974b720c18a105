#include "analysis/summary.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace unchain::analysis {
namespace {

TEST(Bootstrap, OneWindowHasNoInterval) {
  const auto s = Bootstrap(0).summarise({std::nullopt, 0.3, std::nullopt});
  ASSERT_TRUE(s);
  EXPECT_EQ(s->windows, 1);
  for (const double x : {s->mean, s->median}) EXPECT_EQ(x, 0.3);
  EXPECT_FALSE(s->interval);
  EXPECT_FALSE(Bootstrap(0).summarise({std::nullopt}));
  EXPECT_FALSE(Bootstrap(0).summarise({}));
}

TEST(Bootstrap, KnownValues) {
  const auto s = Bootstrap(1).summarise({1.0, 2.0, 3.0, 10.0});
  EXPECT_EQ(s->mean, 4);
  EXPECT_EQ(s->median, 2.5);
  EXPECT_GE(s->interval->low, 1);
  EXPECT_LE(s->interval->high, 10);
  EXPECT_LT(s->interval->low, s->mean);
  EXPECT_GT(s->interval->high, s->mean);
  const auto two = Bootstrap(1).summarise({0.0, 1.0});  // means 0, ½, 1 with probability ¼, ½, ¼
  EXPECT_EQ(two->interval->low, 0);
  EXPECT_EQ(two->interval->high, 1);
  const auto equal = Bootstrap(1).summarise({0.1, 0.1, 0.1});  // measured to have no width, and so said
  EXPECT_EQ(equal->interval->low, 0.1);
  EXPECT_EQ(equal->interval->high, 0.1);
}

TEST(Bootstrap, DoesNotDependOnTheOrderOfQuestions) {
  Bootstrap a(5), b(5);
  const std::vector<std::optional<double>> x = {1.0, 4.0, 2.0}, y = {0.5, 0.1, 0.7, 0.2};
  const auto xa = a.summarise(x), ya = a.summarise(y);
  const auto yb = b.summarise(y), xb = b.summarise(x);
  EXPECT_EQ(xa->interval->low, xb->interval->low);
  EXPECT_EQ(ya->interval->high, yb->interval->high);
}

TEST(Bootstrap, IntervalCoversTheMean) {
  // Percentile intervals of 30 normal values are a little short: about 94 %. Binomial standard error of 400: 1.2 %.
  int covered = 0;
  Bootstrap bootstrap(9);
  for (uint64_t trial = 0; trial < 400; ++trial) {
    Rng rng(21, trial);
    std::vector<std::optional<double>> values;
    for (int i = 0; i < 30; ++i) values.push_back(rng.normal());
    const auto s = bootstrap.summarise(values);
    covered += s->interval->low <= 0 && s->interval->high >= 0;
  }
  EXPECT_GE(covered, 400 * 0.90);
  EXPECT_LE(covered, 400 * 0.98);
}

}  // namespace
}  // namespace unchain::analysis
