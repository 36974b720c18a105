#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

// The definition of a small float type: sign, exponent field, fraction field. NaN and infinity apart.
double ref_value(uint32_t bits, int exponent_bits, int fraction_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = static_cast<int>(bits & ((1u << fraction_bits) - 1));
  const double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                     : std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  return bits >> (exponent_bits + fraction_bits) ? -value : value;
}

// The nearest of all finite values (ties to the even bit pattern); beyond half a step above the largest: infinity.
// `table` holds the non-negative finite values, ascending, so that an index is a bit pattern.
uint16_t ref_round(double magnitude, const std::vector<double>& table) {
  const double step = table.back() - table[table.size() - 2];
  if (magnitude >= table.back() + step / 2) return static_cast<uint16_t>(table.size());
  const auto above = std::lower_bound(table.begin(), table.end(), magnitude);
  if (above == table.end()) return static_cast<uint16_t>(table.size() - 1);
  if (above == table.begin()) return 0;
  const auto index = static_cast<size_t>(above - table.begin());
  const double up = table[index] - magnitude, down = magnitude - table[index - 1];
  if (up == down) return static_cast<uint16_t>(index % 2 == 0 ? index : index - 1);
  return static_cast<uint16_t>(up < down ? index : index - 1);
}

std::vector<double> table_of(int exponent_bits, int fraction_bits) {
  std::vector<double> table;
  const uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  for (uint32_t bits = 0; bits < infinity; ++bits) table.push_back(ref_value(bits, exponent_bits, fraction_bits));
  return table;
}

TEST(Half, EveryPatternToF32) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if ((bits & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(value), (bits & 0x3ff) != 0);
      EXPECT_EQ(std::isinf(value), (bits & 0x3ff) == 0);
    } else {
      EXPECT_EQ(static_cast<double>(value), ref_value(bits, 5, 10)) << bits;
    }
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    if (!std::isnan(value)) {
      EXPECT_EQ(f32_to_f16(value), bits);
    }
  }
}

TEST(Bfloat, EveryPatternToF32) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = to_f32(bf16{static_cast<uint16_t>(bits)});
    if ((bits & 0x7f80) != 0x7f80) {
      EXPECT_EQ(static_cast<double>(value), ref_value(bits, 8, 7)) << bits;
    }
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(to_f32(to_bf16(value))));
    } else {
      EXPECT_EQ(to_bf16(value).bits, bits);
    }
  }
}

// Every f16 and bf16 value, the midpoints between neighbours, and the f32 numbers beside each: all the places where
// rounding decides; and a stride through all f32 numbers.
std::vector<float> hard_cases(const std::vector<double>& table) {
  std::vector<float> cases;
  for (size_t i = 0; i + 1 < table.size(); ++i) {
    for (const double v : {table[i], (table[i] + table[i + 1]) / 2}) {
      const auto x = static_cast<float>(v);
      cases.insert(cases.end(), {x, std::nextafter(x, INFINITY), std::nextafter(x, -INFINITY)});
    }
  }
  const double end = table.back() + (table.back() - table[table.size() - 2]) / 2;
  if (end < 3e38)
    cases.insert(cases.end(), {static_cast<float>(end), std::nextafter(static_cast<float>(end), 0.0f), 1e38f});
  for (uint64_t bits = 0; bits < 0x7f800000; bits += 9973)
    cases.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return cases;
}

TEST(Half, RoundsToNearestEven) {
  const std::vector<double> table = table_of(5, 10);
  for (const float x : hard_cases(table)) {
    const float magnitude = std::fabs(x);
    ASSERT_EQ(f32_to_f16(magnitude), ref_round(magnitude, table)) << magnitude;
    ASSERT_EQ(f32_to_f16(-magnitude), ref_round(magnitude, table) | 0x8000) << magnitude;
  }
  EXPECT_EQ(f32_to_f16(INFINITY), 0x7c00);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(NAN))));
}

TEST(Bfloat, RoundsToNearestEven) {
  const std::vector<double> table = table_of(8, 7);
  for (const float x : hard_cases(table)) {
    const float magnitude = std::fabs(x);
    ASSERT_EQ(to_bf16(magnitude).bits, ref_round(magnitude, table)) << magnitude;
    ASSERT_EQ(to_bf16(-magnitude).bits, ref_round(magnitude, table) | 0x8000) << magnitude;
  }
  EXPECT_EQ(to_bf16(INFINITY).bits, 0x7f80);
  for (const uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7f80ffffu}) {
    EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::bit_cast<float>(nan)))));
  }
}

TEST(DTypes, Names) {
  for (int i = 0; i <= static_cast<int>(DType::q6_k); ++i) {
    const auto type = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(info(type).name), type);
    EXPECT_GT(info(type).elements, 0);
    EXPECT_GT(info(type).bytes, 0);
  }
  EXPECT_EQ(parse_dtype("BF16"), DType::bf16);
  EXPECT_EQ(parse_dtype("Q4_K"), DType::q4_k);
  expect_error([] { parse_dtype("f33"); }, ErrorCode::usage, {"f33", "f32", "q6_k"});
}

}  // namespace
}  // namespace unchain::test
