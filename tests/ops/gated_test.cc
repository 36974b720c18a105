// Gated activations over whole matrices; the kernels' accuracy is tested in tests/simd.
#include "ops/gated.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "ref/gated.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/simd_targets.h"
#include "support/temporary_folder.h"

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

// One case of the backward pass; in f32 with outputs over inputs as well.
void expect_backward(int64_t rows, int64_t width, double spread, ops::Activation activation) {
  auto gate = random_floats(static_cast<size_t>(rows * width), 1, spread);
  auto up = random_floats(gate.size(), 2), d_out = random_floats(gate.size(), 3);
  std::vector<double> gate_expected, up_expected, gate_tolerance, up_tolerance, gate_tolerance16, up_tolerance16;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = static_cast<double>(gate[i]), u = static_cast<double>(up[i]), d = static_cast<double>(d_out[i]);
    const bool silu = activation == ops::Activation::silu;
    gate_expected.push_back(d * u * (silu ? ref::silu_slope(g) : ref::gelu_tanh_slope(g)));
    up_expected.push_back(d * (silu ? ref::silu(g) : ref::gelu_tanh(g)));
    // As simd/gradients.h says, of σ and g·σ·(1 − σ)·y'; the rounding of gelu's argument y moves both by 5ε·|y| of
    // themselves, |y| ≤ 88 where they count, and y' ≤ 6·y/g there. Beyond, at most 1e-36 of |d u g|.
    const double slope = 1 + (silu ? std::min(std::abs(g), 1.0) : std::min(2 * std::abs(g), 6.0));
    const double relative = 1.5e-6 + (silu ? 0 : 5 * kEpsF32 * 8), size = std::abs(d * u) * slope;
    const double up_size = std::abs(up_expected.back()) * (silu ? 1 : 1 + 88 * 5 * kEpsF32 / 1e-6);
    const auto narrow = [](double expected, double inexact) {
      return inexact + kEpsBf16 * (std::abs(expected) + inexact);
    };
    gate_tolerance.push_back(relative * size + 1e-30);
    up_tolerance.push_back(1e-6 * up_size + 1e-30 * (1 + std::abs(g)));
    gate_tolerance16.push_back(narrow(gate_expected.back(), 1.5e-5 * size + gate_tolerance.back()));
    up_tolerance16.push_back(narrow(up_expected.back(), 1.5e-5 * std::abs(up_expected.back()) + up_tolerance.back()));
  }
  const auto view = [&](auto& data) { return Matrix(data.data(), rows, width); };
  std::vector<float> d_gate(gate.size()), d_up(gate.size());
  std::vector<bf16> d_gate16(gate.size()), d_up16(gate.size());
  ops::gated_backward(view(d_gate), view(d_up), view(d_out), view(gate), view(up), activation);
  EXPECT_TRUE(close_each(d_gate, gate_expected, gate_tolerance));
  EXPECT_TRUE(close_each(d_up, up_expected, up_tolerance));
  ops::gated_backward(view(d_gate16), view(d_up16), view(d_out), view(gate), view(up), activation);
  EXPECT_TRUE(close_each(d_gate16, gate_expected, gate_tolerance16));
  EXPECT_TRUE(close_each(d_up16, up_expected, up_tolerance16));
  ops::gated_backward(view(gate), view(up), view(d_out), view(gate), view(up), activation);
  EXPECT_TRUE(same_bits(gate, d_gate));
  EXPECT_TRUE(same_bits(up, d_up));
}

TEST(Gated, Backward) {
  on_every_target([] {
    for (const int count : {1, 2}) {
      set_threads(count);
      for (const int64_t rows : {1, 33}) {
        for (const int64_t width : {1, 3, 7, 15, 16, 17, 50}) {
          for (const double spread : {0.0, 1e-3, 3.0, 100.0, 1e8, 1e25}) {
            SCOPED_TRACE(testing::Message() << rows << " x " << width << ", spread " << spread);
            expect_backward(rows, width, spread, ops::Activation::silu);
            expect_backward(rows, width, spread, ops::Activation::gelu_tanh);
          }
        }
      }
    }
  });
  set_threads(0);
}

TEST(Gated, BackwardKeepsNaNs) {
  for (const auto activation : {ops::Activation::silu, ops::Activation::gelu_tanh}) {
    std::vector<float> gate = {1, NAN, -1}, up = {1, 1, 1}, d_out = {1, 1, 1}, d_gate(3), d_up(3);
    const auto view = [&](auto& data) { return Matrix(data.data(), 1, 3); };
    ops::gated_backward(view(d_gate), view(d_up), view(d_out), view(gate), view(up), activation);
    EXPECT_TRUE(std::isnan(d_gate[1]) && std::isnan(d_up[1]));
    EXPECT_FALSE(std::isnan(d_gate[0]) || std::isnan(d_up[2]));
  }
}

TEST(Gated, BackwardSizesThatDoNotFit) {
  std::vector<float> x(100);
  std::vector<bf16> narrow(100);
  const Matrix m(x.data(), 4, 5);
  const auto call = [&](const Matrix& d_gate, const Matrix& up) {
    return [=] { ops::gated_backward(d_gate, m, m, m, up, ops::Activation::silu); };
  };
  expect_error(call(Matrix(x.data(), 4, 6), m), ErrorCode::shape, {"[4, 6]"});
  expect_error(call(m, Matrix(x.data(), 3, 5)), ErrorCode::shape, {"[3, 5]"});
  expect_error(call(Matrix(narrow.data(), 4, 5), m), ErrorCode::shape, {"gate backward"});
}

}  // namespace
}  // namespace unchain::test
