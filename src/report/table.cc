#include "report/table.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"

namespace unchain::report {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// The first character of a text that is not empty; overlong forms, surrogates and stray bytes are not valid.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kSmallest[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes, true};
}

struct Range {
  uint32_t first, last;
};
bool in(uint32_t code, const Range* begin, const Range* end) {
  return std::any_of(begin, end, [&](const Range& r) { return code >= r.first && code <= r.last; });
}

// The blocks that terminals agree on, not the whole of Unicode: scripts with rare combining marks are off by a column.
constexpr Range kWide[] = {{0x1100, 0x115f},   {0x231a, 0x231b},   {0x23e9, 0x23f3},   {0x2e80, 0x303e},
                           {0x3041, 0xa4cf},   {0xa960, 0xa97c},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},
                           {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x1f300, 0x1f64f},
                           {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};
constexpr Range kZero[] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x64b, 0x65f},   {0x200b, 0x200f},
                           {0x202a, 0x202e}, {0x2060, 0x2064}, {0x20d0, 0x20f0}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};

}  // namespace

int display_width(std::string_view utf8) {
  int width = 0;
  while (!utf8.empty()) {
    const Character c = first_character(utf8);
    utf8.remove_prefix(c.bytes);
    if (in(c.code, std::begin(kZero), std::end(kZero))) continue;
    width += in(c.code, std::begin(kWide), std::end(kWide)) ? 2 : 1;
  }
  return width;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character c = first_character(text);
    const bool control = c.code < 0x20 || (c.code >= 0x7f && c.code < 0xa0);
    if (c.valid && !control) {
      out.append(text.substr(0, c.bytes));
    } else if (c.code == '\n' || c.code == '\t' || c.code == '\r') {
      out += c.code == '\n' ? "\\n" : c.code == '\t' ? "\\t" : "\\r";
    } else {
      out += fmt::format("\\x{:02x}", c.valid ? c.code : static_cast<uint8_t>(text[0]));
    }
    text.remove_prefix(c.bytes);
  }
  return out;
}

TextTable& TextTable::column(std::string_view title, Align align) {
  aligns_.push_back(align);
  rows_[0].push_back(printable(title));
  return *this;
}

TextTable& TextTable::row(const std::vector<std::string>& cells) {
  if (cells.size() != aligns_.size()) {
    fail(ErrorCode::internal, "report: a table row has {} cells, expected {}", cells.size(), aligns_.size());
  }
  auto& added = rows_.emplace_back();
  for (const std::string& cell : cells) added.push_back(printable(cell));
  return *this;
}

std::string TextTable::text() const {
  std::vector<int> widths(aligns_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string out;
  const auto add_line = [&](const std::vector<std::string>& row) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(static_cast<size_t>(widths[i] - display_width(row[i])), ' ');
      if (i > 0) line += "  ";
      line += aligns_[i] == Align::right ? blanks + row[i] : row[i] + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line(rows_[0]);
  std::vector<std::string> rule;
  for (const int width : widths) rule.emplace_back(static_cast<size_t>(width), '-');
  add_line(rule);
  for (size_t r = 1; r < rows_.size(); ++r) add_line(rows_[r]);
  return out;
}

}  // namespace unchain::report
