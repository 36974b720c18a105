#include "base/thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

class Threads : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_threads(GetParam()); }
  void TearDown() override { set_threads(0); }
};
INSTANTIATE_TEST_SUITE_P(Counts, Threads, testing::Values(1, 2, 5));

TEST_P(Threads, EveryIndexOnce) {
  for (const int64_t count : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    parallel_for(count, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
    for (const auto& n : seen) EXPECT_EQ(n, 1);
  }
}

TEST_P(Threads, RangesCoverWithoutOverlap) {
  for (const int64_t count : {0, 1, 3, 100, 101}) {
    for (const int64_t grain : {0, 1, 50, 1000}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      parallel_ranges(count, grain, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& n : seen) EXPECT_EQ(n, 1);
    }
  }
}

TEST_P(Threads, AnExceptionComesOut) {
  std::atomic<int> ran{0};
  EXPECT_THROW(parallel_for(20,
                            [&](int64_t i) {
                              ++ran;
                              if (i == 3) throw std::runtime_error("three");
                            }),
               std::runtime_error);
  EXPECT_GE(ran, 1);
}

TEST(ThreadCount, Checked) {
  expect_error([] { set_threads(-1); }, ErrorCode::usage, {"-1", "positive"});
  set_threads(3);
  EXPECT_EQ(threads(), 3);
  set_threads(0);
  EXPECT_GE(threads(), 1);
}

}  // namespace
}  // namespace unchain::test
