// Scores and gates of prototypes on every instruction set of the machine, against plain loops in long double. The
// chunks are tested through what they are for, by tests/attention/state_noise_test.cc.
#include "simd/state_chunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/compare.h"
#include "support/random_values.h"
#include "support/simd_targets.h"

namespace unchain::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr float kGuard = 12345;

// e^x for each x ≤ 0, as the kernel takes it: the sum of a score of 0 below a largest of −x, before which there is
// nothing.
std::vector<double> exponentials(const std::vector<double>& x) {
  std::vector<double> largest, total(x.size(), 0.0);
  for (const double value : x) largest.push_back(-value);
  std::vector<float> score(x.size(), 0.0f), take(x.size()), keep(x.size());
  simd::running_softmax(take.data(), keep.data(), largest.data(), total.data(), score.data(), x.size());
  return total;
}

TEST(SimdRunningSoftmax, ExponentialsAreAccurate) {
  std::vector<double> x = {0, -0x1p-60, -1e-300, -0.34657359027997264, -0.3465735902799727, -707.99};
  for (const float value : random_floats(4000, 1)) {
    const double u = std::min(std::abs(static_cast<double>(value)), 1.0);
    for (const double range : {708.0, 40.0, 1.0, 1e-3, 1e-9}) x.push_back(-u * range);
  }
  // Around the middle between two multiples of ln 2, where |r| is largest.
  for (int k = 0; k < 1000; ++k) {
    for (const double off : {-1e-13, 0.0, 1e-13}) x.push_back(-(k + 0.5) * 0.69314718055994530942 + off);
  }
  on_every_target([&] {
    const std::vector<double> found = exponentials(x);
    long double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const long double expected = expl(static_cast<long double>(x[i]));
      worst = std::max(worst, std::abs(static_cast<long double>(found[i]) - expected) / expected);
    }
    EXPECT_LT(worst, 0x1p-52L);  // 2 ε, derived in simd/vector-inl.h
    EXPECT_GT(worst, 0x1p-54L) << "a double cannot be that good";
    EXPECT_EQ(found[0], 1);
  });
}

TEST(SimdRunningSoftmax, ExponentialsAtTheEnds) {
  on_every_target([] {
    for (size_t n = 1; n <= 19; ++n) {  // in whole vectors and behind them
      EXPECT_EQ(exponentials(std::vector<double>(n, -708.5)), std::vector<double>(n, 0.0));
      EXPECT_EQ(exponentials(std::vector<double>(n, -1e300)), std::vector<double>(n, 0.0));
      EXPECT_EQ(exponentials(std::vector<double>(n, -kInf)), std::vector<double>(n, 0.0));
      for (const double value : exponentials(std::vector<double>(n, kNaN))) EXPECT_TRUE(std::isnan(value));
    }
  });
}

TEST(SimdRunningSoftmax, SumsScoresOneByOne) {
  constexpr int kSteps = 60;
  on_every_target([&] {
    for (size_t n = 0; n <= 19; ++n) {
      std::vector<double> largest(n + 1, -3.0), total(n + 1, 1.0);
      std::vector<long double> log_sum(n, -3.0L);
      largest[n] = total[n] = kGuard;
      for (int step = 0; step < kSteps; ++step) {
        SCOPED_TRACE(testing::Message() << "n " << n << ", step " << step);
        // Scores of ±100, and one late score far above all others.
        std::vector<float> take = random_floats(n + 1, static_cast<uint64_t>(step), 100), keep(n + 1);
        if (step == kSteps - 5 && n > 0) take[n / 2] = 3000;
        take[n] = keep[n] = kGuard;
        std::vector<double> takes, keeps;
        for (size_t i = 0; i < n; ++i) {
          const auto s = static_cast<long double>(take[i]);
          const long double before = log_sum[i], most = std::max(before, s);
          log_sum[i] = most + logl(expl(before - most) + expl(s - most));
          takes.push_back(static_cast<double>(expl(s - log_sum[i])));
          keeps.push_back(static_cast<double>(expl(before - log_sum[i])));
        }
        simd::running_softmax(take.data(), keep.data(), largest.data(), total.data(), take.data(), n);
        EXPECT_TRUE(take[n] == kGuard && keep[n] == kGuard && largest[n] == kGuard && total[n] == kGuard);
        take.pop_back();
        keep.pop_back();
        // Numbers up to 1, rounded to f32; what the doubles are off is 2⁻²⁹ of that.
        EXPECT_TRUE(close(take, takes, 1.001 * kEpsF32));
        EXPECT_TRUE(close(keep, keeps, 1.001 * kEpsF32));
        for (size_t i = 0; i < n; ++i) {
          // Each step adds a few ε to total, and the reference as little of its own: L is as far off.
          EXPECT_NEAR(largest[i] + std::log(total[i]), static_cast<double>(log_sum[i]), kSteps * 8 * 0x1p-53 * 3000);
        }
      }
    }
  });
}

