#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace unchain {
namespace {

std::string reason() {
  return std::strerror(errno);
}

// A descriptor that closes itself.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

// Opens a regular file for reading. O_NONBLOCK keeps a pipe or device without a peer from blocking in open().
int open_regular(const std::filesystem::path& path, size_t& bytes) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(ErrorCode::io, "{}: cannot open: {}", path.string(), reason());
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    const bool folder = S_ISDIR(info.st_mode);
    ::close(descriptor);
    fail(ErrorCode::io, "{}: is {}, expected a regular file", path.string(),
         folder ? "a directory" : "a device or pipe");
  }
  bytes = static_cast<size_t>(info.st_size);
  return descriptor;
}

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  size_t bytes = 0;
  const Descriptor file{open_regular(path, bytes)};
  MappedFile result;
  result.path_ = std::make_shared<const std::filesystem::path>(path);
  if (bytes == 0) return result;
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (data == MAP_FAILED) fail(ErrorCode::io, "{}: cannot map {} bytes: {}", path.string(), bytes, reason());
  result.owner_ = std::shared_ptr<const void>(data, [bytes](const void* p) { ::munmap(const_cast<void*>(p), bytes); });
  result.bytes_ = {static_cast<const std::byte*>(data), bytes};
  return result;
}

void MappedFile::release_pages() const {
  if (!bytes_.empty()) ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

std::string read_text(const std::filesystem::path& path, size_t limit) {
  size_t bytes = 0;
  const Descriptor file{open_regular(path, bytes)};
  if (bytes > limit) fail(ErrorCode::format, "{}: has {} bytes, expected at most {}", path.string(), bytes, limit);
  std::string text(bytes, '\0');
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::read(file.value, text.data() + done, bytes - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(ErrorCode::io, "{}: cannot read: {}", path.string(), reason());
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  text.resize(done);
  return text;
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  // Renaming over a device would replace it: only a regular file may be in the way.
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(ErrorCode::io, "{}: is {}, expected a file name to write", path.string(),
         std::filesystem::is_directory(status) ? "a directory" : "a device or pipe");
  }
  temporary_ = unfinished(path, "tmp");
  const auto hold = hold_new_files();
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    const int error = errno;
    const std::filesystem::path folder = path.parent_path();
    // /proc says "no such file" too.
    if (error == ENOENT && !folder.empty() && !std::filesystem::exists(folder, unknown))
      fail(ErrorCode::io, "{}: the folder {} does not exist; make it first", path.string(), folder.string());
    errno = error;
    fail(ErrorCode::io, "{}: cannot create: {}", path.string(), reason());
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  constexpr size_t kBuffer = size_t{1} << 20;
  if (bytes == 0) return;
  position_ += bytes;
  if (buffer_.size() + bytes > kBuffer) flush();
  if (bytes > kBuffer) {
    put(static_cast<const char*>(data), bytes);
  } else {
    buffer_.append(static_cast<const char*>(data), bytes);
  }
}

void AtomicFile::put(const char* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t wrote = ::write(descriptor_, data + done, bytes - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(ErrorCode::io, "{}: cannot write: {}", path_.string(), reason());
    done += static_cast<size_t>(wrote);
  }
}

void AtomicFile::flush() {
  put(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::commit() {
  flush();
  if (::fsync(descriptor_) != 0 && errno != EINVAL)
    fail(ErrorCode::io, "{}: cannot write: {}", path_.string(), reason());
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const std::string why = reason();
    ::unlink(temporary_.c_str());
    fail(ErrorCode::io, "{}: cannot put the finished file in place: {}", path_.string(), why);
  }
}

std::filesystem::path unfinished(const std::filesystem::path& path, std::string_view kind) {
  std::filesystem::path result = path.has_filename() ? path : path.parent_path();
  result += fmt::format(".{}.{}", ::getpid(), kind);
  return result;
}

std::unique_lock<std::mutex> hold_new_files() {
  static std::mutex& mutex = *new std::mutex;  // never destroyed: a process that ends may hold it
  return std::unique_lock(mutex);
}

std::filesystem::path make_unfinished_folder(const std::filesystem::path& folder) {
  std::filesystem::path building = unfinished(folder, "incomplete");
  const auto hold = hold_new_files();
  std::error_code error;
  std::filesystem::create_directories(building, error);
  if (error) fail(ErrorCode::io, "{}: cannot be made: {}", building.string(), error.message());
  return building;
}

void remove_unfinished(const std::filesystem::path& path) noexcept {
  try {
    const std::filesystem::path pattern = unfinished(path, ""), removed = unfinished(path, "removed");
    const std::filesystem::path folder = pattern.has_parent_path() ? pattern.parent_path() : ".";
    // Again while another thread adds files.
    bool again = true;
    for (int i = 0; again && i < 100; ++i) {
      again = false;
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (!entry.path().filename().native().starts_with(pattern.filename().native())) continue;
        // Renamed first, so that another thread can no more rename to its final name what is half removed.
        std::error_code ignored;
        std::filesystem::rename(entry.path(), removed, ignored);
        std::filesystem::remove_all(removed, ignored);
        again = true;
      }
    }
  } catch (const std::exception&) {  // no folder, no memory: nothing that could be done here
    return;
  }
}

void check_writable(const std::filesystem::path& path) {
  const AtomicFile probe(path);  // its temporary file goes at once
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace unchain
