// A hash for cache names and fixed splits, not for secrets: FNV-1a, 64 bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace unchain {

// Continues from `state`, so that parts can be hashed one after another; hash_number keeps parts from running together.
inline uint64_t hash_bytes(std::string_view bytes, uint64_t state = 0xcbf29ce484222325) noexcept {
  for (const char byte : bytes) state = (state ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return state;
}

inline uint64_t hash_number(uint64_t number, uint64_t state) noexcept {
  for (int byte = 0; byte < 8; ++byte) state = (state ^ (number >> (8 * byte) & 0xff)) * 0x100000001b3;
  return state;
}

}  // namespace unchain
