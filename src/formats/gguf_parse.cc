// Reads a GGUF file. Every number comes from a stranger: each is checked against what is left of the file, in a form
// that cannot overflow, before it is used as a length, count or offset.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "formats/aligned.h"
#include "formats/gguf.h"
#include "formats/gguf_types.h"
#include "formats/text.h"

namespace unchain::formats {
namespace {

static_assert(std::endian::native == std::endian::little);

// Smallest sizes in the file, to hold counts against the bytes that are left.
constexpr uint64_t kMinEntry = 8 + 4 + 1;
constexpr uint64_t kMinTensor = 8 + 4 + 4 + 8;

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, const std::string& name)
      : bytes_(bytes), owner_(std::move(owner)), name_(name) {}

  uint32_t read_header(uint64_t& tensors, uint64_t& entries);
  std::vector<GgufEntry> read_metadata(uint64_t count);
  std::vector<Tensor> read_tensors(uint64_t count, uint64_t alignment);

 private:
  struct Placed {
    Tensor tensor;
    uint64_t offset, size;
  };

  template <class... Args>
  [[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::format, "{}: {}: {}", name_, where_, fmt::format(format, std::forward<Args>(args)...));
  }
  uint64_t left() const { return bytes_.size() - position_; }
  const std::byte* take(uint64_t bytes, const char* what);
  template <class T>
  T read(const char* what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }
  std::string read_string(const char* what);
  std::string read_name(const char* what);
  bool read_bool();
  uint64_t read_count(uint64_t smallest, const char* what);
  GgufValue read_value(uint32_t type);
  std::shared_ptr<const GgufArray> read_array(int depth);
  template <class T>
  std::vector<T> read_elements(uint64_t count, int depth);
  Placed read_tensor(uint64_t alignment);
  void place(std::vector<Placed>& tensors, uint64_t start) const;

  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
  const std::string& name_;
  std::string where_ = "header";
  uint64_t position_ = 0;
};

const std::byte* Parser::take(uint64_t bytes, const char* what) {
  if (bytes > left()) {
    damaged("{} at offset {} needs {} bytes, the file ends at {}; the download is incomplete or the file is damaged",
            what, position_, bytes, bytes_.size());
  }
  const std::byte* data = bytes_.data() + position_;
  position_ += bytes;
  return data;
}

std::string Parser::read_string(const char* what) {
  const auto bytes = read<uint64_t>(what);
  const std::byte* data = take(bytes, what);
  return {reinterpret_cast<const char*>(data), bytes};
}

std::string Parser::read_name(const char* what) {
  const uint64_t at = position_;
  std::string name = read_string(what);
  if (name.empty() || name.size() > kMaxNameBytes) {
    damaged("{} at offset {} has {} bytes, expected 1 to {}; the file is damaged", what, at, name.size(),
            kMaxNameBytes);
  }
  if (!valid_utf8(name))
    damaged("{} at offset {} is '{}', expected UTF-8; the file is damaged", what, at, printable(name));
  return name;
}

bool Parser::read_bool() {
  const auto value = read<uint8_t>("bool");
  if (value > 1) damaged("bool at offset {} is {}, expected 0 or 1; the file is damaged", position_ - 1, value);
  return value == 1;
}

uint64_t Parser::read_count(uint64_t smallest, const char* what) {
  const uint64_t at = position_;
  const auto count = read<uint64_t>(what);
  if (count > left() / smallest) {
    damaged(
        "{} at offset {} is {}, the {} bytes left hold at most {}; the download is incomplete or the file is damaged",
        what, at, count, left(), left() / smallest);
  }
  return count;
}

template <class T>
std::vector<T> Parser::read_elements(uint64_t count, int depth) {
  std::vector<T> list;
  if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
    list.resize(count);
    if (count > 0) std::memcpy(list.data(), take(count * sizeof(T), "array"), count * sizeof(T));
  } else {
    list.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, bool>) list.push_back(read_bool());
      if constexpr (std::is_same_v<T, std::string>) list.push_back(read_string("string"));
      if constexpr (std::is_same_v<T, std::shared_ptr<const GgufArray>>) list.push_back(read_array(depth + 1));
    }
  }
  return list;
}

