// Statistics of windows by hand, and what draws of them leave.
#include "study/over_windows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/temporary_folder.h"

namespace unchain::study {
namespace {

using enum OverWindows;

// Texts of one window each.
std::optional<double> of(OverWindows statistic, const std::vector<Window>& windows) {
  Windows texts;
  for (const Window& window : windows) texts.push_back({window});
  return over_windows(statistic, texts);
}

TEST(OverWindows, ByHand) {
  EXPECT_EQ(of(mean, {{1}, {2}, {6}}), 3);
  EXPECT_EQ(of(median, {{1, 9}, {2}, {6, 7}}), 6);
  // Layer 0 has the ranks 1, 3, 9 and layer 2 the ranks 6, 8: the medians are 3 and 7.
  EXPECT_EQ(of(layers_in_rank_band, {{0, 1, 2, 6}, {0, 9, 0, 3, 2, 8}}), 0.5);
  EXPECT_EQ(of(layers_in_rank_band, {{0, 2}, {1, 5}, {2, 1.99}, {3, 5.01}}), 0.5) << "the ends are in the band";
  // Right 0.9 and 0.4, wrong 0.4 and 0.1: of four pairs three and a tie.
  EXPECT_EQ(of(area_under_curve, {{0.9, 1}, {0.1, 0}, {0.4, 1}, {0.4, 0}}), 3.5 / 4);
  // One head: 1 − 3/12; the other: 1 − 6/8.
  EXPECT_EQ(of(explained, {{1, 4, 2, 8}, {2, 8, 4, 0}}), 0.5);
  // Means 2, 3, 1 beside 5, 7, 1 are of one order; beside 5, 1, 7 of the opposite one.
  EXPECT_EQ(of(rank_correlation, {{1, 3, 0, 4, 8, 1}, {3, 3, 2, 6, 6, 1}}), 1);
  EXPECT_NEAR(of(rank_correlation, {{2, 3, 1, 5, 1, 7}}).value(), -1, 1e-15);
  // Means 3, 1 and −1, the last as 0: |x_i − x_j| of all pairs, twice 2 + 3 + 1, over 2·3·4.
  EXPECT_EQ(of(gini, {{4, 1, -2}, {2, 1, 0}}), 0.5);
}

TEST(OverWindows, AWindowDrawnTwiceCountsTwice) {
  const Window low = {1, 10}, high = {4, 10};
  const std::vector<const Window*> drawn = {&low, &low, &high};
  EXPECT_EQ(over_windows(explained, drawn), 1 - 6.0 / 30);
}

TEST(OverWindows, NothingToTell) {
  for (const OverWindows each :
       {none, mean, median, layers_in_rank_band, area_under_curve, explained, rank_correlation, gini}) {
    SCOPED_TRACE(kOverWindows[static_cast<size_t>(each)]);
    EXPECT_FALSE(over_windows(each, Windows()));
    EXPECT_FALSE(over_windows(each, Windows(3)));
    EXPECT_FALSE(over_windows(each, Windows{{{}}}));
  }
  EXPECT_FALSE(of(area_under_curve, {{0.2, 1}, {0.3, 1}})) << "none is wrong";
  EXPECT_FALSE(of(rank_correlation, {{1, 1, 2, 3}})) << "one list is constant";
  EXPECT_FALSE(of(gini, {{-1, 0}})) << "no head matters";
  EXPECT_FALSE(of(explained, {{0, 0}})) << "nothing varies";
}

TEST(OverWindows, RefusesWhatItCannotRead) {
  for (const OverWindows each : {layers_in_rank_band, area_under_curve, explained, rank_correlation})
    test::expect_error([&] { of(each, {{1, 2, 3}}); }, ErrorCode::usage, {"3 numbers"});
  for (const OverWindows each : {explained, rank_correlation, gini})
    test::expect_error([&] { of(each, {{1, 2}, {1, 2, 3, 4}}); }, ErrorCode::usage, {"2 numbers", "4"});
}

}  // namespace
}  // namespace unchain::study
