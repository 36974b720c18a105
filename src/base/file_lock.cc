#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace unchain {
namespace {

int open_lock(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) fail(ErrorCode::io, "{}: cannot open: {}", path.string(), std::strerror(errno));
  return descriptor;
}

// False if another has it and `flags` do not wait.
bool take(int descriptor, int flags, const std::filesystem::path& path) {
  while (::flock(descriptor, flags) != 0) {
    if (errno == EINTR) continue;
    const int error = errno;
    ::close(descriptor);
    if (error == EWOULDBLOCK) return false;
    fail(ErrorCode::io, "{}: cannot be locked: {}", path.string(), std::strerror(error));
  }
  return true;
}

}  // namespace

std::optional<FileLock> FileLock::try_lock(const std::filesystem::path& path) {
  const int descriptor = open_lock(path);
  if (!take(descriptor, LOCK_EX | LOCK_NB, path)) return {};
  return FileLock(descriptor);
}

FileLock FileLock::lock(const std::filesystem::path& path) {
  const int descriptor = open_lock(path);
  take(descriptor, LOCK_EX, path);
  return FileLock(descriptor);
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace unchain
