// y = x Wᵀ + b: the path for few rows (vector kernels) and the one for many (matrix product) against double.
#include "ops/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "ref/matmul.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/simd_targets.h"
#include "support/temporary_folder.h"
#include "tensor/tensor.h"

namespace unchain::test {
namespace {

// A weight in the packed order, in memory of its own.
template <class T>
ops::PackedMatrix pack(Buffer<T>& memory, T* w, DType type, int64_t outputs, int64_t inputs) {
  ops::PackedMatrix packed{nullptr, type, outputs, inputs};
  memory = Buffer<T>(static_cast<size_t>(packed.panels() * packed.panel_elements()));
  std::fill(memory.data(), memory.data() + memory.size(), T{});
  for (int64_t panel = 0; panel < packed.panels(); ++panel) {
    const int64_t first = panel * 64, rows = std::min<int64_t>(64, outputs - first);
    ops::pack_panel(memory.data() + panel * packed.panel_elements(), Matrix(w + first * inputs, rows, inputs));
  }
  packed.data = memory.data();
  return packed;
}

void few_and_many_rows(bool packed, int count) {
  set_threads(count);
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 8, 33}) {
      for (const int64_t inputs : {3, 64, 97}) {
        for (const int64_t outputs : {1, 5, 130, 700}) {
          for (const bool with_bias : {false, true}) {
            if (packed && rows > 4 && !ops::prefers_packed(type, outputs, inputs)) continue;
            SCOPED_TRACE(testing::Message() << rows << " rows, " << inputs << " -> " << outputs << ", "
                                            << info(type).name << ", bias " << with_bias);
            auto x = random_floats(static_cast<size_t>(rows * inputs), 1);
            auto w = random_floats(static_cast<size_t>(outputs * inputs), 2);
            const auto bias = random_floats(static_cast<size_t>(outputs), 3);
            auto w16 = to_bf16s(w);
            if (type == DType::bf16) w = through_bf16(w);
            // x as activation_type() says: f32 for few rows even with bf16 weights.
            const bool narrow = ops::activation_type(type, rows) == DType::bf16;
            EXPECT_EQ(narrow, type == DType::bf16 && rows > 4);
            auto x16 = to_bf16s(x);
            if (narrow) x = through_bf16(x);
            std::vector<float> out(static_cast<size_t>(rows * outputs));
            ops::Linear linear{
                type == DType::bf16 ? Matrix(w16.data(), outputs, inputs) : Matrix(w.data(), outputs, inputs),
                with_bias ? bias.data() : nullptr};
            Buffer<float> panels;
            Buffer<bf16> panels16;
            if (packed) {
              linear.packed = type == DType::bf16 ? pack(panels16, w16.data(), type, outputs, inputs)
                                                  : pack(panels, w.data(), type, outputs, inputs);
              linear.weight = {};
            }
            ops::linear_forward(Matrix(out.data(), rows, outputs),
                                narrow ? Matrix(x16.data(), rows, inputs) : Matrix(x.data(), rows, inputs), linear);
            auto expected = ref::matmul(widen(x), widen(w), rows, outputs, inputs, true);
            auto size_x = widen(x), size_w = widen(w);
            for (double& v : size_x) v = std::abs(v);
            for (double& v : size_w) v = std::abs(v);
            auto tolerance = ref::matmul(size_x, size_w, rows, outputs, inputs, true);
            for (size_t i = 0; i < expected.size(); ++i) {
              const double b = with_bias ? static_cast<double>(bias[i % bias.size()]) : 0;
              expected[i] += b;
              // K + 1 roundings at most, in any order, and one for the bias.
              tolerance[i] = static_cast<double>(inputs + 2) * kEpsF32 * (tolerance[i] + std::abs(b));
            }
            EXPECT_TRUE(close_each(out, expected, tolerance));
          }
        }
      }
    }
  }
  set_threads(0);
}

TEST(Linear, FewAndManyRows) {
  for (const int count : {1, 2}) few_and_many_rows(false, count);
}

TEST(Linear, PackedWeights) {
  on_every_target([] {
    for (const int count : {1, 2}) few_and_many_rows(true, count);
  });
}

