// Reads safetensors. The header is JSON from a stranger: every field is checked for kind and range before it is used.
#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "formats/aligned.h"
#include "formats/json.h"
#include "formats/safetensors_types.h"
#include "formats/text.h"

namespace unchain::formats {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kMaxHeader = 100'000'000;  // as the format's own library limits it
constexpr int kDepth = 4;                     // object, tensor, list, and one to spare

struct Placed {
  Tensor tensor;
  uint64_t begin, end;
};

// A number of the header: a JSON integer from 0 to 2^63 - 1.
uint64_t read_size(const json& value, const std::string& where, const char* what) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    fail(ErrorCode::format, "{}: {} holds {}, expected an integer from 0 to 2^63 - 1; the file is damaged", where, what,
         value.is_primitive() ? printable(value.dump(-1, ' ', true)) : value.type_name());
  }
  return value.get<uint64_t>();
}

const json& field(const json& entry, const std::string& where, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end()) fail(ErrorCode::format, "{}: has no {}; the file is damaged", where, key);
  return *found;
}

const json& list(const json& entry, const std::string& where, const char* key) {
  const json& value = field(entry, where, key);
  if (!value.is_array())
    fail(ErrorCode::format, "{}: {} is a JSON {}, expected an array; the file is damaged", where, key,
         value.type_name());
  return value;
}

Placed read_entry(const std::string& name, const json& entry, const std::string& where) {
  if (!entry.is_object())
    fail(ErrorCode::format, "{}: is a JSON {}, expected an object; the file is damaged", where, entry.type_name());
  const json& type = field(entry, where, "dtype");
  if (!type.is_string())
    fail(ErrorCode::format, "{}: dtype is a JSON {}, expected a string; the file is damaged", where, type.type_name());
  const auto dtype = dtype_of_safetensors(type.get_ref<const std::string&>());
  if (!dtype) {
    fail(ErrorCode::unsupported, "{}: dtype {} is not supported; use a file of F32, F16 or BF16 tensors", where,
         printable(type.get_ref<const std::string&>()));
  }
  Placed placed{{name, *dtype, {}, {}, nullptr}, 0, 0};
  for (const json& size : list(entry, where, "shape")) {
    placed.tensor.shape.push_back(static_cast<int64_t>(read_size(size, where, "shape")));
  }
  const json& offsets = list(entry, where, "data_offsets");
  if (offsets.size() != 2) {
    fail(ErrorCode::format, "{}: data_offsets has {} numbers, expected begin and end; the file is damaged", where,
         offsets.size());
  }
  placed.begin = read_size(offsets[0], where, "data_offsets");
  placed.end = read_size(offsets[1], where, "data_offsets");
  if (placed.begin > placed.end) {
    fail(ErrorCode::format, "{}: data_offsets {} to {} run backwards; the file is damaged", where, placed.begin,
         placed.end);
  }
  int64_t needed = 0;
  try {
    needed = byte_count(placed.tensor.type, placed.tensor.shape);
  } catch (const Error& e) {
    fail(ErrorCode::format, "{}: {}; the file is damaged", where, e.what());
  }
  if (placed.end - placed.begin != static_cast<uint64_t>(needed)) {
    fail(ErrorCode::format, "{}: has {} bytes, {} of shape {} needs {}; the file is damaged", where,
         placed.end - placed.begin, info(placed.tensor.type).name, to_string(placed.tensor.shape), needed);
  }
  return placed;
}

void read_metadata(const json& entry, const std::string& where, std::map<std::string, std::string>& out) {
  if (!entry.is_object())
    fail(ErrorCode::format, "{}: is a JSON {}, expected an object; the file is damaged", where, entry.type_name());
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) {
      fail(ErrorCode::format, "{}: \"{}\" is a JSON {}, expected a string; the file is damaged", where, printable(key),
           value.type_name());
    }
    out[key] = value.get<std::string>();
  }
}

// The data must be covered from the first byte to the last, without holes or overlaps.
void check_cover(const std::vector<Placed>& tensors, uint64_t size, uint64_t file_size, const std::string& name) {
  std::vector<const Placed*> order;
  for (const Placed& p : tensors) {
    if (p.end > size) {
      fail(ErrorCode::format,
           "{}: tensor {}: data_offsets {} to {} go past the end of the {} bytes of data (the file has {}); the "
           "download is incomplete",
           name, printable(p.tensor.name), p.begin, p.end, size, file_size);
    }
    order.push_back(&p);
  }
  std::sort(order.begin(), order.end(),
            [](const Placed* a, const Placed* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  uint64_t end = 0;
  for (const Placed* p : order) {
    if (p->begin != end) {
      fail(ErrorCode::format, "{}: tensor {}: data_offsets begin at {}, expected {} ({}); the file is damaged", name,
           printable(p->tensor.name), p->begin, end,
           p->begin > end ? "a hole in the data" : "it overlaps another tensor");
    }
    end = p->end;
  }
  if (end != size)
    fail(ErrorCode::format, "{}: the tensors end at byte {} of {} bytes of data; the file is damaged", name, end, size);
}

// The header's text, after checking its length.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& name) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    fail(ErrorCode::format,
         "{}: not a safetensors file: it has {} bytes, expected at least 8; the download is incomplete", name,
         bytes.size());
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  const bool object = bytes.size() > 8 && static_cast<char>(bytes[8]) == '{';
  if (length > kMaxHeader || (bytes.size() > 8 && !object)) {
    fail(ErrorCode::format,
         "{}: not a safetensors file: {}; expected a header of 2 to {} bytes that begins with {{, found length {}",
         name, describe_start(bytes), kMaxHeader, length);
  }
  if (length > bytes.size() - sizeof(length)) {
    fail(ErrorCode::format,
         "{}: the header has {} bytes and ends past the end of the file ({} bytes); the download is incomplete", name,
         length, bytes.size());
  }
  return {reinterpret_cast<const char*>(bytes.data()) + sizeof(length), length};
}

}  // namespace

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                       const std::string& name) {
  const std::string_view text = header_text(bytes, name);
  const json header = parse_json(text, name + ": header", kDepth);
  if (!header.is_object())
    fail(ErrorCode::format, "{}: the header is a JSON {}, expected an object; the file is damaged", name,
         header.type_name());
  const std::span<const std::byte> data = bytes.subspan(sizeof(uint64_t) + text.size());
  SafetensorsFile file;
  std::vector<Placed> placed;
  // JSON objects come sorted by key: the tensors are in order of name.
  for (const auto& [key, entry] : header.items()) {
    if (key == kMetadataKey) {
      read_metadata(entry, name + ": " + std::string(kMetadataKey), file.metadata_);
    } else {
      placed.push_back(read_entry(key, entry, name + ": tensor " + printable(key)));
    }
  }
  check_cover(placed, data.size(), bytes.size(), name);
  for (Placed& p : placed) {
    p.tensor.bytes = data.subspan(p.begin, p.end - p.begin);
    p.tensor.owner = owner;
    file.tensors_.push_back(aligned(std::move(p.tensor)));
  }
  return file;
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  const MappedFile map = MappedFile::open(path);
  return parse(map.bytes(), map.owner(), path.string());
}

const Tensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const Tensor& t, std::string_view n) { return t.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace unchain::formats