TEST(SimdRunningSoftmax, ANaNStays) {
  on_every_target([] {
    std::vector<double> largest(9, 1.0), total(9, 1.0);
    std::vector<float> keep(9), take(9);
    for (const float second : {std::numeric_limits<float>::quiet_NaN(), 2.0f, -5.0f}) {
      std::vector<float> score(9, 2.0f);
      score[1] = score[8] = second;
      simd::running_softmax(take.data(), keep.data(), largest.data(), total.data(), score.data(), 9);
      for (const size_t i : {size_t{1}, size_t{8}}) EXPECT_TRUE(std::isnan(take[i]) && std::isnan(keep[i]));
      EXPECT_TRUE(std::isfinite(take[0]) && std::isfinite(take[7]));
    }
  });
}

TEST(SimdPrototypeScores, AgreeWithPlainSums) {
  constexpr float kScale = 0.3f;
  on_every_target([&] {
    for (const size_t rank : {1, 2, 3, 4, 5, 7, 8, 9}) {
      const size_t padded = (rank + simd::kPrototypes - 1) / simd::kPrototypes * simd::kPrototypes;
      for (const size_t width : {1, 7, 16, 64, 67}) {
        const size_t x_stride = width + 3, score_stride = rank + 2;
        const std::vector<float> x = random_floats(19 * x_stride, rank), p = random_floats(rank * width, width);
        std::vector<float> columns(width * padded, 0.0f);
        for (size_t m = 0; m < rank; ++m) {
          for (size_t e = 0; e < width; ++e) columns[e * padded + m] = p[m * width + e];
        }
        for (size_t n = 0; n <= 19; ++n) {
          SCOPED_TRACE(testing::Message() << "rank " << rank << ", width " << width << ", n " << n);
          std::vector<float> found(20 * score_stride, kGuard);
          simd::prototype_scores(found.data(), score_stride, x.data(), x_stride, columns.data(), padded, width, kScale,
                                 n, rank);
          std::vector<double> expected(found.size(), kGuard), tolerance(found.size(), 0.0);
          for (size_t i = 0; i < n; ++i) {
            for (size_t m = 0; m < rank; ++m) {
              double sum = 0, size = 0;
              for (size_t e = 0; e < width; ++e) {
                const double product = static_cast<double>(x[i * x_stride + e]) * static_cast<double>(p[m * width + e]);
                sum += product;
                size += std::abs(product);
              }
              expected[i * score_stride + m] = static_cast<double>(kScale) * sum;
              // Each product is rounded once at most, each sum once, and the scaled score once.
              tolerance[i * score_stride + m] = (static_cast<double>(width) + 2) * kEpsF32 * kScale * size;
            }
          }
          EXPECT_TRUE(close_each(found, expected, tolerance));
          // The last token alone: the same bits as beside others.
          if (n == 0) continue;
          std::vector<float> alone(rank);
          simd::prototype_scores(alone.data(), rank, x.data() + (n - 1) * x_stride, x_stride, columns.data(), padded,
                                 width, kScale, 1, rank);
          const auto* last = found.data() + (n - 1) * score_stride;
          EXPECT_TRUE(same_bits(alone, std::vector<float>(last, last + rank)));
        }
      }
    }
  });
}

}  // namespace
}  // namespace unchain::test
