#include "base/file_lock.h"

#include <atomic>
#include <thread>

#include "support/temporary_folder.h"

namespace unchain {
namespace {

TEST(FileLock, OneHolderAtATime) {
  const test::TemporaryFolder folder;
  const auto path = folder / "locks/a";
  {
    const auto held = FileLock::try_lock(path);
    ASSERT_TRUE(held);
    EXPECT_FALSE(FileLock::try_lock(path));
    EXPECT_TRUE(FileLock::try_lock(folder / "locks/b"));
  }
  EXPECT_TRUE(FileLock::try_lock(path)) << "let go";
}

TEST(FileLock, MovingKeepsIt) {
  const test::TemporaryFolder folder;
  auto first = FileLock::try_lock(folder / "a");
  const FileLock second = std::move(*first);
  first.reset();
  EXPECT_FALSE(FileLock::try_lock(folder / "a"));
}

TEST(FileLock, WaitsForTheHolder) {
  const test::TemporaryFolder folder;
  std::atomic<bool> let_go = false;
  auto held = std::make_unique<FileLock>(FileLock::lock(folder / "a"));
  std::thread waiting([&] {
    const FileLock lock = FileLock::lock(folder / "a");
    EXPECT_TRUE(let_go);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  let_go = true;
  held.reset();
  waiting.join();
}

TEST(FileLock, BadPath) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "file", "x");
  test::expect_error([&] { FileLock::try_lock(folder / "file/a"); }, ErrorCode::io, {"file/a", "cannot open"});
}

}  // namespace
}  // namespace unchain
