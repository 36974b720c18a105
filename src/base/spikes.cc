#include "base/spikes.h"

#include <cmath>
#include <numeric>

namespace unchain {

std::optional<double> SpikeDetector::add(double value) {
  std::optional<double> result;
  if (window_.size() >= kLeast) {
    const double n = static_cast<double>(window_.size());
    const double mean = std::accumulate(window_.begin(), window_.end(), 0.0) / n;
    double squares = 0;
    for (const double x : window_) squares += (x - mean) * (x - mean);
    const double deviation = std::sqrt(squares / (n - 1));
    if (value - mean > kLimit * deviation && deviation > 0) result = (value - mean) / deviation;
  }
  window_.push_back(value);
  if (window_.size() > kWindow) window_.pop_front();
  return result;
}

}  // namespace unchain
