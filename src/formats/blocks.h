// The block layouts of the quantised types, as ggml defines them: each decode_* reads one block of its type and writes
// all of its values. Loops are plain so that the compiler vectorises them.
//
//   type   values  bytes  block                                                            value
//   q4_1   32      20     f16 d, f16 m, 16 x 2 nibbles                                     d q + m
//   q5_0   32      22     f16 d, u32 fifth bits, 16 x 2 nibbles                            d (q - 16)
//   q8_0   32      34     f16 d, 32 x i8                                                   d q
//   q4_k   256     144    f16 d, f16 m, 12 bytes of 8 x (6-bit s, 6-bit t), 128 x 2 nibbles  (d s) q - (m t)
//   q6_k   256     210    128 x 2 nibbles, 64 x 4 upper bit pairs, 16 x i8 s, f16 d        (d s) (q - 32)
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace unchain::formats {

// f16 bits to f32, exact, without branches: the fraction and exponent as an f32 2^112 too small, then scaled.
inline float half_to_f32(uint16_t bits) noexcept {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  uint32_t value = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  value |= magnitude >= 0x0f800000u ? 0x7f800000u : 0u;  // infinity and NaN
  return std::bit_cast<float>(value | static_cast<uint32_t>(bits & 0x8000u) << 16);
}

// Any plain value at an address of any alignment.
template <class T>
T load(const uint8_t* at) noexcept {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
inline float load_half(const uint8_t* at) noexcept {
  return half_to_f32(load<uint16_t>(at));
}

inline void decode_q4_1(const uint8_t* block, float* out) noexcept {
  const float scale = load_half(block), offset = load_half(block + 2);
  const uint8_t* q = block + 4;
  for (int i = 0; i < 16; ++i) out[i] = static_cast<float>(q[i] & 15) * scale + offset;
  for (int i = 0; i < 16; ++i) out[16 + i] = static_cast<float>(q[i] >> 4) * scale + offset;
}

inline void decode_q5_0(const uint8_t* block, float* out) noexcept {
  const float scale = load_half(block);
  const auto fifth = load<uint32_t>(block + 2);
  const uint8_t* q = block + 6;
  for (int i = 0; i < 16; ++i)
    out[i] = static_cast<float>(static_cast<int>((q[i] & 15) | ((fifth >> i) & 1) << 4) - 16) * scale;
  for (int i = 0; i < 16; ++i)
    out[16 + i] = static_cast<float>(static_cast<int>((q[i] >> 4) | ((fifth >> (i + 16)) & 1) << 4) - 16) * scale;
}

inline void decode_q8_0(const uint8_t* block, float* out) noexcept {
  const float scale = load_half(block);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

inline void decode_q4_k(const uint8_t* block, float* out) noexcept {
  const float scale = load_half(block), offset = load_half(block + 2);
  const uint8_t* packed = block + 4;
  const uint8_t* q = block + 16;
  for (int part = 0; part < 8; ++part) {
    // Six bits each: the first four pairs lie in bytes 0-3 and 4-7, the others in bytes 8-11 and the upper bits of 0-7.
    int s, t;
    if (part < 4) {
      s = packed[part] & 63;
      t = packed[part + 4] & 63;
    } else {
      s = (packed[part + 4] & 15) | (packed[part - 4] >> 6) << 4;
      t = (packed[part + 4] >> 4) | (packed[part] >> 6) << 4;
    }
    const float factor = scale * static_cast<float>(s), shift = offset * static_cast<float>(t);
    const uint8_t* nibbles = q + 32 * (part / 2);
    const int right = 4 * (part % 2);
    for (int i = 0; i < 32; ++i) out[32 * part + i] = static_cast<float>((nibbles[i] >> right) & 15) * factor - shift;
  }
}

inline void decode_q6_k(const uint8_t* block, float* out) noexcept {
  const float scale = load_half(block + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* lower = block + 64 * half;
    const uint8_t* upper = block + 128 + 32 * half;
    const uint8_t* scales = block + 192 + 8 * half;
    // Part p holds 32 values: lower nibbles of bytes 0-31, of 32-63, then the upper nibbles; bit pair p of `upper`.
    for (int part = 0; part < 4; ++part) {
      const uint8_t* nibbles = lower + 32 * (part % 2);
      const int right = 4 * (part / 2);
      float* to = out + 128 * half + 32 * part;
      for (int run = 0; run < 2; ++run) {
        const float factor = scale * static_cast<float>(static_cast<int8_t>(scales[2 * part + run]));
        for (int i = 16 * run; i < 16 * run + 16; ++i) {
          const int value = ((nibbles[i] >> right) & 15) | ((upper[i] >> (2 * part)) & 3) << 4;
          to[i] = static_cast<float>(value - 32) * factor;
        }
      }
    }
  }
}

}  // namespace unchain::formats
