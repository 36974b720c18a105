// The layouts' index maps on cases small enough to read.
#include "ref/layout.h"

#include <gtest/gtest.h>

namespace unchain::test {
namespace {

using Pairs = std::vector<ref::HeadPair>;  // {q1, k1, q2, k2, v}

TEST(Layout, PlainSoftmaxSharesKeys) {
  EXPECT_EQ(ref::plain_layout(4, 2),
            (Pairs{{0, 0, -1, -1, 0}, {1, 0, -1, -1, 0}, {2, 1, -1, -1, 1}, {3, 1, -1, -1, 1}}));
  EXPECT_EQ(ref::plain_layout(2, 2), (Pairs{{0, 0, -1, -1, 0}, {1, 1, -1, -1, 1}}));
}

TEST(Layout, HalvesPairAcrossTheMiddle) {
  EXPECT_EQ(ref::halves_layout(4, 2), (Pairs{{0, 0, 2, 1, 0}, {1, 0, 3, 1, 0}}));
  EXPECT_EQ(ref::halves_layout(8, 4), (Pairs{{0, 0, 4, 2, 0}, {1, 0, 5, 2, 0}, {2, 1, 6, 3, 1}, {3, 1, 7, 3, 1}}));
  EXPECT_EQ(ref::halves_layout(6, 2), (Pairs{{0, 0, 3, 1, 0}, {1, 0, 4, 1, 0}, {2, 0, 5, 1, 0}}));
}

TEST(Layout, NeighboursPairSideBySide) {
  EXPECT_EQ(ref::neighbours_layout(4, 4), (Pairs{{0, 0, 1, 1, 0}, {2, 2, 3, 3, 1}}));
  // h/g even: both heads of a pair read one key head.
  EXPECT_EQ(ref::neighbours_layout(4, 2), (Pairs{{0, 0, 1, 0, 0}, {2, 1, 3, 1, 0}}));
  EXPECT_EQ(ref::neighbours_layout(8, 4), (Pairs{{0, 0, 1, 0, 0}, {2, 1, 3, 1, 0}, {4, 2, 5, 2, 1}, {6, 3, 7, 3, 1}}));
  // h/g = 3: a pair may reach over two groups.
  EXPECT_EQ(ref::neighbours_layout(6, 2), (Pairs{{0, 0, 1, 0, 0}, {2, 0, 3, 1, 0}, {4, 1, 5, 1, 0}}));
}

TEST(Layout, SharedKeysKeepAPairInOneGroup) {
  EXPECT_EQ(ref::shared_keys_layout(4, 2), (Pairs{{0, 0, 1, 0, 0}, {2, 0, 3, 0, 0}, {4, 1, 5, 1, 1}, {6, 1, 7, 1, 1}}));
  for (const int64_t outputs : {2, 4, 6, 12}) {
    for (const int64_t g : {1, 2}) {
      for (const ref::HeadPair& p : ref::shared_keys_layout(outputs, g)) {
        EXPECT_EQ(p.k1, p.q1 * g / (2 * outputs)) << "the general rule";
        EXPECT_EQ(p.k2, p.q2 * g / (2 * outputs)) << "the general rule";
      }
    }
  }
}

TEST(Layout, GroupedNoiseHeadsServeSeveralOutputs) {
  EXPECT_EQ(ref::grouped_layout(3, 1, 3), (Pairs{{0, 0, 3, 1, 0}, {1, 0, 3, 1, 0}, {2, 0, 3, 1, 0}}));
  // h = 6, g = 2, ratio 3: two noise heads, queries 6 and 7, and ⌈2/3⌉ = 1 noise key, number 2.
  EXPECT_EQ(
      ref::grouped_layout(6, 2, 3),
      (Pairs{{0, 0, 6, 2, 0}, {1, 0, 6, 2, 0}, {2, 0, 6, 2, 0}, {3, 1, 7, 2, 1}, {4, 1, 7, 2, 1}, {5, 1, 7, 2, 1}}));
  // h = 8, g = 8, ratio 4: two noise heads on two noise keys, numbers 8 and 9.
  const Pairs wide = ref::grouped_layout(8, 8, 4);
  EXPECT_EQ(wide[3], (ref::HeadPair{3, 3, 8, 8, 3}));
  EXPECT_EQ(wide[4], (ref::HeadPair{4, 4, 9, 9, 4}));
}

TEST(Layout, EveryQueryHeadIsReadOnceButSharedNoise) {
  for (const auto& pairs : {ref::halves_layout(8, 2), ref::neighbours_layout(8, 2), ref::shared_keys_layout(4, 2)}) {
    std::vector<int> read(8);
    for (const ref::HeadPair& p : pairs) ++read[static_cast<size_t>(p.q1)], ++read[static_cast<size_t>(p.q2)];
    EXPECT_EQ(read, std::vector<int>(8, 1));
  }
}

TEST(Layout, WideValueHeadsOfHalves) {
  // One position, four value heads of width 2: head j is {10j, 10j + 1}.
  const std::vector<double> v{0, 1, 10, 11, 20, 21, 30, 31};
  const std::vector<double> wide{0, 1, 20, 21, 10, 11, 30, 31};
  EXPECT_EQ(ref::join_halves(v, 1, 4, 2), wide);
  EXPECT_EQ(ref::split_halves(wide, 1, 4, 2), v);
}

}  // namespace
}  // namespace unchain::test
