#include "eval/windows.h"

#include <algorithm>

#include "base/check.h"

namespace unchain::eval {
namespace {

using Ids = std::vector<int32_t>;

Ids slice(const Ids& ids, int64_t first, int64_t count, int32_t bos) {
  Ids result;
  if (bos >= 0) result.push_back(bos);
  result.insert(result.end(), ids.begin() + first, ids.begin() + first + count);
  return result;
}

}  // namespace

WindowMode parse_window_mode(std::string_view name) {
  for (const WindowMode mode : {WindowMode::disjoint, WindowMode::sliding, WindowMode::half}) {
    if (to_string(mode) == name) return mode;
  }
  fail(ErrorCode::usage, "--mode '{}' is unknown, expected disjoint, sliding or half", name);
}

std::string_view to_string(WindowMode mode) {
  switch (mode) {
    case WindowMode::disjoint:
      return "disjoint";
    case WindowMode::sliding:
      return "sliding";
    case WindowMode::half:
      return "half";
  }
  return "disjoint";
}

std::vector<Window> cut_windows(const Ids& text, int32_t bos, const WindowOptions& options) {
  if (options.window < 2 || options.window > (1 << 20))
    fail(ErrorCode::usage, "--window {}: expected 2 to 1048576 tokens", options.window);
  if (options.max_windows < 0)
    fail(ErrorCode::usage, "--max-windows {}: expected 0 (all) or more", options.max_windows);
  const auto total = static_cast<int64_t>(text.size());
  const int64_t front = bos >= 0 ? 1 : 0, room = options.window - front;
  const auto more = [&](const std::vector<Window>& windows) {
    return options.max_windows == 0 || static_cast<int64_t>(windows.size()) < options.max_windows;
  };
  std::vector<Window> windows;
  if (options.mode == WindowMode::half) {
    const Ids stream = slice(text, 0, total, bos);
    if (static_cast<int64_t>(stream.size()) < options.window) {
      fail(ErrorCode::format,
           "text: has {} tokens, mode half needs a whole window of {}; give a longer text or a smaller --window",
           stream.size(), options.window);
    }
    for (int64_t first = 0; first + options.window <= static_cast<int64_t>(stream.size()) && more(windows);
         first += options.window) {
      Window window{slice(stream, first, options.window, -1), options.window / 2};
      if (bos >= 0) window.ids[0] = bos;
      windows.push_back(std::move(window));
    }
    return windows;
  }
  if (total + front < 2)
    fail(ErrorCode::format, "text: has {} tokens, at least {} are needed to score one", total, 2 - front);
  if (options.mode == WindowMode::disjoint) {
    for (int64_t first = 0; first < total && more(windows); first += room) {
      const int64_t count = std::min(room, total - first);
      if (count + front >= 2) windows.push_back({slice(text, first, count, bos), 0});
    }
    return windows;
  }
  const int64_t stride = options.stride == 0 ? std::max<int64_t>(1, options.window / 2) : options.stride;
  // One token, BOS or the last of the window before, stands in front of those that a window scores.
  const int64_t most = options.window - 1;
  if (stride < 1 || stride > most) fail(ErrorCode::usage, "--stride {}: expected 1 to {}", stride, most);
  int64_t scored_to =
      front == 1 ? 0 : 1;  // text tokens before this one have been scored (the very first has no context without BOS)
  for (int64_t first = 0; scored_to < total && more(windows); first += stride) {
    const int64_t count = std::min(room, total - first);
    // The token at text index s is predicted from position s − first + front − 1.
    windows.push_back({slice(text, first, count, bos), scored_to - first + front - 1});
    scored_to = first + count;
  }
  return windows;
}

}  // namespace unchain::eval
