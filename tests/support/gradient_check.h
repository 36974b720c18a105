// A hand-derived gradient against central differences in double. With step h = 1e-5 a difference is off by h²/6·f‴ +
// 2⁻⁵³·|f|/h, about 1e-10 of the values that tests use, so that 1e-7 of the largest gradient is far above it and far
// below any wrong term.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "support/compare.h"

namespace unchain::test {

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// ∂loss/∂x by central differences.
inline std::vector<double> differences(std::vector<double> x,
                                       const std::function<double(const std::vector<double>&)>& loss) {
  constexpr double kStep = 1e-5;
  std::vector<double> result(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + kStep;
    const double above = loss(x);
    x[i] = kept - kStep;
    result[i] = (above - loss(x)) / (2 * kStep);
    x[i] = kept;
  }
  return result;
}

// Every entry to 1e-7 of the largest; gradients that are all zero fail, since they test nothing.
inline testing::AssertionResult gradients_agree(const std::vector<double>& analytic,
                                                const std::vector<double>& numeric) {
  double largest = 0;
  for (const double g : numeric) largest = std::max(largest, std::abs(g));
  if (largest == 0) return testing::AssertionFailure() << "all gradients are zero, which tests nothing";
  return close(analytic, numeric, 1e-7 * largest);
}

// The same where `loss` reads `x` itself: x is moved and put back.
inline testing::AssertionResult gradient_agrees(const std::vector<double>& analytic, std::vector<double>& x,
                                                const std::function<double()>& loss) {
  const std::vector<double> kept = x;
  const std::vector<double> numeric = differences(kept, [&](const std::vector<double>& at) {
    x = at;
    return loss();
  });
  x = kept;
  return gradients_agree(analytic, numeric);
}

}  // namespace unchain::test
