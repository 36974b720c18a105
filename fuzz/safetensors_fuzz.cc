// Any bytes as a safetensors file: an Error, or a file whose every tensor can be used.
#include <algorithm>
#include <cstdlib>

#include "formats/convert.h"
#include "formats/safetensors.h"
#include "unchain/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using unchain::formats::SafetensorsFile;
  try {
    const auto file =
        SafetensorsFile::parse({reinterpret_cast<const std::byte*>(data), size}, nullptr, "fuzz.safetensors");
    for (const unchain::Tensor& tensor : file.tensors()) {
      if (file.find(tensor.name) != &tensor) std::abort();
      if (static_cast<int64_t>(tensor.bytes.size()) != unchain::byte_count(tensor.type, tensor.shape)) std::abort();
      if (!unchain::formats::can_decode(tensor.type)) continue;
      float values[512];
      const int64_t count = std::min<int64_t>(tensor.elements(), 512);
      unchain::formats::decode(tensor, 0, count, values);
      unchain::formats::decode(tensor, tensor.elements() - count, count, values);
      // Consumers read these through pointers.
      if (tensor.type == unchain::DType::f32 && count > 0 && tensor.f32()[0] != values[0] && tensor.elements() <= 512 &&
          values[0] == values[0]) {
        std::abort();
      }
    }
  } catch (const unchain::Error&) {
  }
  return 0;
}
