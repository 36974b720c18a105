// Model folders: one `model.safetensors`, or shards and the index that says which tensor lies in which.
#include <algorithm>
#include <set>

#include "base/check.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/safetensors_types.h"
#include "formats/text.h"

namespace unchain::formats {
namespace {

namespace fs = std::filesystem;
using WeightMap = std::map<std::string, std::string>;  // tensor to shard

// A shard must be a plain name: nothing that leads out of the folder.
bool plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

WeightMap read_index(const fs::path& path) {
  const std::string where = path.string();
  const nlohmann::json index = parse_json(read_text(path, size_t{100'000'000}), where);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    fail(ErrorCode::format, "{}: has no object \"weight_map\"; the file is damaged", where);
  }
  WeightMap map;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || !plain_file_name(shard.get_ref<const std::string&>())) {
      fail(ErrorCode::format, "{}: tensor {}: lies in {}, expected the name of a file in the same folder", where,
           printable(tensor), printable(shard.dump()));
    }
    map[tensor] = shard.get<std::string>();
  }
  return map;
}

bool present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

}  // namespace

SafetensorsFile SafetensorsFile::open_folder(const fs::path& folder) {
  const fs::path single = folder / kSingleFile, index_path = folder / kIndexFile;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored))
    fail(ErrorCode::io, "{}: is no folder, expected one that holds {}", folder.string(), kSingleFile);
  if (present(single)) return open(single);
  if (!present(index_path)) {
    fail(ErrorCode::io, "{}: holds neither {} nor {}; the download is incomplete or this is no model folder",
         folder.string(), kSingleFile, kIndexFile);
  }
  const WeightMap map = read_index(index_path);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map) shards.insert(shard);
  SafetensorsFile all;
  for (const std::string& shard : shards) {
    const fs::path path = folder / shard;
    if (!present(path))
      fail(ErrorCode::io, "{}: is missing, but {} names it; the download is incomplete", path.string(), kIndexFile);
    SafetensorsFile part = open(path);
    for (Tensor& tensor : part.tensors_) {
      const auto entry = map.find(tensor.name);
      if (entry == map.end() || entry->second != shard) {
        fail(ErrorCode::format, "{}: holds tensor {}, but {} {}; index and shards are not of one model", path.string(),
             printable(tensor.name), kIndexFile,
             entry == map.end() ? "does not name it" : "says that it lies in " + printable(entry->second));
      }
      all.tensors_.push_back(std::move(tensor));
    }
    all.metadata_.merge(part.metadata_);
  }
  std::sort(all.tensors_.begin(), all.tensors_.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (const auto& [tensor, shard] : map) {
    if (!all.find(tensor)) {
      fail(ErrorCode::format,
           "{}: says that tensor {} lies in {}, which does not hold it; index and shards are not of one model",
           index_path.string(), printable(tensor), printable(shard));
    }
  }
  return all;
}

void write_safetensors_folder(const fs::path& folder, const std::vector<Tensor>& tensors,
                              const std::map<std::string, std::string>& metadata, size_t shard_bytes) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorCode::io, "{}: cannot create the folder: {}", folder.string(), error.message());
  std::vector<std::vector<Tensor>> shards(1);
  std::set<std::string_view> names;
  size_t total = 0, filled = 0;
  for (const Tensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      fail(ErrorCode::usage, "{}: tensor {}: is given twice, expected distinct names", folder.string(),
           printable(tensor.name));
    }
    if (!shards.back().empty() && (tensor.bytes.size() > shard_bytes || filled > shard_bytes - tensor.bytes.size())) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += tensor.bytes.size();
    total += tensor.bytes.size();
  }
  const fs::path single = folder / kSingleFile, index_path = folder / kIndexFile;
  if (shards.size() == 1) {
    write_safetensors(single, tensors, metadata);
    fs::remove(index_path, error);
    return;
  }
  // The index goes first and comes last, so that no reader ever takes a set of old and new shards for a model.
  fs::remove(index_path, error);
  nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}},
                                  {"weight_map", nlohmann::ordered_json::object()}};
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    write_safetensors(folder / name, shards[i], metadata);
    for (const Tensor& tensor : shards[i]) index["weight_map"][tensor.name] = name;
  }
  write_text(index_path, index.dump(2) + "\n");
  fs::remove(single, error);  // an older single file would hide the shards
}

}  // namespace unchain::formats
