// Values that leap: a z-score above 6 over the last 100 steps (docs/training.md).
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace unchain {

class SpikeDetector {
 public:
  static constexpr size_t kWindow = 100, kLeast = 20;
  static constexpr double kLimit = 6;

  // How many standard deviations the value lies above the mean of the last kWindow values before it, if that is more
  // than kLimit. The first kLeast values are never spikes. The value then joins the window.
  std::optional<double> add(double value);

  const std::deque<double>& window() const { return window_; }
  void set_window(std::deque<double> window) { window_ = std::move(window); }

 private:
  std::deque<double> window_;
};

}  // namespace unchain
