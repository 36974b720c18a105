// Wilson intervals against the quadratic that defines them, |p̂ − p| = z √(p (1 − p)/n), and its known values.
#include "eval/proportion.h"

#include <gtest/gtest.h>

#include <cmath>

namespace unchain::test {
namespace {

using eval::Proportion;
using eval::wilson_interval;

TEST(Proportion, EndsOfTheIntervalSolveTheQuadratic) {
  for (const int64_t asked : {1, 7, 40, 1000}) {
    for (int64_t right = 0; right <= asked; right += asked / 7 + 1) {
      const Proportion proportion{right, asked};
      const auto interval = wilson_interval(proportion);
      for (const double p : {interval.low, interval.high}) {
        const double z = std::abs(proportion.value() - p) / std::sqrt(p * (1 - p) / static_cast<double>(asked));
        if (p < 1e-12 || p > 1 - 1e-12) continue;  // 0 and 1 have no spread
        EXPECT_NEAR(z, 1.959963984540054, 1e-9) << right << " of " << asked;
      }
      EXPECT_LE(interval.low, proportion.value() + 1e-15);
      EXPECT_GE(interval.high, proportion.value() - 1e-15);
    }
  }
}

TEST(Proportion, NothingAskedSaysNothing) {
  EXPECT_TRUE(std::isnan(Proportion().value()));
  EXPECT_EQ(wilson_interval({}).low, 0);
  EXPECT_EQ(wilson_interval({}).high, 1);
}

TEST(Proportion, Counts) {
  Proportion proportion;
  for (const bool right : {true, false, true, true}) proportion.add(right);
  EXPECT_EQ(proportion.value(), 0.75);
}

}  // namespace
}  // namespace unchain::test
