#include "ops/rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/thread.h"
#include "simd/kernels.h"

namespace unchain::ops {
namespace {

// A thread is worth waking for about so many numbers.
constexpr int64_t kGrain = 16384;

int64_t grain_of(const Matrix& x) {
  return kGrain / std::max<int64_t>(x.cols, 1) + 1;
}

char* row_bytes(const Matrix& x, int64_t row) {
  return static_cast<char*>(x.data) + row * x.stride * info(x.type).bytes;
}

}  // namespace

void copy_rows(const Matrix& out, const Matrix& x) {
  if (out.rows != x.rows || out.cols != x.cols) {
    fail(ErrorCode::shape, "copy of rows: [{}, {}] into [{}, {}] does not fit", x.rows, x.cols, out.rows, out.cols);
  }
  const auto width = static_cast<size_t>(x.cols);
  const size_t bytes = width * static_cast<size_t>(info(x.type).bytes);
  parallel_ranges(x.rows, grain_of(x), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (out.type == x.type) {
        std::memcpy(row_bytes(out, t), row_bytes(x, t), bytes);
      } else if (out.type == DType::bf16) {
        simd::convert(x.f32(t), out.bf16s(t), width);
      } else {
        simd::convert(x.bf16s(t), out.f32(t), width);
      }
    }
  });
}

void fill_zero(const Matrix& out) {
  const auto bytes = static_cast<size_t>(out.cols * info(out.type).bytes);
  parallel_ranges(out.rows, grain_of(out), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) std::memset(row_bytes(out, t), 0, bytes);
  });
}

void add_rows(const Matrix& out, const Matrix& x) {
  if (out.rows != x.rows || out.cols != x.cols || out.type != DType::f32 || x.type != DType::f32) {
    fail(ErrorCode::shape, "sum of rows: [{}, {}] {} onto [{}, {}] {} does not fit", x.rows, x.cols, info(x.type).name,
         out.rows, out.cols, info(out.type).name);
  }
  parallel_ranges(x.rows, grain_of(x), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) simd::add(out.f32(t), x.f32(t), static_cast<size_t>(x.cols));
  });
}

void add_column_sums(float* out, const Matrix& x) {
  constexpr int64_t kColumns = 256, kRows = 64;
  const int64_t blocks = (x.cols + kColumns - 1) / kColumns;
  parallel_ranges(blocks, kGrain / (kColumns * std::max<int64_t>(x.rows, 1)) + 1, [&](int64_t begin, int64_t end) {
    float partial[kColumns];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kColumns;
      const auto count = static_cast<size_t>(std::min(kColumns, x.cols - first));
      for (int64_t top = 0; top < x.rows; top += kRows) {
        std::fill_n(partial, count, 0.0f);
        for (int64_t t = top; t < std::min(top + kRows, x.rows); ++t) {
          x.type == DType::bf16 ? simd::axpy(partial, 1.0f, x.bf16s(t) + first, count)
                                : simd::add(partial, x.f32(t) + first, count);
        }
        simd::add(out + first, partial, count);
      }
    }
  });
}

}  // namespace unchain::ops
