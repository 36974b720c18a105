// Any bytes as a GGUF file: an Error, or a file whose every value and tensor can be used.
#include <algorithm>
#include <cstdlib>

#include "formats/convert.h"
#include "formats/gguf.h"
#include "unchain/error.h"

namespace {

using unchain::formats::GgufFile;

// Typed access may refuse a value of another kind; nothing else may happen.
template <class Get>
void may_refuse(const Get& get) {
  try {
    get();
  } catch (const unchain::Error&) {
  }
}

void use(const GgufFile& file) {
  for (const auto& entry : file.metadata()) {
    if (file.value(entry.key) != &entry.value) std::abort();
    may_refuse([&] { (void)file.integer(entry.key); });
    may_refuse([&] { (void)file.number(entry.key); });
    may_refuse([&] { (void)file.boolean(entry.key); });
    may_refuse([&] { (void)file.string(entry.key); });
    may_refuse([&] { (void)file.strings(entry.key); });
    may_refuse([&] { (void)file.numbers(entry.key); });
    may_refuse([&] { (void)file.integers(entry.key); });
  }
  for (const unchain::Tensor& tensor : file.tensors()) {
    if (file.find(tensor.name) != &tensor) std::abort();
    if (static_cast<int64_t>(tensor.bytes.size()) != unchain::byte_count(tensor.type, tensor.shape)) std::abort();
    if (!unchain::formats::can_decode(tensor.type)) continue;
    float values[512];
    const int64_t block = unchain::info(tensor.type).elements, count = std::min<int64_t>(tensor.elements(), 512);
    unchain::formats::decode(tensor, 0, count, values);
    unchain::formats::decode(tensor, tensor.elements() - count / block * block, count / block * block, values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    use(GgufFile::parse({reinterpret_cast<const std::byte*>(data), size}, nullptr, "fuzz.gguf"));
  } catch (const unchain::Error&) {
  }
  return 0;
}
