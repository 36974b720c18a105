// Copies, zeros and column sums of rows.
#include "ops/rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

TEST(Rows, AddsRowsBetweenOthers) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const int64_t rows : {0, 1, 3, 100}) {
      for (const int64_t width : {1, 33, 1000}) {
        const int64_t stride = width + 3;
        auto out = random_floats(static_cast<size_t>(rows * stride), 1);
        const auto before = out;
        auto x = random_floats(static_cast<size_t>(rows * width), 2);
        ops::add_rows(Matrix(out.data(), rows, width, stride), Matrix(x.data(), rows, width));
        for (int64_t i = 0; i < rows * stride; ++i) {
          const int64_t t = i / stride, c = i % stride;
          const auto at = static_cast<size_t>(i);
          ASSERT_EQ(out[at], c < width ? before[at] + x[static_cast<size_t>(t * width + c)] : before[at]);
        }
      }
    }
  }
  set_threads(0);
  std::vector<float> x(12);
  expect_error([&] { ops::add_rows(Matrix(x.data(), 2, 3), Matrix(x.data() + 6, 3, 2)); }, ErrorCode::shape,
               {"[3, 2]", "[2, 3]"});
}

TEST(Rows, CopiesEachTypeIntoEach) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const int64_t rows : {0, 1, 3, 40}) {
      for (const int64_t width : {1, 7, 33, 1000}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << width);
        const int64_t stride = width + 3;
        auto wide = random_floats(static_cast<size_t>(rows * stride), 1, 1e10);
        auto narrow = to_bf16s(wide);
        const Matrix from(wide.data(), rows, width, stride), from16(narrow.data(), rows, width, stride);
        std::vector<float> out(static_cast<size_t>(rows * width)), widened(out);
        std::vector<bf16> out16(out.size()), narrowed(out.size());
        ops::copy_rows(Matrix(out.data(), rows, width), from);
        ops::copy_rows(Matrix(widened.data(), rows, width), from16);
        ops::copy_rows(Matrix(out16.data(), rows, width), from16);
        ops::copy_rows(Matrix(narrowed.data(), rows, width), from);
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t i = 0; i < width; ++i) {
            const auto at = static_cast<size_t>(t * width + i);
            const float x = wide[static_cast<size_t>(t * stride + i)];
            ASSERT_EQ(out[at], x);
            ASSERT_EQ(widened[at], to_f32(to_bf16(x)));
            ASSERT_EQ(out16[at].bits, to_bf16(x).bits);
            ASSERT_EQ(narrowed[at].bits, to_bf16(x).bits);
          }
        }
      }
    }
  }
  set_threads(0);
}

TEST(Rows, KeepWhatLiesBetween) {
  std::vector<float> out(3 * 5, -77), x(3 * 2, 1);
  ops::copy_rows(Matrix(out.data(), 3, 2, 5), Matrix(x.data(), 3, 2));
  ops::fill_zero(Matrix(out.data(), 3, 1, 5));
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], i % 5 == 0 ? 0.0f : (i % 5 == 1 ? 1.0f : -77.0f)) << i;
  }
}

TEST(Rows, ColumnSums) {
  std::vector<float> first;
  for (const int count : {1, 2, 3}) {
    set_threads(count);
    for (const int64_t rows : {0, 1, 63, 64, 65, 300}) {
      for (const int64_t width : {1, 31, 255, 256, 257, 700}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << width);
        const auto wide = random_floats(static_cast<size_t>(rows * width), 1, 1e6);
        const auto narrow = to_bf16s(wide);
        for (const DType type : {DType::f32, DType::bf16}) {
          const std::vector<double> values = type == DType::bf16 ? widen(narrow) : widen(wide);
          std::vector<double> expected(static_cast<size_t>(width), 0.5), tolerance(expected);
          for (size_t i = 0; i < values.size(); ++i) {
            expected[i % static_cast<size_t>(width)] += values[i];
            tolerance[i % static_cast<size_t>(width)] += std::abs(values[i]);
          }
          // As rows.h says: 64 additions in a block, one for each block, one to what is there.
          for (double& t : tolerance) t *= (65 + static_cast<double>(rows) / 64) * kEpsF32;
          std::vector<float> out(static_cast<size_t>(width), 0.5f);
          ops::add_column_sums(out.data(), type == DType::bf16 ? Matrix(const_cast<bf16*>(narrow.data()), rows, width)
                                                               : Matrix(const_cast<float*>(wide.data()), rows, width));
          EXPECT_TRUE(close_each(out, expected, tolerance));
          if (rows != 300 || width != 700 || type != DType::f32) continue;
          if (first.empty())
            first = out;
          else
            EXPECT_TRUE(same_bits(out, std::vector<float>(first))) << count << " threads";
        }
      }
    }
  }
  set_threads(0);
}

TEST(Rows, SizesThatDoNotFit) {
  std::vector<float> x(20);
  expect_error([&] { ops::copy_rows(Matrix(x.data(), 2, 3), Matrix(x.data() + 10, 3, 2)); }, ErrorCode::shape,
               {"[3, 2] into [2, 3]"});
}

}  // namespace
}  // namespace unchain::test
