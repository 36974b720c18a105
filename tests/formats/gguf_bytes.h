// Builds GGUF files byte by byte, sound or broken, without the writer under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "formats/gguf.h"

namespace unchain::test {

// Bytes in the order of the file; remembers where each field begins.
class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    boundaries_.insert(text_.size());
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Bytes& u8(uint8_t v) { return number(v); }
  Bytes& u32(uint32_t v) { return number(v); }
  Bytes& u64(uint64_t v) { return number(v); }
  Bytes& raw(const std::string& bytes) {
    boundaries_.insert(text_.size());
    text_ += bytes;
    return *this;
  }
  Bytes& string(const std::string& s) { return u64(s.size()).raw(s); }
  Bytes& header(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(tensors).u64(entries);
  }
  Bytes& key(const std::string& key, uint32_t type) { return string(key).u32(type); }
  Bytes& tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type, uint64_t offset) {
    string(name).u32(static_cast<uint32_t>(sizes.size()));
    for (const uint64_t n : sizes) u64(n);
    return u32(type).u64(offset);
  }
  Bytes& pad(size_t alignment = 32) {
    boundaries_.insert(text_.size());
    while (text_.size() % alignment != 0) text_ += '\0';
    return *this;
  }
  const std::string& text() const { return text_; }
  const std::set<size_t>& boundaries() const { return boundaries_; }

 private:
  std::string text_;
  std::set<size_t> boundaries_;
};

// Parses a copy in a heap block of exactly its size, so that the sanitizers see any step beyond it.
inline formats::GgufFile parse_gguf(const std::string& text, const std::string& name = "model.gguf") {
  std::shared_ptr<std::byte[]> copy(new std::byte[text.size()]);
  if (!text.empty()) std::memcpy(copy.get(), text.data(), text.size());
  return formats::GgufFile::parse({copy.get(), text.size()}, copy, name);
}

// A sound file with every value type, nested arrays and tensors of many types.
Bytes rich_gguf(uint32_t version = 3);

}  // namespace unchain::test
