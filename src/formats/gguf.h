// GGUF, versions 2 and 3, little-endian: read through a memory map, and written.
//
// The file, in order (all numbers little-endian; "string" = u64 length, then bytes):
//   1. magic "GGUF", u32 version, u64 tensor count, u64 metadata count
//   2. metadata: string key, u32 value type, value; an array is u32 element type, u64 count, elements (may nest)
//   3. tensor table: string name, u32 dimensions (at most 4), u64 sizes (innermost first), u32 type, u64 offset
//   4. padding to `general.alignment` (default 32)
//   5. tensor data; offsets count from here, each a multiple of the alignment
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace unchain::formats {

struct GgufArray;
// A metadata value of one of the types of the format.
using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool, std::string,
                               uint64_t, int64_t, double, std::shared_ptr<const GgufArray>>;
// Elements all have the type with that index in GgufValue's list; arrays of strings and numbers are stored flat.
struct GgufArray {
  std::variant<std::vector<uint8_t>, std::vector<int8_t>, std::vector<uint16_t>, std::vector<int16_t>,
               std::vector<uint32_t>, std::vector<int32_t>, std::vector<float>, std::vector<bool>,
               std::vector<std::string>, std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>,
               std::vector<std::shared_ptr<const GgufArray>>>
      elements;
  size_t size() const;
};

struct GgufEntry {
  std::string key;
  GgufValue value;
};

class GgufFile {
 public:
  // Maps the file and checks all of it before anything is used: counts, lengths, offsets, overlaps, alignment.
  // Errors: io; format (damaged, wrong magic, big-endian, truncated …); unsupported (version, tensor type).
  static GgufFile open(const std::filesystem::path& path);
  // The same from bytes in memory (used by tests and the fuzzer); `name` stands for the path in messages.
  static GgufFile parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, const std::string& name);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  const std::vector<GgufEntry>& metadata() const { return metadata_; }  // in the file's order
  const std::vector<Tensor>& tensors() const { return tensors_; }       // shapes outermost first; in the file's order
  const Tensor* find(std::string_view name) const;                      // nullptr if absent

  const GgufValue* value(std::string_view key) const;  // nullptr if absent
  // Typed access. Absent: empty optional. Present with another kind: Error format naming key, found and expected.
  // Any integer type that holds the value exactly is accepted for integer().
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // any integer or float type
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;    // array of any number type
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;  // array of any integer type

  void release_pages() const { map_.release_pages(); }

 private:
  std::string name_;
  MappedFile map_;
  uint32_t version_ = 3;
  std::vector<GgufEntry> metadata_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> key_index_, tensor_index_;
};

// Writes a version 3 file atomically: metadata in order, then the tensors, byte for byte as given, padded to alignment
// (`general.alignment` of the metadata, default 32). Errors: io; usage (two tensors or keys of one name, a bad name or
// alignment); format (bytes of a tensor do not fit its type and shape); unsupported (a type or shape GGUF cannot hold).
void write_gguf(const std::filesystem::path& path, const std::vector<GgufEntry>& metadata,
                const std::vector<Tensor>& tensors);

}  // namespace unchain::formats
