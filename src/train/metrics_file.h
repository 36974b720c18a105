// metrics.jsonl: one JSON object a step, whole lines only. Holds a lock, so that two runs cannot share a folder.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace unchain::train {

class MetricsFile {
 public:
  // Errors: io (cannot be opened; another process writes it).
  explicit MetricsFile(const std::filesystem::path& path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Cuts off all from the first line on that is of a later step, or torn.
  void truncate_to_step(int64_t step);
  // Error: io (a full disk).
  void append(const nlohmann::ordered_json& line);

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace unchain::train
