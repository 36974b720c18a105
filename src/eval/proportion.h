// A share of successes and how sure one can be of it.
#pragma once

#include <cstdint>

namespace unchain::eval {

struct Proportion {
  int64_t right = 0, asked = 0;

  void add(bool is_right) {
    right += is_right ? 1 : 0;
    ++asked;
  }
  double value() const;  // NaN if nothing was asked
};

struct ProportionInterval {
  double low = 0, high = 1;
};

// The 95 % Wilson interval; [0, 1] if nothing was asked. Source: E. B. Wilson, "Probable inference, the law of
// succession, and statistical inference", 1927.
ProportionInterval wilson_interval(const Proportion& proportion);

}  // namespace unchain::eval
