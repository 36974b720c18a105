#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

constexpr int64_t kHuge = INT64_MAX;

TEST(Shapes, Counts) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({0}), 0);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({kHuge}), kHuge);
  EXPECT_EQ(to_string(Shape{576, 1536}), "[576, 1536]");
  EXPECT_EQ(byte_count(DType::f32, {2, 3}), 24);
  EXPECT_EQ(byte_count(DType::bf16, {}), 2);
  EXPECT_EQ(byte_count(DType::q8_0, {2, 64}), 136);
  EXPECT_EQ(byte_count(DType::q4_k, {3, 256}), 432);
  EXPECT_EQ(byte_count(DType::q4_k, {3, 0}), 0);
}

TEST(Shapes, Overflow) {
  const auto shape = ErrorCode::shape;
  expect_error([] { element_count({-1}); }, shape, {"[-1]", "negative"});
  expect_error([] { element_count({2, -3}); }, shape, {"[2, -3]"});
  expect_error([] { element_count({int64_t{1} << 32, int64_t{1} << 31}); }, shape, {"2^63"});
  expect_error([] { element_count({kHuge, kHuge, kHuge}); }, shape, {"2^63"});
  expect_error([] { byte_count(DType::f32, {int64_t{1} << 61}); }, shape, {"more bytes"});
  expect_error([] { byte_count(DType::q8_0, {2, 33}); }, shape, {"[2, 33]", "q8_0", "32"});
  expect_error([] { byte_count(DType::q8_0, {}); }, shape, {"q8_0"});
}

TEST(Buffers, AlignedAndGrowing) {
  Buffer<float> buffer;
  EXPECT_EQ(buffer.size(), 0u);
  buffer.reserve(3);
  EXPECT_EQ(buffer.size(), 3u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  buffer[2] = 5;
  buffer.reserve(2);
  EXPECT_EQ(buffer[2], 5);
  EXPECT_EQ(buffer.span().size(), 3u);
  Buffer<float> moved = std::move(buffer);
  EXPECT_EQ(moved[2], 5);
}

}  // namespace
}  // namespace unchain::test
