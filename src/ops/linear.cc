#include "ops/linear.h"

#include <algorithm>

#include "base/check.h"
#include "base/thread.h"
#include "ops/gemm.h"
#include "simd/kernels.h"

namespace unchain::ops {
namespace {

constexpr int64_t kFew = static_cast<int64_t>(simd::kMaxVectors);

// Few rows: each thread reads its share of the weights once, for all rows of x.
void multiply_few(const Matrix& out, const Matrix& x, const Matrix& w) {
  // 64 kB of weights a piece at least: below that a second thread costs more than it brings.
  const int64_t grain = std::max<int64_t>(4, 65536 / (w.cols * info(w.type).bytes));
  parallel_ranges(w.rows, grain, [&](int64_t begin, int64_t end) {
    const size_t rows = static_cast<size_t>(end - begin), k = static_cast<size_t>(w.cols);
    const auto count = static_cast<size_t>(x.rows), stride = static_cast<size_t>(w.stride),
               out_stride = static_cast<size_t>(out.stride);
    if (w.type == DType::bf16) {
      simd::matrix_vectors(w.bf16s(begin), stride, x.f32(), count, out.f32() + begin, out_stride, rows, k);
    } else {
      simd::matrix_vectors(w.f32(begin), stride, x.f32(), count, out.f32() + begin, out_stride, rows, k);
    }
  });
}

}  // namespace

DType activation_type(DType weight_type, int64_t rows) noexcept {
  return rows <= kFew ? DType::f32 : weight_type;
}

void linear_forward(const Matrix& out, const Matrix& x, const Linear& linear) {
  const Matrix& w = linear.weight;
  if (x.cols != w.cols || out.cols != w.rows || out.rows != x.rows || x.type != activation_type(w.type, x.rows) ||
      out.type != DType::f32) {
    fail(ErrorCode::shape, "linear: x [{}, {}] {}, weight [{}, {}] {}, out [{}, {}] do not fit", x.rows, x.cols,
         info(x.type).name, w.rows, w.cols, info(w.type).name, out.rows, out.cols);
  }
  if (x.rows <= kFew && x.stride == x.cols) {
    multiply_few(out, x, w);
  } else {
    gemm(out, x, w, Transpose::yes);
  }
  if (linear.bias == nullptr) return;
  for (int64_t t = 0; t < out.rows; ++t) simd::add(out.f32(t), linear.bias, static_cast<size_t>(out.cols));
}

}  // namespace unchain::ops
