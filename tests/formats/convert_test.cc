#include "formats/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using formats::convert;
using formats::decode;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

Tensor tensor_of(DType type, Shape shape, const std::string& bytes) {
  auto owned = std::make_shared<std::string>(bytes);
  return {"x", type, std::move(shape), std::as_bytes(std::span(owned->data(), owned->size())), owned};
}

Tensor f32_tensor(Shape shape, const std::vector<float>& values) {
  return tensor_of(DType::f32, std::move(shape),
                   std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

std::vector<float> values_of(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  decode(tensor, 0, tensor.elements(), values.data());
  return values;
}

nlohmann::json golden() {
  return nlohmann::json::parse(read_file(std::string(UNCHAIN_TEST_DATA) + "/quant_blocks.json"));
}

TEST(Convert, BlocksDecodeAsTheGgufPackageDecodesThem) {
  const nlohmann::json all = golden();
  int types = 0;
  for (const auto& [name, one] : all["decoded"].items()) {
    const auto want = one["values"].get<std::vector<float>>();
    const Tensor tensor = tensor_of(parse_dtype(name), {static_cast<int64_t>(want.size())}, from_hex(one["bytes"]));
    const std::vector<float> got = values_of(tensor);
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << name << " at " << i;
    // Any range on blocks gives the same numbers, in bf16 rounded once.
    const int64_t block = info(tensor.type).elements;
    std::vector<float> part(static_cast<size_t>(block));
    decode(tensor, block, block, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), want.begin() + block)) << name;
    std::vector<bf16> rounded(want.size());
    decode(tensor, 0, tensor.elements(), rounded.data());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(rounded[i].bits, to_bf16(want[i]).bits) << name << " at " << i;
    ++types;
  }
  EXPECT_EQ(types, 5);
}

TEST(Convert, Q8IsEncodedAsTheGgufPackageEncodesIt) {
  const nlohmann::json one = golden()["encoded_q8_0"];
  const auto values = one["values"].get<std::vector<float>>();
  const Tensor q8 = convert(f32_tensor({static_cast<int64_t>(values.size() / 32), 32}, values), DType::q8_0);
  const std::string want = from_hex(one["bytes"]);
  ASSERT_EQ(q8.bytes.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_EQ(std::to_integer<uint8_t>(q8.bytes[i]), static_cast<uint8_t>(want[i])) << "byte " << i;
}

TEST(Convert, EveryHalfDecodesExactly) {
  std::string bytes;
  for (uint32_t bits = 0; bits < 65536; ++bits) bytes += {static_cast<char>(bits), static_cast<char>(bits >> 8)};
  const std::vector<float> got = values_of(tensor_of(DType::f16, {65536}, bytes));
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    const float value = got[bits];
    if (exponent == 31) {
      EXPECT_TRUE(fraction ? std::isnan(value) : value == sign * INFINITY) << bits;
    } else {
      const double want = sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
      EXPECT_EQ(static_cast<double>(value), want) << bits;
      EXPECT_EQ(std::signbit(value), std::signbit(want)) << bits;
    }
  }
}

TEST(Convert, PlainTypes) {
  const std::vector<float> values = {0, -0.0f, 1, -2.5f, 1e-30f, 3e38f};
  EXPECT_EQ(values_of(f32_tensor({2, 3}, values)), values);
  const std::vector<double> doubles = {0.1, -1e300, 5};
  const std::string bytes(reinterpret_cast<const char*>(doubles.data()), 24);
  const std::vector<float> got = values_of(tensor_of(DType::f64, {3}, bytes));
  EXPECT_EQ(got[0], 0.1f);
  EXPECT_EQ(got[1], -INFINITY);
  const Tensor half = convert(f32_tensor({6}, values), DType::bf16);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(half.bf16s()[i].bits, to_bf16(values[i]).bits);
  EXPECT_EQ(half.shape, (Shape{6}));
  EXPECT_EQ(half.name, "x");
}

