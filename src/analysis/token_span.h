// A run of tokens of a window.
#pragma once

#include <cstdint>

namespace unchain::analysis {

struct TokenSpan {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
  bool contains(int64_t position) const { return position >= first && position < end(); }
};

}  // namespace unchain::analysis
