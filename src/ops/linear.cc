#include "ops/linear.h"

#include <algorithm>

#include "base/check.h"
#include "base/thread.h"
#include "ops/gemm.h"
#include "simd/kernels.h"

namespace unchain::ops {
namespace {

constexpr int64_t kFew = static_cast<int64_t>(simd::kMaxVectors);

// Rows begin … end − 1 of one weight times the few rows of x.
void multiply_rows(const Matrix& out, const Matrix& x, const Matrix& w, int64_t begin, int64_t end) {
  const auto rows = static_cast<size_t>(end - begin), k = static_cast<size_t>(w.cols),
             count = static_cast<size_t>(x.rows);
  const auto stride = static_cast<size_t>(w.stride), out_stride = static_cast<size_t>(out.stride);
  w.type == DType::bf16
      ? simd::matrix_vectors(w.bf16s(begin), stride, x.f32(), count, out.f32() + begin, out_stride, rows, k)
      : simd::matrix_vectors(w.f32(begin), stride, x.f32(), count, out.f32() + begin, out_stride, rows, k);
}

// Few rows: each thread reads its share of the weights once, for all rows of x; all products in one parallel step,
// since starting one costs as much as reading a hundred kilobytes.
void multiply_few(const Matrix& x, std::initializer_list<LinearOutput> outputs) {
  int64_t rows = 0;
  for (const LinearOutput& o : outputs) rows += o.linear.outputs();
  const int64_t grain = std::max<int64_t>(4, 65536 / (x.cols * info(outputs.begin()->linear.weight.type).bytes));
  parallel_ranges(rows, grain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // row of the stacked weights at which this one begins
    for (const LinearOutput& o : outputs) {
      const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, o.linear.outputs());
      if (from < to) multiply_rows(o.out, x, o.linear.weight, from, to);
      first += o.linear.outputs();
    }
  });
}

void check_shapes(const Matrix& x, const LinearOutput& o) {
  const Matrix& w = o.linear.weight;
  if (x.cols != w.cols || o.out.cols != w.rows || o.out.rows != x.rows || x.type != activation_type(w.type, x.rows) ||
      o.out.type != DType::f32) {
    fail(ErrorCode::shape, "linear: x [{}, {}] {}, weight [{}, {}] {}, out [{}, {}] do not fit", x.rows, x.cols,
         info(x.type).name, w.rows, w.cols, info(w.type).name, o.out.rows, o.out.cols);
  }
}

}  // namespace

DType activation_type(DType weight_type, int64_t rows) noexcept {
  return rows <= kFew ? DType::f32 : weight_type;
}

void linear_forward(const Matrix& x, std::initializer_list<LinearOutput> outputs) {
  for (const LinearOutput& o : outputs) check_shapes(x, o);
  if (x.rows <= kFew && x.stride == x.cols) {
    multiply_few(x, outputs);
  } else {
    for (const LinearOutput& o : outputs) gemm(o.out, x, o.linear.weight, Transpose::yes);
  }
  for (const LinearOutput& o : outputs) {
    if (o.linear.bias == nullptr) continue;
    for (int64_t t = 0; t < o.out.rows; ++t) simd::add(o.out.f32(t), o.linear.bias, static_cast<size_t>(o.out.cols));
  }
}

}  // namespace unchain::ops