// More than one chunk and thread, of odd length: ranges meet without a gap.
TEST(Convert, LargeTensors) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(32 * 40001);
  for (float& v : values) v = normal(random);
  const Tensor source = f32_tensor({40001, 32}, values);
  const std::vector<float> halves = values_of(convert(source, DType::f16));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(halves[i], f16_to_f32(f32_to_f16(values[i])));
  const Tensor q8 = convert(source, DType::q8_0);
  const std::vector<float> back = values_of(q8);
  for (size_t row = 0; row < 40001; ++row) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[32 * row + i]));
    // Half a step of the exact scale, and 127 times the rounding of the scale to f16.
    const float bound = largest / 127 * 0.5001f + largest * 0x1p-11f;
    for (size_t i = 0; i < 32; ++i) ASSERT_NEAR(back[32 * row + i], values[32 * row + i], bound);
  }
  const std::vector<float> again = values_of(convert(convert(q8, DType::f32), DType::q8_0));
  for (size_t i = 0; i < back.size(); ++i) ASSERT_NEAR(again[i], back[i], std::fabs(back[i]) * 0x1p-9f);
}

TEST(Convert, SameTypeSharesTheBytes) {
  const Tensor x = f32_tensor({2}, {1, 2});
  EXPECT_EQ(convert(x, DType::f32).bytes.data(), x.bytes.data());
  const Tensor q = tensor_of(DType::q4_0, {32}, std::string(18, 'a'));
  EXPECT_EQ(convert(q, DType::q4_0).bytes.data(), q.bytes.data());
}

TEST(Convert, EmptyTensors) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0}) {
    const Tensor none = convert(f32_tensor({0, 32}, {}), type);
    EXPECT_EQ(none.bytes.size(), 0u);
    EXPECT_TRUE(values_of(none).empty());
  }
}

TEST(Convert, TinyNumbersInQ8AreZero) {
  const Tensor q8 = convert(f32_tensor({32}, std::vector<float>(32, 1e-40f)), DType::q8_0);
  for (const float v : values_of(q8)) EXPECT_EQ(v, 0.0f);
}

TEST(Convert, Refuses) {
  const Tensor q = tensor_of(DType::q8_0, {64}, std::string(68, 'a'));
  std::vector<float> out(64);
  const auto shape = ErrorCode::shape;
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{
           {-32, 32}, {0, -32}, {0, 96}, {96, 0}, {16, 32}, {0, 16}, {32, INT64_MAX - 31}}) {
    expect_error([&] { decode(q, first, count, out.data()); }, shape, {"tensor x", "blocks of 32"});
  }
  expect_error([&] { decode(tensor_of(DType::f32, {64}, "abcd"), 0, 64, out.data()); }, shape,
               {"tensor x", "4 bytes", "[64]"});
  expect_error([&] { decode(tensor_of(DType::i32, {1}, "abcd"), 0, 1, out.data()); }, ErrorCode::unsupported,
               {"tensor x", "i32"});
  expect_error([&] { convert(q, DType::q4_1); }, ErrorCode::unsupported, {"tensor x", "q4_1", "q8_0"});
  expect_error([&] { convert(f32_tensor({4, 8}, std::vector<float>(32)), DType::q8_0); }, shape, {"[4, 8]", "32"});
  std::vector<float> large(32, 70000.0f);
  expect_error([&] { convert(f32_tensor({32}, large), DType::f16); }, ErrorCode::numeric,
               {"tensor x", "70000", "f16", "bf16"});
  large.assign(32, 1e8f);
  expect_error([&] { convert(f32_tensor({32}, large), DType::q8_0); }, ErrorCode::numeric,
               {"tensor x", "100000000", "q8_0"});
  large.assign(32, NAN);
  expect_error([&] { convert(f32_tensor({32}, large), DType::q8_0); }, ErrorCode::numeric, {"tensor x", "nan"});
}

}  // namespace
}  // namespace unchain::test
