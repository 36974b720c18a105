#include "train/metrics_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/file.h"

namespace unchain::train {

MetricsFile::MetricsFile(const std::filesystem::path& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(ErrorCode::io, "{}: cannot open: {}", path.string(), std::strerror(errno));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor_);
    fail(ErrorCode::io, "{}: another run is writing it; wait for its end, or give another folder", path.string());
  }
}

MetricsFile::~MetricsFile() {
  ::close(descriptor_);
}

void MetricsFile::truncate_to_step(int64_t step) {
  const std::string text = read_text(path_);
  size_t kept = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', kept)) {
    const auto line = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(kept),
                                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer() || line["step"] > step) break;
    kept = end + 1;
  }
  if (::ftruncate(descriptor_, static_cast<off_t>(kept)) != 0)
    fail(ErrorCode::io, "{}: cannot be cut: {}", path_.string(), std::strerror(errno));
}

void MetricsFile::append(const nlohmann::ordered_json& line) {
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = ::write(descriptor_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail(ErrorCode::io, "{}: cannot write: {}", path_.string(), std::strerror(errno));
    done += static_cast<size_t>(wrote);
  }
}

}  // namespace unchain::train