TEST(Linear, SeveralProductsOfOneInputEqualEachAlone) {
  // Shares of the stacked weights that begin and end inside a weight, on the boundary, and weights smaller than a
  // share.
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const int64_t rows : {1, 3, 4, 5, 20}) {
        constexpr int64_t kIn = 700;
        const int64_t sizes[] = {130, 1, 97};
        auto x = random_floats(static_cast<size_t>(rows * kIn), 1);
        auto x16 = to_bf16s(x);
        const Matrix in = ops::activation_type(type, rows) == DType::bf16 ? Matrix(x16.data(), rows, kIn)
                                                                          : Matrix(x.data(), rows, kIn);
        std::vector<std::vector<float>> w, bias, alone, together;
        std::vector<std::vector<bf16>> w16;
        std::vector<ops::Linear> linears;
        for (const int64_t n : sizes) {
          w.push_back(random_floats(static_cast<size_t>(n * kIn), 2 + w.size()));
          w16.push_back(to_bf16s(w.back()));
          bias.push_back(random_floats(static_cast<size_t>(n), 9));
          alone.emplace_back(static_cast<size_t>(rows * n), -77.0f);
          together.push_back(alone.back());
          linears.push_back({type == DType::bf16 ? Matrix(w16.back().data(), n, kIn) : Matrix(w.back().data(), n, kIn),
                             n == 1 ? nullptr : bias.back().data()});
        }
        for (size_t i = 0; i < 3; ++i) ops::linear_forward(Matrix(alone[i].data(), rows, sizes[i]), in, linears[i]);
        ops::linear_forward(in, {{Matrix(together[0].data(), rows, sizes[0]), linears[0]},
                                 {Matrix(together[1].data(), rows, sizes[1]), linears[1]},
                                 {Matrix(together[2].data(), rows, sizes[2]), linears[2]}});
        for (size_t i = 0; i < 3; ++i) {
          // The same products, but rows may be taken in other groups of four: K + 2 roundings of Σ|x w| on each side.
          SCOPED_TRACE(testing::Message() << rows << " rows, " << info(type).name << ", product " << i);
          EXPECT_TRUE(close(together[i], widen(alone[i]), 2 * (kIn + 2) * kEpsF32 * kIn));
        }
      }
    }
  }
  set_threads(0);
}

TEST(Linear, RowsAreIndependentOfTheirNumber) {
  // The first rows of a long input equal a short input to rounding: decoding agrees with prefill.
  constexpr int64_t kIn = 48, kOut = 30;
  auto x = random_floats(9 * kIn, 1), w = random_floats(kOut * kIn, 2);
  const ops::Linear linear{Matrix(w.data(), kOut, kIn)};
  std::vector<float> many(9 * kOut), few(3 * kOut);
  ops::linear_forward(Matrix(many.data(), 9, kOut), Matrix(x.data(), 9, kIn), linear);
  ops::linear_forward(Matrix(few.data(), 3, kOut), Matrix(x.data(), 3, kIn), linear);
  many.resize(few.size());
  EXPECT_TRUE(close(few, widen(many), 2 * kIn * kEpsF32 * kIn * 4));
}

TEST(Linear, StridedRows) {
  // Rows of x further apart than their width, and out a block of columns of a wider matrix.
  constexpr int64_t kIn = 10, kOut = 6;
  for (const int64_t rows : {3, 7}) {
    auto x = random_floats(static_cast<size_t>(rows * 15), 1), w = random_floats(kOut * kIn, 2);
    std::vector<float> out(static_cast<size_t>(rows * 20), -77);
    ops::linear_forward(Matrix(out.data() + 4, rows, kOut, 20), Matrix(x.data(), rows, kIn, 15),
                        {Matrix(w.data(), kOut, kIn)});
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t o = 0; o < 20; ++o) {
        double expected = -77;
        if (o >= 4 && o < 4 + kOut) {
          expected = 0;
          for (int64_t i = 0; i < kIn; ++i) {
            expected += static_cast<double>(x[static_cast<size_t>(t * 15 + i)]) *
                        static_cast<double>(w[static_cast<size_t>((o - 4) * kIn + i)]);
          }
        }
        EXPECT_NEAR(static_cast<double>(out[static_cast<size_t>(t * 20 + o)]), expected, 1e-5) << t << " " << o;
      }
    }
  }
}

TEST(Linear, SizesThatDoNotFit) {
  std::vector<float> x(200), w(200), out(200);
  const ops::Linear linear{Matrix(w.data(), 6, 10)};
  const auto call = [&](const Matrix& o, const Matrix& i) { return [=] { ops::linear_forward(o, i, linear); }; };
  expect_error(call(Matrix(out.data(), 5, 6), Matrix(x.data(), 5, 9)), ErrorCode::shape, {"[5, 9]", "[6, 10]"});
  expect_error(call(Matrix(out.data(), 4, 6), Matrix(x.data(), 5, 10)), ErrorCode::shape, {"[4, 6]"});
  expect_error(call(Matrix(out.data(), 5, 7), Matrix(x.data(), 5, 10)), ErrorCode::shape, {"[5, 7]"});
  std::vector<bf16> narrow(200);
  expect_error(call(Matrix(out.data(), 5, 6), Matrix(narrow.data(), 5, 10)), ErrorCode::shape, {"bf16"});
}

}  // namespace
}  // namespace unchain::test
