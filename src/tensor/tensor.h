// Tensors: row-major, outermost dimension first, last one contiguous.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace unchain {

using Shape = std::vector<int64_t>;

// The product of the sizes (1 for an empty shape). Error: shape if a size is negative or the product overflows.
int64_t element_count(const Shape& shape);
// "[576, 1536]"
std::string to_string(const Shape& shape);
// Bytes of a tensor of this type and shape. Error: shape if it overflows or a row is no whole number of blocks.
int64_t byte_count(DType type, const Shape& shape);

// A tensor as a file holds it: name, type, shape and its bytes, which belong to `owner` (a file map or a buffer).
// Cheap to copy. `data` is aligned as the file aligns it: at least to the element for the plain types.
struct Tensor {
  std::string name;
  DType type = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;

  int64_t dim(size_t axis) const { return shape.at(axis); }
  int64_t elements() const { return element_count(shape); }
  const float* f32() const { return reinterpret_cast<const float*>(bytes.data()); }
  const bf16* bf16s() const { return reinterpret_cast<const bf16*>(bytes.data()); }
};

// A 64-byte aligned array of plain numbers that are not initialised. Move-only owner.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t count)
      : data_(static_cast<T*>(::operator new (count * sizeof(T) + 64, std::align_val_t{64}))), size_(count) {}
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_.get()[i]; }
  const T& operator[](size_t i) const { return data_.get()[i]; }
  std::span<T> span() { return {data_.get(), size_}; }
  // Grows to at least `count`, by half its size at least; the contents are lost when it does.
  void reserve(size_t count) {
    if (count > size_) *this = Buffer(std::max(count, size_ + size_ / 2));
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

// Zeroed memory for weights and caches, on large pages where the system has them: reading 500 MB of weights a token
// through 4 kB pages costs a tenth of the time. Error: io if the system has not that much.
std::shared_ptr<std::byte> allocate_large(size_t bytes);

}  // namespace unchain
