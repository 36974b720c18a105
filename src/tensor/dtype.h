// Element types: those that the engine computes in (f32, bf16) and those that only files hold.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace unchain {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  f64,
  i8,
  i16,
  i32,
  i64,
  u8,
  boolean,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k
};

// Quantised types store blocks of `elements` values in `bytes` bytes; the plain ones are blocks of one.
struct DTypeInfo {
  std::string_view name;  // as written in messages and JSON, for example "q4_1"
  int64_t elements;
  int64_t bytes;
};
const DTypeInfo& info(DType type) noexcept;

// The type of that name (lower or upper case). Error: usage, listing the names.
DType parse_dtype(std::string_view name);

// A bfloat16 number: the upper half of an f32.
struct bf16 {
  uint16_t bits = 0;
};

inline float to_f32(bf16 x) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// Rounds to nearest, ties to even; a NaN stays a NaN.
inline bf16 to_bf16(float x) noexcept {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// IEEE half precision, exact to f32; to f16 rounds to nearest, ties to even (overflow gives infinity).
float f16_to_f32(uint16_t bits) noexcept;
uint16_t f32_to_f16(float x) noexcept;

}  // namespace unchain
