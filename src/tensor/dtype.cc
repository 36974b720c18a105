#include "tensor/dtype.h"

#include <array>
#include <cctype>
#include <string>

#include "base/check.h"

namespace unchain {
namespace {

constexpr std::array<DTypeInfo, 20> kInfo = {{
    {"f32", 1, 4},     {"f16", 1, 2},      {"bf16", 1, 2},     {"f64", 1, 8},      {"i8", 1, 1},
    {"i16", 1, 2},     {"i32", 1, 4},      {"i64", 1, 8},      {"u8", 1, 1},       {"bool", 1, 1},
    {"q4_0", 32, 18},  {"q4_1", 32, 20},   {"q5_0", 32, 22},   {"q5_1", 32, 24},   {"q8_0", 32, 34},
    {"q2_k", 256, 84}, {"q3_k", 256, 110}, {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210},
}};

}  // namespace

const DTypeInfo& info(DType type) noexcept {
  return kInfo[static_cast<size_t>(type)];
}

DType parse_dtype(std::string_view name) {
  std::string lower(name), all;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].name == lower) return static_cast<DType>(i);
    all += (i ? ", " : "") + std::string(kInfo[i].name);
  }
  fail(ErrorCode::usage, "type '{}' is unknown, expected one of {}", name, all);
}

float f16_to_f32(uint16_t bits) noexcept {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu;
  uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0) {
    // Subnormal: fraction · 2^-24, exact in f32.
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

uint16_t f32_to_f16(float x) noexcept {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 puts the rounded fraction, in units of 2^-24, into the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

}  // namespace unchain
