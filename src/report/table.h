// Plain-text tables for a terminal: columns as wide as their widest cell, in display columns, two blanks between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace unchain::report {

// Columns that a terminal needs for this UTF-8 text: 2 for wide East Asian characters and emoji, 0 for combining ones.
int display_width(std::string_view utf8);

// The text with control characters and invalid UTF-8 made visible (\n, \x1b, ...), so that no cell can break a line or
// steer the terminal.
std::string printable(std::string_view text);

class TextTable {
 public:
  enum class Align { left, right };
  // Columns come first; a table without rows is its header alone.
  TextTable& column(std::string_view title, Align align = Align::left);
  // One cell a column. Error: internal on any other number.
  TextTable& row(const std::vector<std::string>& cells);
  // Header, a rule, the rows; each line ends with a newline and has no trailing blanks.
  std::string text() const;

 private:
  std::vector<Align> aligns_;
  std::vector<std::vector<std::string>> rows_{{}};  // the first is the header
};

}  // namespace unchain::report
