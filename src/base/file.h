// Files, without surprises: read-only maps of regular files, and writing that leaves either the whole new file under
// its name or what was there before.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

namespace unchain {

// A read-only memory map of a regular file. Cheap to copy: copies share the map, which lives as long as the last of
// them.
class MappedFile {
 public:
  // Errors: io (absent, a directory, a device, no permission, cannot be mapped). An empty file gives an empty span.
  static MappedFile open(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return *path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Keeps the map alive for as long as the pointer (or a copy) lives.
  std::shared_ptr<const void> owner() const { return owner_; }
  // Tells the system that these bytes are not needed in memory any more (they can be read again at any time).
  void release_pages() const;

 private:
  std::shared_ptr<const std::filesystem::path> path_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

// The whole of a (small) regular file as a string. Errors: io; format if it has more than `limit` bytes.
std::string read_text(const std::filesystem::path& path, size_t limit = size_t{1} << 32);

// Writes to a temporary file beside `path`; commit() makes it durable and renames it over `path`. Without commit the
// destructor removes the temporary file. Not thread-safe. Errors: io, with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  size_t position() const { return position_; }
  void commit();

 private:
  void put(const char* data, size_t bytes);
  void flush();
  std::filesystem::path path_, temporary_;
  std::string buffer_;
  int descriptor_ = -1;
  size_t position_ = 0;
};

// PATH.PID.KIND: the name, beside `path`, of what this process has not finished of it. A slash at the end is ignored.
std::filesystem::path unfinished(const std::filesystem::path& path, std::string_view kind);

// Held while an unfinished file or folder comes into being. Who is about to end the process
// holds it for good: then nothing new appears behind its back, and what is there can be removed.
std::unique_lock<std::mutex> hold_new_files();

// The new, empty folder unfinished(folder, "incomplete"), in which what `folder` is to hold is written before it takes
// that name; missing folders above it are made. Error: io.
std::filesystem::path make_unfinished_folder(const std::filesystem::path& folder);

// Removes all files and folders PATH.PID.… of this process. May run while other threads write them, whose next step
// then fails.
void remove_unfinished(const std::filesystem::path& path) noexcept;

// Throws what AtomicFile(path) would, and leaves nothing behind: for outputs that come after long work. Error: io.
void check_writable(const std::filesystem::path& path);

// AtomicFile for a text that is already whole.
void write_text(const std::filesystem::path& path, std::string_view text);

}  // namespace unchain
