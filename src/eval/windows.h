// How a long text is cut into windows that a model reads one by one.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace unchain::eval {

enum class WindowMode {
  disjoint,  // window after window; all positions but the first are scored
  sliding,   // windows begin every `stride` tokens; a token is scored in the first window that holds it
  half,      // full windows, only the second half is scored: what llama.cpp's perplexity does
};

// Error: usage, listing the names.
WindowMode parse_window_mode(std::string_view name);
std::string_view to_string(WindowMode mode);

struct WindowOptions {
  WindowMode mode = WindowMode::disjoint;
  int64_t window = 512;
  int64_t stride = 0;       // sliding only; 0: window/2
  int64_t max_windows = 0;  // 0: all
};

// What one window reads and which of its predictions count: positions first_scored … end predict the token after them.
struct Window {
  std::vector<int32_t> ids;
  int64_t first_scored = 0;  // position whose prediction is the first that counts
  int64_t scored() const { return static_cast<int64_t>(ids.size()) - 1 - first_scored; }
};

// Windows over the tokens of a text (methods §6). `bos`: the id that the model wants in front, or −1. With a BOS a
// window of `window` positions is BOS and window − 1 text tokens (half: BOS replaces the first token of each window of
// the stream that begins with one). Errors: usage (sizes out of range); format (a text too short for one scored token,
// or in mode half for one window).
std::vector<Window> cut_windows(const std::vector<int32_t>& text, int32_t bos, const WindowOptions& options);

}  // namespace unchain::eval
