#include "analysis/rank_correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace unchain::analysis {

std::vector<double> mid_ranks(std::span<const double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) fail(ErrorCode::numeric, "ranks: value {} is not a number", i);
  }
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    // The ranks begin + 1 … end.
    const double rank = static_cast<double>(begin + 1 + end) / 2;
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = rank;
  }
  return ranks;
}

std::optional<double> rank_correlation(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) fail(ErrorCode::usage, "rank correlation: lists of {} and {} values", a.size(), b.size());
  const std::vector<double> x = mid_ranks(a), y = mid_ranks(b);
  const double middle = (static_cast<double>(x.size()) + 1) / 2;
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - middle) * (x[i] - middle);
    yy += (y[i] - middle) * (y[i] - middle);
    xy += (x[i] - middle) * (y[i] - middle);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
}

}  // namespace unchain::analysis
