// Tensors whose bytes lie where a pointer to their elements may point.
#pragma once

#include <cstring>

#include "tensor/tensor.h"

namespace unchain::formats {

// The tensor itself if its address suits its elements, else one with a copy of its bytes in a buffer of its own.
// Quantised types are read byte by byte and never copied.
inline Tensor aligned(Tensor tensor) {
  const DTypeInfo& block = info(tensor.type);
  const auto address = reinterpret_cast<uintptr_t>(tensor.bytes.data());
  if (block.elements > 1 || address % static_cast<uintptr_t>(block.bytes) == 0) return tensor;
  auto copy = std::make_shared<Buffer<std::byte>>(tensor.bytes.size());
  std::memcpy(copy->data(), tensor.bytes.data(), tensor.bytes.size());
  tensor.bytes = {copy->data(), tensor.bytes.size()};
  tensor.owner = std::move(copy);
  return tensor;
}

}  // namespace unchain::formats
