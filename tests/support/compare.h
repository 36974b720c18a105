// The comparator of all numeric tests: largest absolute error against a tolerance for the whole array or one per entry.
// It fails on NaN and infinity on either side, on unequal lengths, on a tolerance that is no number, and on two arrays
// that share memory, which would compare a result with itself.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace unchain::test {

inline double to_double(double x) {
  return x;
}
inline double to_double(float x) {
  return static_cast<double>(x);
}
inline double to_double(bf16 x) {
  return static_cast<double>(to_f32(x));
}

template <class A, class B>
bool share_memory(std::span<const A> a, std::span<const B> b) {
  const auto begin_a = reinterpret_cast<uintptr_t>(a.data()), begin_b = reinterpret_cast<uintptr_t>(b.data());
  return !a.empty() && !b.empty() && begin_a < begin_b + b.size_bytes() && begin_b < begin_a + a.size_bytes();
}

// Entry i may differ by tolerance[i]. Reports the entry that exceeds its tolerance most.
template <class A, class E>
testing::AssertionResult close_each(std::span<const A> actual, std::span<const E> expected,
                                    std::span<const double> tolerance) {
  if (actual.size() != expected.size() || actual.size() != tolerance.size()) {
    return testing::AssertionFailure() << "lengths differ: " << actual.size() << " actual, " << expected.size()
                                       << " expected, " << tolerance.size() << " tolerances";
  }
  if (share_memory(actual, expected)) return testing::AssertionFailure() << "actual and expected share memory";
  size_t worst = 0, wrong = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(to_double(actual[i]) - to_double(expected[i]));
    // Written so that a NaN anywhere counts as wrong.
    if (std::isfinite(error) && std::isfinite(tolerance[i]) && error <= tolerance[i]) continue;
    const double excess = std::isfinite(error) ? error - tolerance[i] : INFINITY;
    if (wrong == 0 || excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
    ++wrong;
  }
  if (wrong == 0) return testing::AssertionSuccess();
  testing::AssertionResult result = testing::AssertionFailure();
  result << wrong << " of " << actual.size() << " entries differ; the worst is [" << worst << "]: ";
  result.operator<<(to_double(actual[worst])) << " where " << to_double(expected[worst]) << " is expected, error ";
  result << std::abs(to_double(actual[worst]) - to_double(expected[worst])) << ", tolerance " << tolerance[worst];
  return result;
}

template <class A, class E>
testing::AssertionResult close_each(const std::vector<A>& actual, const std::vector<E>& expected,
                                    const std::vector<double>& tolerance) {
  return close_each(std::span<const A>(actual), std::span<const E>(expected), std::span<const double>(tolerance));
}

// One tolerance for all entries.
template <class A, class E>
testing::AssertionResult close(std::span<const A> actual, std::span<const E> expected, double tolerance) {
  const std::vector<double> each(actual.size(), tolerance);
  return close_each(actual, expected, std::span<const double>(each));
}
template <class A, class E>
testing::AssertionResult close(const std::vector<A>& actual, const std::vector<E>& expected, double tolerance) {
  return close(std::span<const A>(actual), std::span<const E>(expected), tolerance);
}

// Exactly the same bits.
template <class T>
testing::AssertionResult same_bits(std::span<const T> a, std::span<const T> b) {
  if (a.size() != b.size()) return testing::AssertionFailure() << "lengths differ: " << a.size() << ", " << b.size();
  if (share_memory(a, b)) return testing::AssertionFailure() << "both arrays share memory";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::equal(reinterpret_cast<const char*>(&a[i]), reinterpret_cast<const char*>(&a[i] + 1),
                   reinterpret_cast<const char*>(&b[i])))
      continue;
    return testing::AssertionFailure() << "[" << i << "]: " << to_double(a[i]) << " and " << to_double(b[i]);
  }
  return testing::AssertionSuccess();
}
template <class T>
testing::AssertionResult same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return same_bits(std::span<const T>(a), std::span<const T>(b));
}

}  // namespace unchain::test