std::shared_ptr<const GgufArray> Parser::read_array(int depth) {
  if (depth > kMaxArrayDepth)
    damaged("arrays are nested more than {} deep at offset {}; the file is damaged", kMaxArrayDepth, position_);
  const auto type = read<uint32_t>("element type");
  const auto index = index_of_value_type(type);
  if (!index)
    damaged("array elements at offset {} have type {}, expected 0 to 12; the file is damaged", position_ - 4, type);
  // Bytes of the smallest element, in the order of GgufValue: a string is at least its length, an array type and count.
  static constexpr uint64_t kSmallest[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 8, 8, 8, 12};
  const uint64_t count = read_count(kSmallest[*index], "array count");
  auto array = std::make_shared<GgufArray>();
  switch (*index) {
    case 0:
      array->elements = read_elements<uint8_t>(count, depth);
      break;
    case 1:
      array->elements = read_elements<int8_t>(count, depth);
      break;
    case 2:
      array->elements = read_elements<uint16_t>(count, depth);
      break;
    case 3:
      array->elements = read_elements<int16_t>(count, depth);
      break;
    case 4:
      array->elements = read_elements<uint32_t>(count, depth);
      break;
    case 5:
      array->elements = read_elements<int32_t>(count, depth);
      break;
    case 6:
      array->elements = read_elements<float>(count, depth);
      break;
    case 7:
      array->elements = read_elements<bool>(count, depth);
      break;
    case 8:
      array->elements = read_elements<std::string>(count, depth);
      break;
    case 9:
      array->elements = read_elements<uint64_t>(count, depth);
      break;
    case 10:
      array->elements = read_elements<int64_t>(count, depth);
      break;
    case 11:
      array->elements = read_elements<double>(count, depth);
      break;
    default:
      array->elements = read_elements<std::shared_ptr<const GgufArray>>(count, depth);
      break;
  }
  return array;
}

GgufValue Parser::read_value(uint32_t type) {
  switch (type) {
    case 0:
      return read<uint8_t>("value");
    case 1:
      return read<int8_t>("value");
    case 2:
      return read<uint16_t>("value");
    case 3:
      return read<int16_t>("value");
    case 4:
      return read<uint32_t>("value");
    case 5:
      return read<int32_t>("value");
    case 6:
      return read<float>("value");
    case 7:
      return read_bool();
    case 8:
      return read_string("string");
    case 9:
      return read_array(1);
    case 10:
      return read<uint64_t>("value");
    case 11:
      return read<int64_t>("value");
    case 12:
      return read<double>("value");
    default:
      damaged("value at offset {} has type {}, expected 0 to 12; the file is damaged", position_ - 4, type);
  }
}

uint32_t Parser::read_header(uint64_t& tensors, uint64_t& entries) {
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
    fail(ErrorCode::format, "{}: not a GGUF file: {}; expected it to begin with GGUF", name_, describe_start(bytes_));
  }
  position_ = 4;
  const auto version = read<uint32_t>("version");
  if (version == 0x02000000u || version == 0x03000000u) {
    fail(ErrorCode::format,
         "{}: is a big-endian GGUF file, expected little-endian; convert it or download the little-endian one", name_);
  }
  if (version != 2 && version != 3) {
    fail(ErrorCode::unsupported,
         "{}: GGUF version {}, expected 2 or 3; convert the model again with a present-day converter", name_, version);
  }
  tensors = read_count(kMinTensor, "tensor count");
  entries = read_count(kMinEntry, "metadata count");
  return version;
}

std::vector<GgufEntry> Parser::read_metadata(uint64_t count) {
  std::vector<GgufEntry> entries;
  entries.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    where_ = fmt::format("metadata entry {} of {}", i + 1, count);
    std::string key = read_name("key");
    where_ = "key " + printable(key);
    const auto type = read<uint32_t>("value type");
    entries.push_back({std::move(key), read_value(type)});
  }
  return entries;
}

