// Names that safetensors files use, shared by the reader and the writer.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "tensor/dtype.h"

namespace unchain::formats {

inline constexpr std::string_view kMetadataKey = "__metadata__";
inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";

inline constexpr std::array<std::pair<std::string_view, DType>, 10> kSafetensorsTypes = {{
    {"F32", DType::f32},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"F64", DType::f64},
    {"I8", DType::i8},
    {"I16", DType::i16},
    {"I32", DType::i32},
    {"I64", DType::i64},
    {"U8", DType::u8},
    {"BOOL", DType::boolean},
}};

inline std::optional<DType> dtype_of_safetensors(std::string_view name) noexcept {
  for (const auto& [known, type] : kSafetensorsTypes) {
    if (known == name) return type;
  }
  return std::nullopt;
}

inline std::optional<std::string_view> safetensors_of_dtype(DType type) noexcept {
  for (const auto& [name, known] : kSafetensorsTypes) {
    if (known == type) return name;
  }
  return std::nullopt;
}

}  // namespace unchain::formats
