// y = x Wᵀ + b: the path for few rows (vector kernels) and the one for many (matrix product) against double.
#include "ops/linear.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "ref/linear.h"
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

TEST(Linear, TakesFewRowsInTheWeightsType) {
  constexpr int64_t kIn = 20, kOut = 9;
  auto x = to_bf16s(random_floats(3 * kIn, 1)), w = to_bf16s(random_floats(kOut * kIn, 2));
  std::vector<float> out(3 * kOut);
  ops::linear_forward(Matrix(out.data(), 3, kOut), Matrix(x.data(), 3, kIn), {Matrix(w.data(), kOut, kIn)});
  EXPECT_TRUE(close(out, ref::matmul(widen(x), widen(w), 3, kOut, kIn, true), (kIn + 2) * kEpsF32 * kIn * 16));
}

std::vector<double> sizes_of(std::vector<double> values) {
  for (double& x : values) x = std::abs(x);
  return values;
}

struct BackwardCase {
  int64_t rows, inputs, outputs;
  double scale;
};

template <class T>
void expect_backward(const BackwardCase& c, ops::Store store, std::vector<T> up, std::vector<T> x, std::vector<T> w) {
  const auto rows = static_cast<size_t>(c.rows), in = static_cast<size_t>(c.inputs),
             out = static_cast<size_t>(c.outputs);
  auto expected = ref::linear_backward(widen(up), widen(x), widen(w), rows, in, out);
  auto tolerance = ref::linear_backward(sizes_of(widen(up)), sizes_of(widen(x)), sizes_of(widen(w)), rows, in, out);
  std::vector<float> d_x(rows * in, 0.25f), d_weight(out * in, 0.5f), d_bias(out, 0.75f);
  const auto finish = [](std::vector<double>& e, std::vector<double>& t, double start, double roundings) {
    for (size_t i = 0; i < e.size(); ++i) {
      e[i] += start;
      t[i] = roundings * kEpsF32 * (t[i] + start);
    }
  };
  // Sums of `outputs` and `rows` products, in any order, and one addition to what was there.
  const double n = static_cast<double>(rows);
  finish(expected.d_x, tolerance.d_x, store == ops::Store::accumulate ? 0.25 : 0, static_cast<double>(out) + 1);
  finish(expected.d_weight, tolerance.d_weight, 0.5, n + 1);
  finish(expected.d_bias, tolerance.d_bias, 0.75, std::min(n + 1, 65 + n / 64));
  const Matrix d_y(up.data(), c.rows, c.outputs), input(x.data(), c.rows, c.inputs),
      weight(w.data(), c.outputs, c.inputs);
  ops::linear_backward(Matrix(d_x.data(), c.rows, c.inputs), store,
                       {Matrix(d_weight.data(), c.outputs, c.inputs), d_bias.data()}, d_y, input, weight);
  EXPECT_TRUE(close_each(d_x, expected.d_x, tolerance.d_x));
  EXPECT_TRUE(close_each(d_weight, expected.d_weight, tolerance.d_weight));
  EXPECT_TRUE(close_each(d_bias, expected.d_bias, tolerance.d_bias));
  // What is not wanted is left out.
  std::vector<float> alone(out, 0.75f);
  ops::linear_backward(Matrix(), store, {Matrix(), alone.data()}, d_y, input, weight);
  EXPECT_TRUE(same_bits(alone, d_bias));
}

TEST(Linear, Backward) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const int64_t rows : {1, 3, 7, 33, 200}) {
      for (const int64_t inputs : {1, 17, 64}) {
        for (const int64_t outputs : {1, 15, 130}) {
          for (const double scale : {0.0, 1.0, 1e10}) {
            SCOPED_TRACE(testing::Message() << rows << " rows, " << inputs << " -> " << outputs << ", scale " << scale);
            const auto up = random_floats(static_cast<size_t>(rows * outputs), 1, scale);
            const auto x = random_floats(static_cast<size_t>(rows * inputs), 2);
            const auto w = random_floats(static_cast<size_t>(outputs * inputs), 3);
            for (const ops::Store store : {ops::Store::overwrite, ops::Store::accumulate}) {
              expect_backward<float>({rows, inputs, outputs, scale}, store, up, x, w);
              expect_backward<bf16>({rows, inputs, outputs, scale}, store, to_bf16s(up), to_bf16s(x), to_bf16s(w));
            }
          }
        }
      }
    }
  }
  set_threads(0);
}

TEST(Linear, BackwardSizesThatDoNotFit) {
  std::vector<float> x(100);
  std::vector<bf16> narrow(100);
  const Matrix d_y(x.data(), 4, 3), in(x.data(), 4, 5), w(x.data(), 3, 5);
  const auto call = [&](const Matrix& up, const Matrix& input, const Matrix& weight) {
    return [=] { ops::linear_backward(Matrix(), ops::Store::overwrite, {}, up, input, weight); };
  };
  expect_error(call(Matrix(x.data(), 5, 3), in, w), ErrorCode::shape, {"d_y [5, 3]"});
  expect_error(call(d_y, Matrix(x.data(), 4, 6), w), ErrorCode::shape, {"x [4, 6]"});
  expect_error(call(d_y, in, Matrix(x.data(), 2, 5)), ErrorCode::shape, {"weight [2, 5]"});
  expect_error(call(d_y, Matrix(narrow.data(), 4, 5), w), ErrorCode::shape, {"bf16"});
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
