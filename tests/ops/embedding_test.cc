// Rows of a table and their gradient against double.
#include "ops/embedding.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "ref/embedding.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

constexpr int64_t kVocabulary = 9;

// Ids that come often, once and never.
std::vector<int32_t> some_ids(size_t count) {
  std::vector<int32_t> ids;
  for (size_t t = 0; t < count; ++t) ids.push_back(t % 3 == 0 ? 8 : static_cast<int32_t>(t % 7));
  return ids;
}

TEST(Embedding, Forward) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const int64_t width : {1, 15, 16, 17, 50}) {
      for (const size_t rows : {size_t{0}, size_t{1}, size_t{40}}) {
        for (const float scale : {1.0f, 3.3f}) {
          auto table = random_floats(static_cast<size_t>(kVocabulary * width), 1);
          auto table16 = to_bf16s(table);
          const auto ids = some_ids(rows);
          const auto t = static_cast<int64_t>(rows);
          const double s = static_cast<double>(scale);
          const auto expected = ref::embedding(widen(table), ids, static_cast<size_t>(width), s);
          const auto expected16 = ref::embedding(widen(table16), ids, static_cast<size_t>(width), s);
          // One product, and one rounding more to bf16; without a scale all is exact but that.
          const double once = scale == 1 ? 0 : kEpsF32;
          const auto check = [&](const Matrix& from, const std::vector<double>& wanted) {
            std::vector<double> tolerance(wanted), tolerance16(wanted);
            for (size_t i = 0; i < wanted.size(); ++i) {
              tolerance[i] = once * std::abs(wanted[i]);
              tolerance16[i] = (once + kEpsBf16 * (1 + once)) * std::abs(wanted[i]);
            }
            std::vector<float> out(wanted.size());
            std::vector<bf16> out16(wanted.size());
            ops::embedding_forward(Matrix(out.data(), t, width), from, ids, scale);
            ops::embedding_forward(Matrix(out16.data(), t, width), from, ids, scale);
            EXPECT_TRUE(close_each(out, wanted, tolerance));
            EXPECT_TRUE(close_each(out16, wanted, tolerance16));
          };
          check(Matrix(table.data(), kVocabulary, width), expected);
          check(Matrix(table16.data(), kVocabulary, width), expected16);
        }
      }
    }
  }
  set_threads(0);
}

TEST(Embedding, Backward) {
  for (const int64_t width : {1, 15, 16, 17, 33, 100}) {
    for (const double size : {1.0, 1e8}) {
      const auto ids = some_ids(50);
      auto up = random_floats(static_cast<size_t>(50 * width), 2, size);
      const auto before = random_floats(static_cast<size_t>(kVocabulary * width), 3);
      auto expected = ref::embedding_backward(widen(up), ids, kVocabulary, static_cast<size_t>(width), 1.5);
      std::vector<double> sizes;
      for (const float x : up) sizes.push_back(std::abs(static_cast<double>(x)));
      auto tolerance = ref::embedding_backward(sizes, ids, kVocabulary, static_cast<size_t>(width), 1.5);
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += static_cast<double>(before[i]);
        // At most 50 additions of products, each rounded twice.
        tolerance[i] = 100 * kEpsF32 * (tolerance[i] + std::abs(static_cast<double>(before[i])));
      }
      std::vector<float> first;
      for (const int count : {1, 2, 3}) {
        set_threads(count);
        std::vector<float> table = before;
        ops::embedding_backward(Matrix(table.data(), kVocabulary, width), Matrix(up.data(), 50, width), ids, 1.5f);
        EXPECT_TRUE(close_each(table, expected, tolerance));
        if (count == 1)
          first = table;
        else
          EXPECT_TRUE(same_bits(table, first));
      }
    }
  }
  set_threads(0);
}

TEST(Embedding, BadArguments) {
  std::vector<float> x(60), table(60);
  const auto call = [&](std::vector<int32_t> ids, int64_t width) {
    return [&, ids, width] { ops::embedding_forward(Matrix(x.data(), 2, width), Matrix(table.data(), 4, 5), ids); };
  };
  expect_error(call({0, 4}, 5), ErrorCode::usage, {"id 4", "4 rows"});
  expect_error(call({-1, 0}, 5), ErrorCode::usage, {"id -1"});
  expect_error(call({0}, 5), ErrorCode::shape, {"[2, 5]", "1 ids"});
  expect_error(call({0, 1}, 6), ErrorCode::shape, {"[2, 6]"});
  const std::vector<int32_t> ids = {0, 7};
  expect_error([&] { ops::embedding_backward(Matrix(table.data(), 4, 5), Matrix(x.data(), 2, 5), ids); },
               ErrorCode::usage, {"id 7"});
}

}  // namespace
}  // namespace unchain::test
