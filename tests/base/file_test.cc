#include "base/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

constexpr auto kIo = ErrorCode::io;

TEST(MappedFile, BytesOutliveTheObject) {
  TemporaryFolder folder;
  write_file(folder / "a", "hello");
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  {
    const MappedFile file = MappedFile::open(folder / "a");
    owner = file.owner();
    bytes = file.bytes();
    EXPECT_EQ(file.path(), folder / "a");
    file.release_pages();
  }
  std::filesystem::remove(folder / "a");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "hello");
}

TEST(MappedFile, EmptyFileIsAnEmptySpan) {
  TemporaryFolder folder;
  write_file(folder / "a", "");
  const MappedFile file = MappedFile::open(folder / "a");
  EXPECT_TRUE(file.bytes().empty());
  file.release_pages();
  EXPECT_EQ(read_text(folder / "a"), "");
}

// What both ways of reading must refuse.
void expect_unreadable(const std::filesystem::path& path, const std::string& part) {
  expect_error([&] { MappedFile::open(path); }, kIo, {path.string(), part});
  expect_error([&] { read_text(path); }, kIo, {path.string(), part});
}

TEST(Files, NotRegular) {
  TemporaryFolder folder;
  expect_unreadable(folder.path(), "is a directory");
  expect_unreadable("/dev/null", "device or pipe");
  expect_unreadable("/dev/zero", "device or pipe");
  expect_unreadable(folder / "absent", "No such file");
  expect_unreadable(folder / std::string(5000, 'x'), "cannot open");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_unreadable(folder / "pipe", "device or pipe");
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  expect_unreadable(folder / "loop", "cannot open");
}

TEST(Files, NoPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  TemporaryFolder folder;
  write_file(folder / "a", "x");
  ::chmod((folder / "a").c_str(), 0);
  expect_unreadable(folder / "a", "Permission denied");
}

TEST(Files, TextLimit) {
  TemporaryFolder folder;
  write_file(folder / "a", "12345");
  EXPECT_EQ(read_text(folder / "a", 5), "12345");
  expect_error([&] { read_text(folder / "a", 4); }, ErrorCode::format, {"5 bytes", "at most 4"});
}

TEST(AtomicFile, CommitPutsTheWholeFileInPlace) {
  TemporaryFolder folder;
  write_file(folder / "a", "old");
  const std::string large(3 << 20, 'x');
  {
    AtomicFile file(folder / "a");
    file.write("begin ");
    file.write(large);
    file.write("");
    file.write(" end");
    EXPECT_EQ(file.position(), large.size() + 10);
    EXPECT_EQ(read_file(folder / "a"), "old");
    file.commit();
  }
  EXPECT_EQ(read_file(folder / "a"), "begin " + large + " end");
  EXPECT_EQ(folder.files(), 1u);
}

TEST(AtomicFile, WithoutCommitNothingChanges) {
  TemporaryFolder folder;
  write_file(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write(std::string(3 << 20, 'x'));
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(folder.files(), 1u);
  { AtomicFile file(folder / "b"); }
  EXPECT_EQ(folder.files(), 1u);
}

TEST(AtomicFile, RefusesWhatIsNoFile) {
  TemporaryFolder folder;
  expect_error([&] { AtomicFile file(folder.path()); }, kIo, {"is a directory"});
  expect_error([&] { AtomicFile file("/dev/null"); }, kIo, {"/dev/null", "device"});
  expect_error([&] { AtomicFile file(folder / "no" / "a"); }, kIo, {"the folder ", "no does not exist"});
  expect_error([&] { AtomicFile file(folder / std::string(5000, 'x')); }, kIo, {"cannot create"});
}

TEST(Unfinished, OnlyThoseOfThisFileAndProcessGo) {
  TemporaryFolder folder;
  const std::filesystem::path out = folder / "out", half = unfinished(folder / "out/", "incomplete");
  EXPECT_EQ(half, unfinished(out, "incomplete"));
  EXPECT_EQ(half.parent_path(), folder.path());
  std::filesystem::create_directory(half);
  write_file(half / "a", "x");
  write_file(unfinished(out, "tmp"), "x");
  for (const char* other : {"out", "out2", "out.1.tmp", "out.tmp"}) write_file(folder / other, "kept");
  remove_unfinished(out);
  EXPECT_EQ(folder.files(), 4u);
  EXPECT_FALSE(std::filesystem::exists(half));
  remove_unfinished(folder / "no" / "a");
}

TEST(Unfinished, WritableLeavesNothing) {
  TemporaryFolder folder;
  check_writable(folder / "a");
  EXPECT_EQ(folder.files(), 0u);
  write_file(folder / "a", "kept");
  check_writable(folder / "a");
  EXPECT_EQ(read_file(folder / "a"), "kept");
  EXPECT_EQ(folder.files(), 1u);
  expect_error([&] { check_writable(folder.path()); }, kIo, {"is a directory"});
  expect_error([&] { check_writable(folder / "a" / "b"); }, kIo, {"cannot create"});
}

// A full disk, played by a limit on the size of files.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    old_ = ::signal(SIGXFSZ, SIG_IGN);
    rlimit now = before_;
    now.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, old_);
  }

 private:
  rlimit before_{};
  void (*old_)(int) = SIG_DFL;
};

TEST(AtomicFile, FullDiskKeepsTheOldFile) {
  for (const size_t bytes : {size_t{200'000}, size_t{5} << 20}) {  // fails in commit(), fails in write()
    TemporaryFolder folder;
    write_file(folder / "a", "old");
    {
      const FileSizeLimit limit(100'000);
      expect_error([&] { write_text(folder / "a", std::string(bytes, 'x')); }, kIo, {"cannot write", "File too large"});
    }
    EXPECT_EQ(read_file(folder / "a"), "old");
    EXPECT_EQ(folder.files(), 1u);
  }
}

}  // namespace
}  // namespace unchain::test