Parser::Placed Parser::read_tensor(uint64_t alignment) {
  Placed placed;
  Tensor& tensor = placed.tensor;
  tensor.name = read_name("name");
  where_ = "tensor " + printable(tensor.name);
  const auto dimensions = read<uint32_t>("dimension count");
  if (dimensions > kMaxDimensions)
    damaged("has {} dimensions, expected at most {}; the file is damaged", dimensions, kMaxDimensions);
  for (uint32_t i = 0; i < dimensions; ++i) {
    const auto size = read<uint64_t>("dimension");
    if (size > static_cast<uint64_t>(INT64_MAX))
      damaged("dimension {} is {}, expected less than 2^63; the file is damaged", i, size);
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = read<uint32_t>("type");
  placed.offset = read<uint64_t>("offset");
  const auto dtype = dtype_of_ggml(type);
  if (!dtype) {
    fail(ErrorCode::unsupported,
         "{}: {}: type {} is not supported; use a file of f32, f16, bf16, q4_1, q5_0, q8_0, q4_k or q6_k tensors",
         name_, where_, ggml_type_name(type));
  }
  tensor.type = *dtype;
  try {
    placed.size = static_cast<uint64_t>(byte_count(tensor.type, tensor.shape));
  } catch (const Error& e) {
    damaged("{}; the file is damaged", e.what());
  }
  if (placed.offset % alignment != 0) {
    damaged("offset {} is no multiple of the alignment {}; the file is damaged", placed.offset, alignment);
  }
  return placed;
}

// Gives every tensor its bytes and makes sure that no two share any.
void Parser::place(std::vector<Placed>& tensors, uint64_t start) const {
  const uint64_t size = bytes_.size() > start ? bytes_.size() - start : 0;
  std::vector<const Placed*> order;
  for (Placed& p : tensors) {
    if (p.size > size || p.offset > size - p.size) {
      fail(ErrorCode::format,
           "{}: tensor {}: offset {} + {} bytes goes past the end of the file ({} bytes, data from {}); the download "
           "is incomplete",
           name_, printable(p.tensor.name), p.offset, p.size, bytes_.size(), start);
    }
    if (p.size > 0) {
      p.tensor.bytes = bytes_.subspan(start + p.offset, p.size);
      order.push_back(&p);
    }
    p.tensor.owner = owner_;
  }
  std::sort(order.begin(), order.end(), [](const Placed* a, const Placed* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Placed &a = *order[i - 1], &b = *order[i];
    if (b.offset - a.offset < a.size) {
      fail(ErrorCode::format,
           "{}: tensor {}: its bytes {} to {} overlap those of tensor {}, which begin at {}; the file is damaged",
           name_, printable(a.tensor.name), a.offset, a.offset + a.size, printable(b.tensor.name), b.offset);
    }
  }
}

std::vector<Tensor> Parser::read_tensors(uint64_t count, uint64_t alignment) {
  std::vector<Placed> placed;
  placed.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    where_ = fmt::format("tensor table entry {} of {}", i + 1, count);
    placed.push_back(read_tensor(alignment));
  }
  place(placed, align_up(position_, alignment));
  std::vector<Tensor> tensors;
  tensors.reserve(count);
  for (Placed& p : placed) tensors.push_back(aligned(std::move(p.tensor)));
  return tensors;
}

// The alignment of the tensor data: a power of two.
uint64_t read_alignment(const GgufFile& file) {
  const auto alignment = file.integer(kAlignmentKey);
  if (!alignment) return kDefaultAlignment;
  if (*alignment < 1 || *alignment > static_cast<int64_t>(kMaxAlignment) ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    fail(ErrorCode::format, "{}: key {}: is {}, expected a power of two of at most {}; the file is damaged",
         file.name(), kAlignmentKey, *alignment, kMaxAlignment);
  }
  return static_cast<uint64_t>(*alignment);
}

}  // namespace

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, const std::string& name) {
  GgufFile file;
  file.name_ = name;
  Parser parser(bytes, std::move(owner), name);
  uint64_t tensors = 0, entries = 0;
  file.version_ = parser.read_header(tensors, entries);
  file.metadata_ = parser.read_metadata(entries);
  for (size_t i = 0; i < file.metadata_.size(); ++i) {
    const std::string& key = file.metadata_[i].key;
    if (!file.key_index_.emplace(key, i).second)
      fail(ErrorCode::format, "{}: key {}: appears twice; the file is damaged", name, printable(key));
  }
  file.tensors_ = parser.read_tensors(tensors, read_alignment(file));
  for (size_t i = 0; i < file.tensors_.size(); ++i) {
    const std::string& tensor = file.tensors_[i].name;
    if (!file.tensor_index_.emplace(tensor, i).second) {
      fail(ErrorCode::format, "{}: tensor {}: appears twice; the file is damaged", name, printable(tensor));
    }
  }
  return file;
}

}  // namespace unchain::formats
