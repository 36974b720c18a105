#include "eval/proportion.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace unchain::eval {

double Proportion::value() const {
  if (asked == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(right) / static_cast<double>(asked);
}

ProportionInterval wilson_interval(const Proportion& proportion) {
  if (proportion.asked == 0) return {0, 1};
  constexpr double z = 1.959963984540054;  // of the normal distribution, 2.5 % lie above
  const double n = static_cast<double>(proportion.asked), p = proportion.value(), scale = 1 + z * z / n;
  const double middle = (p + z * z / (2 * n)) / scale;
  const double half = z / scale * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

}  // namespace unchain::eval
