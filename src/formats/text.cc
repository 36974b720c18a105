#include "formats/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace unchain::formats {

size_t character_bytes(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // The second byte excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  const uint8_t second = at(1);
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return bytes;
}

bool valid_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  constexpr size_t kLimit = 100;
  std::string out;
  while (!text.empty()) {
    if (out.size() >= kLimit) return out + "...";
    const uint8_t first = static_cast<uint8_t>(text[0]);
    const size_t bytes = character_bytes(text);
    // U+0080 to U+009F are control characters too, and terminals obey some of them.
    const bool control =
        first < 0x20 || first == 0x7f || (first == 0xc2 && bytes == 2 && static_cast<uint8_t>(text[1]) < 0xa0);
    const size_t used = std::max<size_t>(bytes, 1);
    if (bytes == 0 || control) {
      for (const char c : text.substr(0, used)) out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    } else {
      out += text.substr(0, used);
    }
    text.remove_prefix(used);
  }
  return out;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t corner = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t other = std::min(row[j], row[j + 1]) + 1;
      corner = std::exchange(row[j + 1], std::min(other, corner + (a[i] != b[j])));
    }
  }
  return row.back();
}

std::string describe_start(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 64));
  if (start.empty()) return "the file is empty";
  if (start.starts_with("version https://git-lfs"))
    return "the file is a Git LFS pointer, not the model itself (fetch it with 'git lfs pull')";
  if (start.starts_with("GGUF")) return "the file is a GGUF file";
  if (start.starts_with("<!") || start.starts_with("<html") || start.starts_with("<?xml")) {
    return "the file is a web page, not the model itself";
  }
  if (start.starts_with("PK\x03\x04")) return "the file is a ZIP archive (perhaps a PyTorch checkpoint)";
  if (start.size() > 8 && start[8] == '{') return "the file looks like safetensors";
  std::string hex;
  for (const char c : start.substr(0, 8))
    hex += fmt::format("{}{:02x}", hex.empty() ? "" : " ", static_cast<uint8_t>(c));
  return "the file begins with the bytes " + hex;
}

}  // namespace unchain::formats
