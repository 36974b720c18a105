// Spearman's rank correlation.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace unchain::analysis {

// The rank of each value among all, from 1 up; equal values share the mean of their ranks. Error: numeric (NaN).
std::vector<double> mid_ranks(std::span<const double> values);

// Pearson's correlation of the mid-ranks of a and b, in [−1, 1]; absent where one list is constant or has fewer than
// two values. Errors: usage (lengths differ); numeric (NaN). Source: Kendall & Gibbons, "Rank Correlation Methods",
// 1990, chapter 3.
std::optional<double> rank_correlation(std::span<const double> a, std::span<const double> b);

}  // namespace unchain::analysis
