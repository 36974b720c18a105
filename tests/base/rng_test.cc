#include "base/rng.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace unchain {
namespace {

TEST(Rng, IsPhilox) {
  // Known answer of Philox4x32-10 for counter 0 and key 0, from the vectors that come with Random123.
  Rng rng(0);
  EXPECT_EQ(rng.bits(), 0xe169c58d6627e8d5u);
  EXPECT_EQ(rng.bits(), 0x9b00dbd8bc57ac4cu);
}

TEST(Rng, SeedsAndStreamsDiffer) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {0ull, 1ull, 1ull << 40}) {
    for (uint64_t stream : {0ull, 1ull, 1ull << 40}) {
      Rng rng(seed, stream), again(seed, stream);
      for (int i = 0; i < 100; ++i) {
        const uint64_t x = rng.bits();
        EXPECT_EQ(x, again.bits());
        EXPECT_TRUE(seen.insert(x).second);
      }
    }
  }
}

TEST(Rng, UniformAndNormalMoments) {
  Rng rng(7);
  constexpr int kCount = 100000;
  double sum = 0, sum_normal = 0, squares = 0;
  for (int i = 0; i < kCount; ++i) {
    const double u = rng.uniform(), z = rng.normal();
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
    sum_normal += z;
    squares += z * z;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 5 * 0.289 / std::sqrt(kCount));  // five standard errors
  EXPECT_NEAR(sum_normal / kCount, 0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
}

TEST(Rng, BelowIsFair) {
  Rng rng(3);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(rng.below(7));
  for (int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(10000.0));
  EXPECT_EQ(rng.below(0), 0u);
  EXPECT_EQ(rng.below(1), 0u);
}

}  // namespace
}  // namespace unchain
