// A view of rows of numbers: f32 or bf16, row-major, rows `stride` elements apart. Not owning; freely copied.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace unchain {

struct Matrix {
  void* data = nullptr;
  DType type = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  Matrix() = default;
  Matrix(float* values, int64_t row_count, int64_t col_count, int64_t row_stride = 0)
      : data(values), type(DType::f32), rows(row_count), cols(col_count), stride(row_stride ? row_stride : col_count) {}
  Matrix(bf16* values, int64_t row_count, int64_t col_count, int64_t row_stride = 0)
      : data(values),
        type(DType::bf16),
        rows(row_count),
        cols(col_count),
        stride(row_stride ? row_stride : col_count) {}

  float* f32(int64_t row = 0) const { return static_cast<float*>(data) + row * stride; }
  bf16* bf16s(int64_t row = 0) const { return static_cast<bf16*>(data) + row * stride; }
  // Rows first … first + count − 1, and columns likewise.
  Matrix row_range(int64_t first, int64_t count) const { return part(first * stride, count, cols); }
  Matrix col_range(int64_t first, int64_t count) const { return part(first, rows, count); }

 private:
  Matrix part(int64_t offset, int64_t row_count, int64_t col_count) const {
    Matrix result = *this;
    result.data = static_cast<char*>(data) + offset * info(type).bytes;
    result.rows = row_count;
    result.cols = col_count;
    return result;
  }
};

}  // namespace unchain
