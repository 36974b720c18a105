// Base64 (RFC 4648, section 4, with padding).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace unchain {

// Base64 of these bytes, one line, padded with '='.
std::string base64(std::span<const std::byte> bytes);

}  // namespace unchain
