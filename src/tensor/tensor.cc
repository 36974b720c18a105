#include "tensor/tensor.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace unchain {

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      fail(ErrorCode::shape, "shape {}: has a negative size or more elements than 2^63", to_string(shape));
    }
  }
  return count;
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

int64_t byte_count(DType type, const Shape& shape) {
  const DTypeInfo& block = info(type);
  const int64_t count = element_count(shape);
  const int64_t row = shape.empty() ? 1 : shape.back();
  if (row % block.elements != 0) {
    fail(ErrorCode::shape, "shape {}: type {} needs rows of a multiple of {} elements", to_string(shape), block.name,
         block.elements);
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(count / block.elements, block.bytes, &bytes)) {
    fail(ErrorCode::shape, "shape {}: more bytes than 2^63", to_string(shape));
  }
  return bytes;
}

std::shared_ptr<std::byte> allocate_large(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) fail(ErrorCode::io, "memory: cannot get {} bytes: {}", bytes, std::strerror(errno));
  ::madvise(data, bytes, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(data), [bytes](std::byte* p) { ::munmap(p, bytes); }};
}

}  // namespace unchain
