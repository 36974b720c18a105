#include <algorithm>
#include <cstring>
#include <set>

#include "base/check.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/safetensors_types.h"
#include "formats/text.h"

namespace unchain::formats {
namespace {

constexpr size_t kDataAlignment = 64;

void check_tensor(const std::string& path, const Tensor& tensor, std::set<std::string_view>& seen) {
  if (!valid_utf8(tensor.name) || tensor.name == kMetadataKey) {
    fail(ErrorCode::usage, "{}: tensor '{}': expected a name in UTF-8 other than {}", path, printable(tensor.name),
         kMetadataKey);
  }
  const std::string where = fmt::format("{}: tensor {}", path, printable(tensor.name));
  if (!seen.insert(tensor.name).second) fail(ErrorCode::usage, "{}: is given twice, expected distinct names", where);
  if (!safetensors_of_dtype(tensor.type)) {
    fail(ErrorCode::unsupported, "{}: safetensors has no type for {}; convert it to f32, f16 or bf16", where,
         info(tensor.type).name);
  }
  const int64_t needed = byte_count(tensor.type, tensor.shape);
  if (static_cast<uint64_t>(needed) != tensor.bytes.size()) {
    fail(ErrorCode::format, "{}: has {} bytes, {} of shape {} needs {}", where, tensor.bytes.size(),
         info(tensor.type).name, to_string(tensor.shape), needed);
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::set<std::string_view> seen;
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors) {
    check_tensor(path.string(), tensor, seen);
    order.push_back(&tensor);
  }
  for (const auto& [key, value] : metadata) {
    if (!valid_utf8(key) || !valid_utf8(value)) {
      fail(ErrorCode::usage, "{}: metadata \"{}\": expected UTF-8", path.string(), printable(key));
    }
  }
  // Wide elements first: then every tensor begins at a multiple of its element.
  std::stable_sort(order.begin(), order.end(),
                   [](const Tensor* a, const Tensor* b) { return info(a->type).bytes > info(b->type).bytes; });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  uint64_t offset = 0;
  for (const Tensor* tensor : order) {
    const uint64_t end = offset + tensor->bytes.size();
    header[tensor->name] = {
        {"dtype", *safetensors_of_dtype(tensor->type)}, {"shape", tensor->shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  while ((sizeof(uint64_t) + text.size()) % kDataAlignment != 0) text += ' ';
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.write(&length, sizeof(length));
  file.write(text);
  for (const Tensor* tensor : order) file.write(tensor->bytes.data(), tensor->bytes.size());
  file.commit();
}

}  // namespace unchain::formats
