// AdamW and the sum of squares against double.
#include "ops/adamw.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "ref/adamw.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/simd_targets.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

constexpr int kSteps = 12;

struct Trained {
  std::vector<float> value, m, v;
  std::vector<bf16> narrow;
};

// Gradients of very different sizes, some of them zero.
std::vector<float> gradient_of(size_t n, int step) {
  auto g = random_floats(n, 100 + static_cast<uint64_t>(step));
  for (size_t i = 0; i < n; ++i) g[i] *= i % 5 == 0 ? 0.0f : (i % 5 == 1 ? 1e-6f : (i % 5 == 2 ? 1e6f : 1.0f));
  return g;
}

Trained run_steps(size_t n, const ops::AdamW& options, double scale) {
  Trained r{random_floats(n, 1), std::vector<float>(n), std::vector<float>(n), std::vector<bf16>(n)};
  for (int step = 1; step <= kSteps; ++step) {
    ops::adamw_step({r.value, r.m, r.v, r.narrow}, gradient_of(n, step), step, scale, options);
  }
  return r;
}

void expect_steps(size_t n, const ops::AdamW& options) {
  constexpr double kScale = 0.3;
  const Trained r = run_steps(n, options, kScale);
  const auto start = random_floats(n, 1);
  std::vector<ref::AdamWState> states;
  for (const float x : start) states.push_back({static_cast<double>(x)});
  std::vector<double> tolerance_m(n), value(n), m(n), v(n), tolerance(n), tolerance_v(n);
  for (int step = 1; step <= kSteps; ++step) {
    const auto g = gradient_of(n, step);
    for (size_t i = 0; i < n; ++i) {
      const double scaled = static_cast<double>(g[i]) * kScale;
      ref::adamw(states[i], scaled, step,
                 {options.learning_rate, options.beta1, options.beta2, options.eps, options.weight_decay});
      // m is a sum of terms that may cancel, each rounded with its coefficients 5 times and carried through at most
      // 2·kSteps roundings: 5 + 2·12 < 30. v's terms are squares, rounded 7 times.
      tolerance_m[i] = options.beta1 * tolerance_m[i] + (1 - options.beta1) * 30 * kEpsF32 * std::abs(scaled);
      tolerance_v[i] = 32 * kEpsF32 * states[i].v + 1e-44;
      // The move η·m̂/√v̂: m's error over √v̂, v's relative error halved, and 8 roundings; then the sum and the decay's
      // product round values of this size. 1e-44: the smallest f32.
      const double m_hat = 1 / (1 - std::pow(options.beta1, step)), v_hat = 1 / (1 - std::pow(options.beta2, step));
      const double root = std::sqrt(states[i].v * v_hat) + options.eps;
      const double move = options.learning_rate * m_hat * std::abs(states[i].m) / root;
      tolerance[i] += options.learning_rate * m_hat * tolerance_m[i] / root + (16 + 8) * kEpsF32 * move +
                      3 * kEpsF32 * (std::abs(states[i].value) + move);
    }
  }
  std::vector<double> rounded_tolerance(n);
  for (size_t i = 0; i < n; ++i) {
    value[i] = states[i].value;
    m[i] = states[i].m;
    v[i] = states[i].v;
    rounded_tolerance[i] = kEpsBf16 * std::abs(static_cast<double>(r.value[i]));
    tolerance_m[i] += 1e-44;
  }
  EXPECT_TRUE(close_each(r.m, m, tolerance_m));
  EXPECT_TRUE(close_each(r.v, v, tolerance_v));
  EXPECT_TRUE(close_each(r.value, value, tolerance));
  EXPECT_TRUE(close_each(r.narrow, r.value, rounded_tolerance));
}

TEST(AdamW, StepsFollowThePaper) {
  on_every_target([] {
    for (const size_t n : {size_t{1}, size_t{3}, size_t{7}, size_t{15}, size_t{16}, size_t{17}, size_t{50}}) {
      SCOPED_TRACE(n);
      expect_steps(n, {.learning_rate = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
      expect_steps(n, {.learning_rate = 0.3, .beta1 = 0.8, .beta2 = 0.999, .eps = 1e-3, .weight_decay = 0});
      expect_steps(n, {.learning_rate = 0, .beta1 = 0, .beta2 = 0, .eps = 1e-8, .weight_decay = 1});
    }
  });
}

TEST(AdamW, SameBitsForAnyNumberOfThreads) {
  constexpr size_t kCount = 50001;
  set_threads(1);
  const Trained one = run_steps(kCount, {.weight_decay = 0.1}, 0.3);
  for (const int count : {2, 3}) {
    set_threads(count);
    const Trained many = run_steps(kCount, {.weight_decay = 0.1}, 0.3);
    EXPECT_TRUE(same_bits(many.value, one.value));
    EXPECT_TRUE(same_bits(many.m, one.m));
    EXPECT_TRUE(same_bits(many.v, one.v));
  }
  set_threads(0);
}

TEST(AdamW, ZeroGradientsOnlyDecay) {
  std::vector<float> value = {2, -4, 0}, m(3), v(3), gradient(3);
  ops::adamw_step({value, m, v, {}}, gradient, 1, 1, {.learning_rate = 0.5, .weight_decay = 0.5});
  EXPECT_TRUE(close(value, std::vector<double>{1.5, -3, 0}, 0));
}

TEST(AdamW, BadArguments) {
  std::vector<float> three(3), four(4);
  std::vector<bf16> narrow(2);
  expect_error([&] { ops::adamw_step({three, three, four, {}}, three, 1, 1, {}); }, ErrorCode::shape, {"3 values"});
  expect_error([&] { ops::adamw_step({three, three, three, narrow}, three, 1, 1, {}); }, ErrorCode::shape, {"2 round"});
  expect_error([&] { ops::adamw_step({three, three, three, {}}, four, 1, 1, {}); }, ErrorCode::shape, {"4 gradients"});
  expect_error([&] { ops::adamw_step({three, three, three, {}}, three, 0, 1, {}); }, ErrorCode::usage, {"step 0"});
}

TEST(SumSquares, InDoubleAndTheSameForAnyNumberOfThreads) {
  on_every_target([] {
    for (const size_t n :
         {size_t{0}, size_t{1}, size_t{7}, size_t{33}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{1100000}}) {
      for (const double size : {1.0, 1e25}) {
        const auto x = random_floats(n, 1, size);
        double expected = 0;
        for (const float value : x) expected += static_cast<double>(value) * static_cast<double>(value);
        double first = 0;
        for (const int count : {1, 2, 3}) {
          set_threads(count);
          const double sum = ops::sum_squares(x);
          // n additions on either side, all of one sign; squares of f32 are exact in double.
          EXPECT_NEAR(sum, expected, 2 * static_cast<double>(n) * 0x1p-53 * expected);
          if (count == 1) first = sum;
          EXPECT_EQ(sum, first);
        }
      }
    }
  });
  set_threads(0);
}

}  // namespace
}  // namespace unchain::test
