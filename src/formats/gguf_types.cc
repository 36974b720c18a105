#include "formats/gguf_types.h"

#include <fmt/format.h>

#include <array>

namespace unchain::formats {
namespace {

struct TypeRow {
  uint32_t number;
  DType type;
};
constexpr std::array<TypeRow, 18> kTypes = {{
    {0, DType::f32},
    {1, DType::f16},
    {2, DType::q4_0},
    {3, DType::q4_1},
    {6, DType::q5_0},
    {7, DType::q5_1},
    {8, DType::q8_0},
    {10, DType::q2_k},
    {11, DType::q3_k},
    {12, DType::q4_k},
    {13, DType::q5_k},
    {14, DType::q6_k},
    {24, DType::i8},
    {25, DType::i16},
    {26, DType::i32},
    {27, DType::i64},
    {28, DType::f64},
    {30, DType::bf16},
}};

// Types that exist and that we do not read: named in messages.
struct NameRow {
  uint32_t number;
  std::string_view name;
};
constexpr std::array<NameRow, 14> kOtherNames = {{
    {9, "q8_1"},
    {15, "q8_k"},
    {16, "iq2_xxs"},
    {17, "iq2_xs"},
    {18, "iq3_xxs"},
    {19, "iq1_s"},
    {20, "iq4_nl"},
    {21, "iq3_s"},
    {22, "iq2_s"},
    {23, "iq4_xs"},
    {29, "iq1_m"},
    {34, "tq1_0"},
    {35, "tq2_0"},
    {39, "mxfp4"},
}};

// Position = index into GgufValue; the file numbers arrays 9, before the 64-bit types.
constexpr std::array<uint32_t, 13> kValueTypes = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 9};
constexpr std::array<std::string_view, 13> kValueNames = {"u8",   "i8",     "u16", "i16", "u32", "i32",  "f32",
                                                          "bool", "string", "u64", "i64", "f64", "array"};
static_assert(std::variant_size_v<GgufValue> == kValueTypes.size());

}  // namespace

std::optional<DType> dtype_of_ggml(uint32_t number) noexcept {
  for (const TypeRow& row : kTypes) {
    if (row.number == number) return row.type;
  }
  return std::nullopt;
}

std::optional<uint32_t> ggml_of_dtype(DType type) noexcept {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.number;
  }
  return std::nullopt;
}

std::string ggml_type_name(uint32_t number) {
  if (const auto type = dtype_of_ggml(number)) return fmt::format("{} ({})", info(*type).name, number);
  for (const NameRow& row : kOtherNames) {
    if (row.number == number) return fmt::format("{} ({})", row.name, number);
  }
  return std::to_string(number);
}

uint32_t value_type_of_index(size_t index) noexcept {
  return kValueTypes[index];
}

std::optional<size_t> index_of_value_type(uint32_t number) noexcept {
  for (size_t i = 0; i < kValueTypes.size(); ++i) {
    if (kValueTypes[i] == number) return i;
  }
  return std::nullopt;
}

std::string kind(const GgufValue& value) {
  if (const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value)) {
    return fmt::format("an array of {} values of type {}", (*array)->size(), kValueNames[(*array)->elements.index()]);
  }
  return fmt::format("of type {}", kValueNames[value.index()]);
}

}  // namespace unchain::formats
