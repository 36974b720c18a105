// Windows against lists written by hand.
#include "eval/windows.h"

#include <numeric>

#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using eval::cut_windows;
using eval::Window;
using eval::WindowMode;
using eval::WindowOptions;
using Ids = std::vector<int32_t>;

Ids text_of(int32_t count) {
  Ids ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), 10);
  return ids;
}

std::vector<Window> cut(const Ids& text, int32_t bos, WindowMode mode, int64_t window, int64_t stride = 0,
                        int64_t max_windows = 0) {
  WindowOptions options;
  options.mode = mode;
  options.window = window;
  options.stride = stride;
  options.max_windows = max_windows;
  return cut_windows(text, bos, options);
}

void expect_windows(const std::vector<Window>& windows, const std::vector<std::pair<Ids, int64_t>>& expected) {
  ASSERT_EQ(windows.size(), expected.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    EXPECT_EQ(windows[i].ids, expected[i].first) << i;
    EXPECT_EQ(windows[i].first_scored, expected[i].second) << i;
  }
}

TEST(Windows, DisjointWithoutBos) {
  expect_windows(cut(text_of(7), -1, WindowMode::disjoint, 3), {{{10, 11, 12}, 0}, {{13, 14, 15}, 0}});
  expect_windows(cut(text_of(8), -1, WindowMode::disjoint, 3), {{{10, 11, 12}, 0}, {{13, 14, 15}, 0}, {{16, 17}, 0}});
  expect_windows(cut(text_of(2), -1, WindowMode::disjoint, 512), {{{10, 11}, 0}});
}

TEST(Windows, DisjointAfterBos) {
  expect_windows(cut(text_of(5), 1, WindowMode::disjoint, 3), {{{1, 10, 11}, 0}, {{1, 12, 13}, 0}, {{1, 14}, 0}});
  expect_windows(cut(text_of(5), 0, WindowMode::disjoint, 3, 0, 1), {{{0, 10, 11}, 0}});
  expect_windows(cut(text_of(1), 1, WindowMode::disjoint, 512), {{{1, 10}, 0}});
}

TEST(Windows, HalfCountsAsLlamaCppDoes) {
  const auto windows = cut(text_of(1300), -1, WindowMode::half, 512);
  ASSERT_EQ(windows.size(), 2u);
  for (const Window& window : windows) EXPECT_EQ(window.scored(), 255);
  // The stream begins with BOS, which takes the place of the first token of later windows.
  expect_windows(cut(text_of(8), 1, WindowMode::half, 4), {{{1, 10, 11, 12}, 2}, {{1, 14, 15, 16}, 2}});
  expect_windows(cut(text_of(8), -1, WindowMode::half, 4), {{{10, 11, 12, 13}, 2}, {{14, 15, 16, 17}, 2}});
}

TEST(Windows, SlidingScoresEachTokenOnce) {
  expect_windows(cut(text_of(6), -1, WindowMode::sliding, 4, 2), {{{10, 11, 12, 13}, 0}, {{12, 13, 14, 15}, 1}});
  expect_windows(cut(text_of(6), 1, WindowMode::sliding, 4, 2),
                 {{{1, 10, 11, 12}, 0}, {{1, 12, 13, 14}, 1}, {{1, 14, 15}, 1}});
  for (const int32_t bos : {-1, 1}) {
    for (const int32_t count : {2, 3, 7, 8, 9, 40, 41}) {
      for (const int64_t window : {2, 3, 8, 64}) {
        for (int64_t stride = 0; stride < window; ++stride) {
          SCOPED_TRACE(testing::Message() << bos << " " << count << " " << window << " " << stride);
          Ids scored;
          for (const Window& w : cut(text_of(count), bos, WindowMode::sliding, window, stride)) {
            ASSERT_LE(w.ids.size(), static_cast<size_t>(window));
            ASSERT_GE(w.first_scored, 0);
            ASSERT_GE(w.scored(), 1);
            scored.insert(scored.end(), w.ids.begin() + w.first_scored + 1, w.ids.end());
          }
          // Without BOS the very first token has nothing before it.
          const Ids text = text_of(count);
          EXPECT_EQ(scored, Ids(text.begin() + (bos < 0), text.end()));
        }
      }
    }
  }
}

TEST(Windows, WhatCannotBe) {
  const auto expect = [](int32_t count, int32_t bos, WindowMode mode, int64_t window, int64_t stride, ErrorCode code,
                         const std::string& part) {
    expect_error([&] { cut(text_of(count), bos, mode, window, stride); }, code, {part});
  };
  expect(9, -1, WindowMode::disjoint, 1, 0, ErrorCode::usage, "--window 1");
  expect(9, -1, WindowMode::disjoint, int64_t{1} << 40, 0, ErrorCode::usage, "--window");
  expect(9, -1, WindowMode::disjoint, -512, 0, ErrorCode::usage, "--window -512");
  expect(9, -1, WindowMode::sliding, 4, 4, ErrorCode::usage, "--stride 4");
  expect(9, 1, WindowMode::sliding, 4, 4, ErrorCode::usage, "--stride 4");
  expect(9, -1, WindowMode::sliding, 4, -1, ErrorCode::usage, "--stride -1");
  expect(1, -1, WindowMode::disjoint, 4, 0, ErrorCode::format, "has 1 tokens");
  expect(0, 1, WindowMode::sliding, 4, 0, ErrorCode::format, "has 0 tokens");
  expect(3, -1, WindowMode::half, 4, 0, ErrorCode::format, "whole window of 4");
  expect_error([] { cut(text_of(9), -1, WindowMode::disjoint, 4, 0, -1); }, ErrorCode::usage, {"--max-windows -1"});
  expect_error([] { eval::parse_window_mode("whole"); }, ErrorCode::usage, {"whole", "disjoint, sliding or half"});
}

}  // namespace
}  // namespace unchain::test
