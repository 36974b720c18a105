#include "base/base64.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string_view>

namespace unchain {
namespace {

std::string base64_of(std::string_view text) {
  return base64(std::as_bytes(std::span(text)));
}

TEST(Base64, KnownVectors) {  // RFC 4648, section 10
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("f"), "Zg==");
  EXPECT_EQ(base64_of("fo"), "Zm8=");
  EXPECT_EQ(base64_of("foo"), "Zm9v");
  EXPECT_EQ(base64_of("foob"), "Zm9vYg==");
  EXPECT_EQ(base64_of("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64_of("foobar"), "Zm9vYmFy");
}

// Counting upwards in groups of six bits names the digits of table 1 in their order.
TEST(Base64, EveryDigit) {
  std::array<std::byte, 48> bytes;
  for (uint32_t digit = 0; digit < 64; digit += 4) {
    const uint32_t group = digit << 18 | (digit + 1) << 12 | (digit + 2) << 6 | (digit + 3);
    for (uint32_t k = 0; k < 3; ++k) bytes[digit / 4 * 3 + k] = static_cast<std::byte>(group >> (16 - 8 * k));
  }
  EXPECT_EQ(base64(bytes), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
}

TEST(Base64, HighBytesAreNotSigned) {
  EXPECT_EQ(base64_of("\xff\xfe\xfd\x80"), "//79gA==");
}

}  // namespace
}  // namespace unchain
