// How a measure of one model follows from the windows that it was taken over: its value, of all of them, and what the
// judge's bootstrap makes of those that it draws (docs/claims.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace unchain::study {

// What one window adds to a measure: one number, or as many as its statistic takes.
using Window = std::vector<double>;
using Windows = std::vector<std::vector<Window>>;  // by text, then window; empty: not kept

// The statistic of windows w, of each of which a measure keeps
//   mean, median          numbers x: that of all of them
//   layers_in_rank_band   (layer, rank) of each head: the share of layers whose median rank lies in [2, 5]
//   area_under_curve      (score, right) of each item, right 1 or 0: area_under_curve()
//   explained             (residual r, variation v) of each head: mean over heads of 1 − Σ_w r/Σ_w v
//   rank_correlation      x of each layer, then y of each: rank_correlation() of their means over windows
//   gini                  x of each head: gini() of their means over windows, negative ones as 0
enum class OverWindows : uint8_t {
  none,
  mean,
  median,
  layers_in_rank_band,
  area_under_curve,
  explained,
  rank_correlation,
  gini
};
inline constexpr std::array<std::string_view, 8> kOverWindows = {
    "none", "mean", "median", "layers_in_rank_band", "area_under_curve", "explained", "rank_correlation", "gini"};

// The band of claims 1 and 2.
inline constexpr double kLowRank = 2, kHighRank = 5;

// The statistic of some windows, one that stands twice counting twice; NaN where there is none, as of no windows.
// Error: usage (windows that do not hold what the statistic takes).
double over_windows(OverWindows statistic, std::span<const Window* const> windows);
// Of all windows of all texts; absent where there is none.
std::optional<double> over_windows(OverWindows statistic, const Windows& windows);

// Windows of one number each.
std::vector<Window> singles(const std::vector<double>& values);

}  // namespace unchain::study
