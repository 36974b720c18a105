// Words for messages about files: hostile names made safe to print, and a guess at what a wrong file really is.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace unchain::formats {

// Bytes of the well-formed character at the start of the text, 0 if there is none.
size_t character_bytes(std::string_view text) noexcept;

// Whether the bytes are well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF).
bool valid_utf8(std::string_view text) noexcept;

// The text for a message: control characters and bytes that are not UTF-8 as \xNN, cut after about 100 bytes.
std::string printable(std::string_view text);

// Letters to insert, remove or replace to make one word of the other: for "did you mean …?".
size_t edit_distance(std::string_view a, std::string_view b);

// What a file that begins with these bytes seems to be, for "expected X, found …".
std::string describe_start(std::span<const std::byte> bytes);

}  // namespace unchain::formats
