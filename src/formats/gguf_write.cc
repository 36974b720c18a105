#include <array>
#include <bit>
#include <cstring>
#include <set>

#include "base/check.h"
#include "formats/gguf.h"
#include "formats/gguf_types.h"
#include "formats/text.h"

namespace unchain::formats {
namespace {

template <class T>
void put(AtomicFile& file, T value) {
  file.write(&value, sizeof(value));
}

void put(AtomicFile& file, const std::string& text) {
  put<uint64_t>(file, text.size());
  file.write(text);
}

void put(AtomicFile& file, const std::shared_ptr<const GgufArray>& array) {
  put<uint32_t>(file, value_type_of_index(array->elements.index()));
  put<uint64_t>(file, array->size());
  std::visit(
      [&](const auto& elements) {
        using T = typename std::decay_t<decltype(elements)>::value_type;
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
          file.write(elements.data(), elements.size() * sizeof(T));
        } else if constexpr (std::is_same_v<T, bool>) {
          for (const bool b : elements) put<uint8_t>(file, b);
        } else {
          for (const T& e : elements) put(file, e);
        }
      },
      array->elements);
}

void put_value(AtomicFile& file, const GgufValue& value) {
  put<uint32_t>(file, value_type_of_index(value.index()));
  std::visit(
      [&](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, bool>) {
          put<uint8_t>(file, v);
        } else {
          put(file, v);
        }
      },
      value);
}

void pad(AtomicFile& file, uint64_t alignment) {
  static constexpr std::array<char, 4096> kZeros{};
  uint64_t missing = align_up(file.position(), alignment) - file.position();
  while (missing > 0) {
    const uint64_t part = std::min<uint64_t>(missing, kZeros.size());
    file.write(kZeros.data(), part);
    missing -= part;
  }
}

// Nested arrays that the reader would refuse, or a null array.
void check_array(const std::string& where, const GgufArray* array, int depth) {
  if (!array || depth > kMaxArrayDepth) {
    fail(ErrorCode::usage, "{}: holds {}, expected arrays nested at most {} deep", where,
         array ? "deeper arrays" : "a null array", kMaxArrayDepth);
  }
  if (const auto* inner = std::get_if<std::vector<std::shared_ptr<const GgufArray>>>(&array->elements)) {
    for (const auto& a : *inner) check_array(where, a.get(), depth + 1);
  }
}

void check_name(const std::string& where, const std::string& name, std::set<std::string_view>& seen) {
  if (name.empty() || name.size() > kMaxNameBytes || !valid_utf8(name)) {
    fail(ErrorCode::usage, "{} '{}': expected 1 to {} bytes of UTF-8", where, printable(name), kMaxNameBytes);
  }
  if (!seen.insert(name).second)
    fail(ErrorCode::usage, "{} {}: is given twice, expected distinct names", where, printable(name));
}

// Checks the metadata and returns the alignment that they ask for.
uint64_t check_metadata(const std::string& path, const std::vector<GgufEntry>& metadata) {
  uint64_t alignment = kDefaultAlignment;
  std::set<std::string_view> seen;
  for (const GgufEntry& entry : metadata) {
    check_name(path + ": key", entry.key, seen);
    const std::string where = fmt::format("{}: key {}", path, printable(entry.key));
    if (const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&entry.value))
      check_array(where, array->get(), 1);
    if (entry.key != kAlignmentKey) continue;
    alignment = std::visit(
        [](const auto& v) -> uint64_t {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) return static_cast<uint64_t>(v);
          return 0;
        },
        entry.value);
    if (!std::has_single_bit(alignment) || alignment > kMaxAlignment) {
      fail(ErrorCode::usage, "{}: expected an integer that is a power of two of at most {}", where, kMaxAlignment);
    }
  }
  return alignment;
}

void check_tensors(const std::string& path, const std::vector<Tensor>& tensors) {
  std::set<std::string_view> seen;
  for (const Tensor& tensor : tensors) {
    check_name(path + ": tensor", tensor.name, seen);
    const std::string where = fmt::format("{}: tensor {}", path, printable(tensor.name));
    if (!ggml_of_dtype(tensor.type))
      fail(ErrorCode::unsupported, "{}: GGUF has no type for {}", where, info(tensor.type).name);
    if (tensor.shape.size() > kMaxDimensions) {
      fail(ErrorCode::unsupported, "{}: shape {}, GGUF holds at most {} dimensions", where, to_string(tensor.shape),
           kMaxDimensions);
    }
    const int64_t needed = byte_count(tensor.type, tensor.shape);
    if (static_cast<uint64_t>(needed) != tensor.bytes.size()) {
      fail(ErrorCode::format, "{}: has {} bytes, type {} and shape {} need {}", where, tensor.bytes.size(),
           info(tensor.type).name, to_string(tensor.shape), needed);
    }
  }
}

}  // namespace

void write_gguf(const std::filesystem::path& path, const std::vector<GgufEntry>& metadata,
                const std::vector<Tensor>& tensors) {
  const uint64_t alignment = check_metadata(path.string(), metadata);
  check_tensors(path.string(), tensors);
  AtomicFile file(path);
  file.write("GGUF");
  put<uint32_t>(file, 3);
  put<uint64_t>(file, tensors.size());
  put<uint64_t>(file, metadata.size());
  for (const GgufEntry& entry : metadata) {
    put(file, entry.key);
    put_value(file, entry.value);
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    put(file, tensor.name);
    put<uint32_t>(file, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i > 0; --i) put<uint64_t>(file, static_cast<uint64_t>(tensor.shape[i - 1]));
    put<uint32_t>(file, *ggml_of_dtype(tensor.type));
    put<uint64_t>(file, offset);
    offset = align_up(offset + tensor.bytes.size(), alignment);
  }
  for (const Tensor& tensor : tensors) {
    pad(file, alignment);
    file.write(tensor.bytes.data(), tensor.bytes.size());
  }
  // llama.cpp expects the data to end on the alignment too.
  pad(file, alignment);
  file.commit();
}

}  // namespace unchain::formats
