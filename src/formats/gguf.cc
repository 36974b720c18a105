#include "formats/gguf.h"

#include <limits>

#include "base/check.h"
#include "formats/gguf_types.h"

namespace unchain::formats {
namespace {

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class T>
constexpr bool kIsNumber = kIsInteger<T> || std::is_floating_point_v<T>;

template <class T>
bool fits(T value) {
  if constexpr (std::is_same_v<T, uint64_t>) return value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return true;
}

[[noreturn]] void wrong_kind(const std::string& file, std::string_view key, const GgufValue& value,
                             const char* expected) {
  fail(ErrorCode::format, "{}: key {}: is {}, expected {}; the file was written wrongly", file, key, kind(value),
       expected);
}

const GgufArray* as_array(const GgufValue& value) {
  const auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value);
  return array ? array->get() : nullptr;
}

// The elements of an array of numbers as T. An empty array of any type is an empty list.
template <class T, template <class> class Accept>
std::optional<std::vector<T>> number_list(const std::string& file, std::string_view key, const GgufValue& value,
                                          const char* expected) {
  const GgufArray* array = as_array(value);
  if (!array) wrong_kind(file, key, value, expected);
  return std::visit(
      [&](const auto& elements) -> std::vector<T> {
        using Element = typename std::decay_t<decltype(elements)>::value_type;
        if (elements.empty()) return {};
        if constexpr (Accept<Element>::value) {
          std::vector<T> list;
          list.reserve(elements.size());
          for (const Element e : elements) {
            if constexpr (std::is_integral_v<T>) {
              if (!fits(e)) fail(ErrorCode::format, "{}: key {}: holds {}, expected integers below 2^63", file, key, e);
            }
            list.push_back(static_cast<T>(e));
          }
          return list;
        } else {
          wrong_kind(file, key, value, expected);
        }
      },
      array->elements);
}

template <class T>
struct AcceptInteger : std::bool_constant<kIsInteger<T>> {};
template <class T>
struct AcceptNumber : std::bool_constant<kIsNumber<T>> {};

}  // namespace

size_t GgufArray::size() const {
  return std::visit([](const auto& list) { return list.size(); }, elements);
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
  MappedFile map = MappedFile::open(path);
  GgufFile file = parse(map.bytes(), map.owner(), path.string());
  file.map_ = std::move(map);
  return file;
}

const Tensor* GgufFile::find(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto found = key_index_.find(key);
  return found == key_index_.end() ? nullptr : &metadata_[found->second].value;
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return std::nullopt;
  return std::visit(
      [&](const auto& v) -> int64_t {
        using T = std::decay_t<decltype(v)>;
        if constexpr (kIsInteger<T>) {
          if (!fits(v)) fail(ErrorCode::format, "{}: key {}: is {}, expected an integer below 2^63", name_, key, v);
          return static_cast<int64_t>(v);
        } else {
          wrong_kind(name_, key, *found, "an integer");
        }
      },
      *found);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return std::nullopt;
  return std::visit(
      [&](const auto& v) -> double {
        using T = std::decay_t<decltype(v)>;
        if constexpr (kIsNumber<T>) {
          return static_cast<double>(v);
        } else {
          wrong_kind(name_, key, *found, "a number");
        }
      },
      *found);
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return std::nullopt;
  if (const bool* v = std::get_if<bool>(found)) return *v;
  wrong_kind(name_, key, *found, "a bool");
}

std::optional<std::string> GgufFile::string(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return std::nullopt;
  if (const auto* v = std::get_if<std::string>(found)) return *v;
  wrong_kind(name_, key, *found, "a string");
}

std::optional<std::vector<std::string>> GgufFile::strings(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return std::nullopt;
  const GgufArray* array = as_array(*found);
  if (array && array->size() == 0) return std::vector<std::string>{};
  if (array) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&array->elements)) return *list;
  }
  wrong_kind(name_, key, *found, "an array of strings");
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return std::nullopt;
  return number_list<double, AcceptNumber>(name_, key, *found, "an array of numbers");
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufValue* found = value(key);
  if (!found) return std::nullopt;
  return number_list<int64_t, AcceptInteger>(name_, key, *found, "an array of integers");
}

}  // namespace unchain::formats
