#include "analysis/rank_correlation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using analysis::mid_ranks;
using analysis::rank_correlation;
using Doubles = std::vector<double>;

TEST(RankCorrelation, EqualValuesShareTheMeanOfTheirRanks) {
  EXPECT_EQ(mid_ranks(Doubles{30, 10, 20}), (Doubles{3, 1, 2}));
  EXPECT_EQ(mid_ranks(Doubles{2, 1, 2, 3, 2}), (Doubles{3, 1, 3, 5, 3}));
  EXPECT_EQ(mid_ranks(Doubles{4, 4}), (Doubles{1.5, 1.5}));
  EXPECT_EQ(mid_ranks(Doubles{}), Doubles{});
}

TEST(RankCorrelation, KnownValues) {
  // Without ties 1 − 6Σd²/(n(n²−1)): d² sums to 194, so 1 − 1164/990 = −29/165.
  const Doubles a = {106, 100, 86, 101, 99, 103, 97, 113, 112, 110}, b = {7, 27, 2, 50, 28, 29, 20, 12, 6, 17};
  EXPECT_NEAR(*rank_correlation(a, b), -29.0 / 165, 1e-15);
  // Ranks 1, 2½, 2½, 4 and 1, 3, 2, 4: 4½/√(4½·5) = 3/√10.
  EXPECT_NEAR(*rank_correlation(Doubles{1, 2, 2, 3}, Doubles{1, 3, 2, 4}), 3 / std::sqrt(10.0), 1e-15);
  // Ranks 1½, 1½, 3½, 3½ and 1, 2, 3, 4 (or 4 … 1): 4/√(4·5) = 2/√5.
  EXPECT_NEAR(*rank_correlation(Doubles{0, 0, 5, 5}, Doubles{-3, 0, 1, 9}), 2 / std::sqrt(5.0), 1e-15);
  EXPECT_NEAR(*rank_correlation(Doubles{0, 0, 5, 5}, Doubles{9, 1, 0, -3}), -2 / std::sqrt(5.0), 1e-15);
  // Any rising function of the same values.
  EXPECT_EQ(*rank_correlation(Doubles{1, 3, 2, 8}, Doubles{1, 27, 8, 512}), 1);
  EXPECT_EQ(*rank_correlation(Doubles{1, 3, 2, 8}, Doubles{-1, -27, -8, -INFINITY}), -1);
}

TEST(RankCorrelation, AbsentWhereThereIsNoOrder) {
  EXPECT_FALSE(rank_correlation(Doubles{}, Doubles{}));
  EXPECT_FALSE(rank_correlation(Doubles{1}, Doubles{2}));
  EXPECT_FALSE(rank_correlation(Doubles{1, 1, 1}, Doubles{1, 2, 3}));
  EXPECT_FALSE(rank_correlation(Doubles{1, 2, 3}, Doubles{0, 0, 0}));
}

TEST(RankCorrelation, Errors) {
  expect_error([] { rank_correlation(Doubles{1, 2}, Doubles{1}); }, ErrorCode::usage, {"2 and 1"});
  expect_error([] { rank_correlation(Doubles{1, NAN}, Doubles{1, 2}); }, ErrorCode::numeric, {"value 1"});
}

}  // namespace
}  // namespace unchain::test
