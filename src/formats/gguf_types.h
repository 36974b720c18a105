// Numbers that GGUF files use for types, shared by the reader and the writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/gguf.h"

namespace unchain::formats {

inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr uint64_t kDefaultAlignment = 32;
inline constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
inline constexpr int kMaxArrayDepth = 8;
inline constexpr uint64_t kMaxNameBytes = 65535;
inline constexpr size_t kMaxDimensions = 4;

// Tensor types. Absent: a number (or type) without counterpart.
std::optional<DType> dtype_of_ggml(uint32_t number) noexcept;
std::optional<uint32_t> ggml_of_dtype(DType type) noexcept;
// "iq4_nl (20)", or "99" for a number that we do not know by name.
std::string ggml_type_name(uint32_t number);

// Metadata value types: the number in the file for an index into GgufValue (or GgufArray's elements), and back.
uint32_t value_type_of_index(size_t index) noexcept;
std::optional<size_t> index_of_value_type(uint32_t number) noexcept;
// "an array of strings", "an i32": the kind of a value, for messages.
std::string kind(const GgufValue& value);

// `position` rounded up to a multiple of a power of two.
constexpr uint64_t align_up(uint64_t position, uint64_t alignment) noexcept {
  return (position + alignment - 1) & ~(alignment - 1);
}

}  // namespace unchain::formats
