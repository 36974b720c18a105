// Mean, median and a 95 % bootstrap interval of the mean, over windows.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace unchain::analysis {

// The 2.5 % and 97.5 % quantiles of the means of resampled windows.
struct Interval {
  double low = 0;
  double high = 0;
};

struct Summary {
  double mean = 0;
  double median = 0;
  std::optional<Interval> interval;  // absent if fewer than two windows contribute: resampling one says nothing
  int64_t windows = 0;               // those in which the measure is defined
};

// Percentile bootstrap. All summaries over equally many windows use the same resamples of one seed, so that figures can
// be compared and do not depend on the order in which they are asked for. Not thread-safe. Source: Efron & Tibshirani,
// "An Introduction to the Bootstrap", 1993, chapter 13.
class Bootstrap {
 public:
  explicit Bootstrap(uint64_t seed, int resamples = 2000);
  // Absent values are left out; absent if none is left. Values are finite.
  std::optional<Summary> summarise(const std::vector<std::optional<double>>& values);

 private:
  const std::vector<uint32_t>& resamples_of(size_t count);
  uint64_t seed_;
  int resamples_;
  std::map<size_t, std::vector<uint32_t>> indices_;  // by number of windows: [resamples, windows]
  std::vector<double> means_;                        // scratch
};

}  // namespace unchain::analysis
