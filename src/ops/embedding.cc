#include "ops/embedding.h"

#include <algorithm>

#include "base/check.h"
#include "base/thread.h"
#include "ops/rows.h"
#include "simd/kernels.h"

namespace unchain::ops {
namespace {

void check(const Matrix& rows, const Matrix& table, std::span<const int32_t> ids) {
  if (rows.rows != static_cast<int64_t>(ids.size()) || rows.cols != table.cols) {
    fail(ErrorCode::shape, "embedding: rows [{}, {}] for {} ids of a table [{}, {}]", rows.rows, rows.cols, ids.size(),
         table.rows, table.cols);
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= table.rows) fail(ErrorCode::usage, "embedding: id {} is outside the {} rows", id, table.rows);
  }
}

}  // namespace

void embedding_forward(const Matrix& out, const Matrix& table, std::span<const int32_t> ids, float scale) {
  check(out, table, ids);
  const auto width = static_cast<size_t>(out.cols);
  parallel_ranges(out.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const Matrix to = out.row_range(t, 1), from = table.row_range(ids[static_cast<size_t>(t)], 1);
      if (from.type == DType::f32 && scale != 1) {
        to.type == DType::bf16 ? simd::scaled(from.f32(), scale, to.bf16s(), width)
                               : simd::scaled(from.f32(), scale, to.f32(), width);
        continue;
      }
      copy_rows(to, from);
      if (scale == 1) continue;
      if (to.type == DType::f32) {
        simd::scale(to.f32(), scale, width);
      } else {
        for (size_t i = 0; i < width; ++i) to.bf16s()[i] = to_bf16(to_f32(to.bf16s()[i]) * scale);
      }
    }
  });
}

void embedding_backward(const Matrix& d_table, const Matrix& d_out, std::span<const int32_t> ids, float scale) {
  check(d_out, d_table, ids);
  constexpr int64_t kColumns = 16;  // one cache line
  const int64_t blocks = (d_out.cols + kColumns - 1) / kColumns;
  parallel_ranges(blocks, 2, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kColumns;
    const auto count = static_cast<size_t>(std::min(end * kColumns, d_out.cols) - first);
    for (int64_t t = 0; t < d_out.rows; ++t) {
      simd::axpy(d_table.f32(ids[static_cast<size_t>(t)]) + first, scale, d_out.f32(t) + first, count);
    }
  });
}

}  // namespace unchain::ops
