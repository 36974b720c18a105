// A lock that processes of one machine, or of one shared file system, hold against each other; it goes with the process
// that holds it, however that ends.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>

namespace unchain {

class FileLock {
 public:
  // The lock behind the file, which is made if need be, with the folders above it, and stays. Absent if another holder
  // has it. Error: io.
  static std::optional<FileLock> try_lock(const std::filesystem::path& path);
  // Waits for it.
  static FileLock lock(const std::filesystem::path& path);

  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace unchain
