#include "analysis/simplex.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace unchain::analysis {
namespace {

constexpr double kRowSumTolerance = 0.05;
// A weight of 1 may be off by the rounding of its normaliser, a sum of up to 2¹⁶ f32 numbers in vector lanes.
constexpr double kOne = 1 + 1e-5;

}  // namespace

void SimplexCounts::add(const SimplexCounts& other) {
  rows += other.rows;
  rows_off += other.rows_off;
  entries += other.entries;
  over_one += other.over_one;
  rescaled += other.rescaled;
  rescaled_over_one += other.rescaled_over_one;
  non_key += other.non_key;
  small += other.small;
  small_or_negative += other.small_or_negative;
}

SimplexCounts SimplexObserver::total() const {
  SimplexCounts sum;
  for (const auto& layer : counts_)
    for (const SimplexCounts& head : layer) sum.add(head);
  return sum;
}

void SimplexObserver::on_maps(const attention::MapPanel& panel) {
  const auto layer = static_cast<size_t>(panel.layer);
  if (counts_.size() <= layer) counts_.resize(layer + 1);
  counts_[layer].resize(static_cast<size_t>(panel.heads));
  std::vector<float> row(static_cast<size_t>(panel.keys));
  for (int head = 0; head < panel.heads; ++head) {
    SimplexCounts& c = counts_[layer][static_cast<size_t>(head)];
    for (int64_t r = 0; r < panel.rows; ++r) {
      const int64_t i = panel.first_row + r;
      if (i == 0) continue;
      panel.signed_row(head, r, row.data());
      const float lambda = panel.noise ? panel.lambda[head * panel.rows + r] : 0.0f;
      const std::span<const int64_t> keys = induction_.keys(i);
      const double rest = 1 - static_cast<double>(lambda), small = 0.1 / static_cast<double>(i + 1);
      double sum = 0;
      for (int64_t j = panel.first_key(r); j <= i; ++j) {
        const auto p = static_cast<double>(row[static_cast<size_t>(j)]);
        if (!std::isfinite(p))
          fail(ErrorCode::numeric, "layer {} head {}: weight of row {} on key {} is not finite", panel.layer, head, i,
               j);
        sum += p;
        ++c.entries;
        c.over_one += p > kOne;
        if (rest != 0) {
          ++c.rescaled;
          c.rescaled_over_one += p / rest > kOne;
        }
        if (keys.empty() || std::binary_search(keys.begin(), keys.end(), j)) continue;
        ++c.non_key;
        c.small += std::abs(p) < small;
        c.small_or_negative += p < small;
      }
      ++c.rows;
      c.rows_off += std::abs(sum - 1) > kRowSumTolerance;
    }
  }
}

}  // namespace unchain::analysis
