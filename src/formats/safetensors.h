// Safetensors, single file or sharded: read through a memory map, and written.
//
// The file: u64 little-endian length of the header; the header, a JSON object name → {"dtype", "shape", "data_offsets"}
// and optionally "__metadata__" (strings only); the data, which the tensors cover without holes or overlaps.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/tensor.h"

namespace unchain::formats {

class SafetensorsFile {
 public:
  // One file. Errors: io; format (damaged); unsupported (element type).
  static SafetensorsFile open(const std::filesystem::path& path);
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                               const std::string& name);
  // A model folder: `model.safetensors`, or the shards that `model.safetensors.index.json` names (plain file names
  // inside the folder only). Errors: as open(), io for a missing shard, format for an index that disagrees with a
  // shard.
  static SafetensorsFile open_folder(const std::filesystem::path& folder);

  const std::vector<Tensor>& tensors() const { return tensors_; }  // by name
  const Tensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Writes one file atomically. Header padded with blanks so that the data begin at a multiple of 64.
// Errors: io; usage (two tensors of one name, a bad name); unsupported (a quantised type); format (bytes of a tensor do
// not fit its type and shape).
void write_safetensors(const std::filesystem::path& path, const std::vector<Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// Writes `model.safetensors` into the folder, or shards of at most `shard_bytes` of data (or one tensor) and
// their index. The folder is created if absent. Errors: as write_safetensors().
void write_safetensors_folder(const std::filesystem::path& folder, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {},
                              size_t shard_bytes = size_t{5} << 30);

}  // namespace unchain::formats
