// Gated activations over whole matrices; the kernels' accuracy is tested in tests/simd.
#include "ops/gated.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "ref/gated.h"
#include "support/compare.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

TEST(Gated, BothActivationsAndTypes) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const int64_t rows : {1, 7, 33}) {
      for (const int64_t width : {1, 17, 52}) {
        auto gate = random_floats(static_cast<size_t>(rows * width), 1, 3);
        auto up = random_floats(gate.size(), 2);
        for (const auto activation : {ops::Activation::silu, ops::Activation::gelu_tanh}) {
          std::vector<double> expected(gate.size()), tolerance(gate.size()), tolerance_bf16(gate.size());
          for (size_t i = 0; i < gate.size(); ++i) {
            const double g = static_cast<double>(gate[i]), u = static_cast<double>(up[i]);
            expected[i] = (activation == ops::Activation::silu ? ref::silu(g) : ref::gelu_tanh(g)) * u;
            // e^−y to 4e-7, four roundings, and for gelu the rounding of y itself: |y|·5ε with |y| ≤ 88 where it
            // counts.
            tolerance[i] = 7e-7 * std::abs(expected[i]) + 88 * 5 * kEpsF32 * std::abs(expected[i]) + 1e-30;
            tolerance_bf16[i] = tolerance[i] + kEpsBf16 * (std::abs(expected[i]) + tolerance[i]);
          }
          std::vector<float> out(gate.size());
          std::vector<bf16> narrow(gate.size());
          const Matrix g(gate.data(), rows, width), u(up.data(), rows, width);
          ops::gated_forward(Matrix(out.data(), rows, width), g, u, activation);
          EXPECT_TRUE(close_each(out, expected, tolerance));
          ops::gated_forward(Matrix(narrow.data(), rows, width), g, u, activation);
          EXPECT_TRUE(close_each(narrow, expected, tolerance_bf16));
          std::vector<float> same = gate;
          const Matrix in_place(same.data(), rows, width);
          ops::gated_forward(in_place, in_place, u, activation);
          EXPECT_TRUE(same_bits(same, out));
        }
      }
    }
  }
  set_threads(0);
}

}  // namespace
}  // namespace unchain::test
