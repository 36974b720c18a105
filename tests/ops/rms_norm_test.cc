// RMSNorm forward and backward against double. The test to copy for a new op: docs/add-an-op.md.
#include "ops/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/thread.h"
#include "ref/rms_norm.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/simd_targets.h"

namespace unchain::test {
namespace {

constexpr float kEps = 1e-5f;
constexpr size_t kWidths[] = {1, 3, 7, 8, 15, 16, 17, 50, 64, 576, 1000};

struct Case {
  size_t rows, width;
  bool weighted;
  double scale;
};

template <class Body>
void on_grid(const Body& body) {
  for (const size_t rows : {size_t{1}, size_t{3}, size_t{40}}) {
    for (const size_t width : kWidths) {
      for (const bool weighted : {true, false}) {
        for (const double scale : {0.0, 1e-4, 1.0, 1e10}) {
          SCOPED_TRACE(testing::Message() << rows << " x " << width << ", weight " << weighted << ", scale " << scale);
          body(Case{rows, width, weighted, scale});
        }
      }
    }
  }
}

TEST(RmsNorm, Forward) {
  for (const int count : {1, 2}) {
    set_threads(count);
    on_every_target([] {
      on_grid([](const Case& c) {
        auto x = random_floats(c.rows * c.width, c.width, c.scale);
        const auto weight = random_floats(c.width, 7);
        const float* w = c.weighted ? weight.data() : nullptr;
        const auto expected = ref::rms_norm(widen(x), c.weighted ? widen(weight) : std::vector<double>{}, c.rows,
                                            c.width, static_cast<double>(kEps));
        // As rms_norm.h says. The sum of D squares is off by (D/16 + 7)·ε, which the root halves; mean, root, quotient
        // and two products round once each: below (D/16 + 8)·ε altogether.
        const double relative = (static_cast<double>(c.width) / 16 + 8) * kEpsF32;
        std::vector<double> tolerance(expected.size()), tolerance_bf16(expected.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          tolerance[i] = relative * std::abs(expected[i]);
          tolerance_bf16[i] = (relative + kEpsBf16 * (1 + relative)) * std::abs(expected[i]);
        }
        const auto rows = static_cast<int64_t>(c.rows), width = static_cast<int64_t>(c.width);
        std::vector<float> out(x.size()), inverse(c.rows);
        EXPECT_EQ(ops::rms_norm_forward(Matrix(out.data(), rows, width), {inverse.data()},
                                        Matrix(x.data(), rows, width), w, kEps),
                  -1);
        EXPECT_TRUE(close_each(out, expected, tolerance));
        for (size_t t = 0; t < c.rows; ++t) {
          const double r = ref::inverse_rms(&widen(x)[t * c.width], c.width, static_cast<double>(kEps));
          EXPECT_NEAR(static_cast<double>(inverse[t]), r, relative * r);
        }
        std::vector<bf16> narrow(x.size());
        ops::rms_norm_forward(Matrix(narrow.data(), rows, width), {}, Matrix(x.data(), rows, width), w, kEps);
        EXPECT_TRUE(close_each(narrow, expected, tolerance_bf16));
        // In place.
        ops::rms_norm_forward(Matrix(x.data(), rows, width), {}, Matrix(x.data(), rows, width), w, kEps);
        EXPECT_TRUE(same_bits(x, out));
      });
    });
  }
  set_threads(0);
}

void expect_backward() {
  on_grid([](const Case& c) {
    if (c.width > 100) return;
    auto x = random_floats(c.rows * c.width, c.width, c.scale);
    auto up = random_floats(c.rows * c.width, 8);
    const auto weight = random_floats(c.width, 7);
    const float* w = c.weighted ? weight.data() : nullptr;
    const auto rows = static_cast<int64_t>(c.rows), width = static_cast<int64_t>(c.width);
    std::vector<float> out(x.size()), inverse(c.rows), d_x(x.size(), 0.25f), d_weight(c.width, 0.5f);
    const Matrix in(x.data(), rows, width);
    const ops::RmsNormSaved saved{inverse.data()};
    ops::rms_norm_forward(Matrix(out.data(), rows, width), saved, in, w, kEps);
    ops::RmsNormWorkspace workspace;
    ops::rms_norm_backward(Matrix(d_x.data(), rows, width), d_weight.data(), workspace, Matrix(up.data(), rows, width),
                           saved, in, w);
    const auto g = ref::rms_norm_backward(widen(up), widen(x), c.weighted ? widen(weight) : std::vector<double>{},
                                          c.rows, c.width, static_cast<double>(kEps));
    // d_x_i = r(g_i − x̂_i·mean(g x̂)) with |mean| ≤ √(Σg²/D): r is off by (D/16 + 8)ε, r³ thrice that; the sum of g x̂
    // runs in at least 8 lanes, (D/8 + 5)ε; 8 further roundings.
    std::vector<double> expected(x.size()), tolerance(x.size());
    const double n = static_cast<double>(c.width), relative = (3 * (n / 16 + 8) + n / 8 + 13) * kEpsF32;
    std::vector<double> weight_expected(c.width), weight_tolerance(c.width);
    for (size_t t = 0; t < c.rows; ++t) {
      const double r = ref::inverse_rms(&widen(x)[t * c.width], c.width, static_cast<double>(kEps));
      double squares = 0;
      for (size_t i = 0; i < c.width; ++i) {
        const double gi = static_cast<double>(up[t * c.width + i]) * (c.weighted ? static_cast<double>(weight[i]) : 1);
        squares += gi * gi;
      }
      for (size_t i = 0; i < c.width; ++i) {
        const size_t at = t * c.width + i;
        const double gi = static_cast<double>(up[at]) * (c.weighted ? static_cast<double>(weight[i]) : 1);
        const double xhat = std::abs(static_cast<double>(x[at])) * r;
        expected[at] = g.d_x[at] + 0.25;  // gradients are added to what is there
        tolerance[at] = relative * r * (std::abs(gi) + xhat * std::sqrt(squares / static_cast<double>(c.width))) +
                        kEpsF32 * std::abs(expected[at]);
        weight_tolerance[i] +=
            (relative + static_cast<double>(c.rows) * kEpsF32) * (std::abs(static_cast<double>(up[at])) * xhat + 0.5);
      }
    }
    for (size_t i = 0; i < c.width; ++i) weight_expected[i] = g.d_weight[i] + 0.5;
    EXPECT_TRUE(close_each(d_x, expected, tolerance));
    EXPECT_TRUE(close_each(d_weight, weight_expected, weight_tolerance));
    // The gradient of the weight may be left out.
    std::vector<float> again(x.size(), 0.25f);
    ops::rms_norm_backward(Matrix(again.data(), rows, width), nullptr, workspace, Matrix(up.data(), rows, width), saved,
                           in, w);
    EXPECT_TRUE(same_bits(again, d_x));
  });
}

TEST(RmsNorm, Backward) {
  for (const int count : {1, 2}) {
    set_threads(count);
    on_every_target(expect_backward);
  }
  set_threads(0);
}

TEST(RmsNorm, BackwardHasTheSameBitsForAnyNumberOfThreads) {
  // Heads as rows, in several chunks.
  constexpr int64_t kRows = 300, kWidth = 24;
  auto x = random_floats(kRows * kWidth, 1), up = random_floats(kRows * kWidth, 2);
  std::vector<float> first_x, first_weight, out(x.size()), inverse(kRows);
  const Matrix in(x.data(), kRows, kWidth);
  ops::rms_norm_forward(Matrix(out.data(), kRows, kWidth), {inverse.data()}, in, nullptr, kEps);
  for (const int count : {1, 2, 3, 4}) {
    set_threads(count);
    std::vector<float> d_x(x.size()), d_weight(kWidth);
    ops::RmsNormWorkspace workspace;
    ops::rms_norm_backward(Matrix(d_x.data(), kRows, kWidth), d_weight.data(), workspace,
                           Matrix(up.data(), kRows, kWidth), {inverse.data()}, in, nullptr);
    if (count == 1) {
      first_x = d_x;
      first_weight = d_weight;
    } else {
      EXPECT_TRUE(same_bits(d_x, first_x));
      EXPECT_TRUE(same_bits(d_weight, first_weight));
    }
  }
  set_threads(0);
}

TEST(RmsNorm, TellsTheFirstRowThatIsNotFinite) {
  set_threads(2);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f}) {
    auto x = random_floats(200 * 12, 1);
    x[99 * 12 + 5] = bad;  // the last row of one thread's share, the first of the other's
    x[100 * 12 + 11] = bad;
    std::vector<float> out(x.size());
    for (int repeat = 0; repeat < 20; ++repeat) {
      EXPECT_EQ(ops::rms_norm_forward(Matrix(out.data(), 200, 12), {}, Matrix(x.data(), 200, 12), nullptr, kEps), 99);
    }
  }
  set_threads(0);
}

}  // namespace
}  // namespace unchain::test
