#include "ops/linear.h"

#include <algorithm>

#include "base/check.h"
#include "base/thread.h"
#include "ops/gemm.h"
#include "ops/rows.h"
#include "simd/kernels.h"

namespace unchain::ops {
namespace {

constexpr int64_t kFew = static_cast<int64_t>(simd::kMaxVectors);

// Few rows are shared out between threads in units of so many outputs: half a packed panel.
constexpr int64_t kUnit = PackedMatrix::kPanelOutputs / 2;

int64_t units_of(const Linear& linear) {
  return (linear.outputs() + kUnit - 1) / kUnit;
}

template <class T>
void multiply_panels(const Matrix& out, const Matrix& x, const PackedMatrix& w, int64_t begin, int64_t end) {
  for (int64_t u = begin; u < end;) {
    const int64_t width = u % 2 == 0 && u + 1 < end ? 2 * kUnit : kUnit, column = u * kUnit;
    const int64_t kept = std::min(width, w.outputs - column);
    const T* panel = static_cast<const T*>(w.data) + u / 2 * w.panel_elements();
    float result[kFew * PackedMatrix::kPanelOutputs];
    simd::panel_vectors(panel, x.f32(), static_cast<size_t>(x.rows), result, PackedMatrix::kPanelOutputs,
                        static_cast<size_t>(u % 2 * kUnit), static_cast<size_t>(width), static_cast<size_t>(w.inputs));
    for (int64_t m = 0; m < x.rows; ++m)
      std::copy_n(result + m * PackedMatrix::kPanelOutputs, kept, out.f32(m) + column);
    u += width / kUnit;
  }
}

// Units begin … end − 1 of one weight times the few rows of x.
void multiply_units(const Matrix& out, const Matrix& x, const Linear& linear, int64_t begin, int64_t end) {
  const bool narrow = linear.type() == DType::bf16;
  if (linear.is_packed()) {
    return narrow ? multiply_panels<bf16>(out, x, linear.packed, begin, end)
                  : multiply_panels<float>(out, x, linear.packed, begin, end);
  }
  const Matrix& w = linear.weight;
  const int64_t row = begin * kUnit;
  const auto rows = static_cast<size_t>(std::min(end * kUnit, w.rows) - row), k = static_cast<size_t>(w.cols);
  const auto count = static_cast<size_t>(x.rows), stride = static_cast<size_t>(w.stride),
             out_stride = static_cast<size_t>(out.stride);
  narrow ? simd::matrix_vectors(w.bf16s(row), stride, x.f32(), count, out.f32() + row, out_stride, rows, k)
         : simd::matrix_vectors(w.f32(row), stride, x.f32(), count, out.f32() + row, out_stride, rows, k);
}

// Few rows: each thread reads its share of the weights once, for all rows of x; all products in one parallel step,
// since starting one costs as much as reading a hundred kilobytes.
void multiply_few(const Matrix& x, std::initializer_list<LinearOutput> outputs) {
  int64_t units = 0, bytes = 0;
  for (const LinearOutput& o : outputs) {
    units += units_of(o.linear);
    bytes += o.linear.outputs() * o.linear.inputs() * info(o.linear.type()).bytes;
  }
  const int64_t grain = units * 65536 / std::max<int64_t>(bytes, 1) + 1;
  parallel_ranges(units, grain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // unit of the stacked weights at which this one begins
    for (const LinearOutput& o : outputs) {
      const int64_t count = units_of(o.linear), from = std::max(begin - first, int64_t{0}),
                    to = std::min(end - first, count);
      if (from < to) multiply_units(o.out, x, o.linear, from, to);
      first += count;
    }
  });
}

// Whether the vector kernels take these rows: they read f32, one row right behind the other.
bool takes_few(const Matrix& x) {
  return x.rows <= kFew && x.type == DType::f32 && x.stride == x.cols;
}

void check_shapes(const Matrix& x, const LinearOutput& o) {
  const Linear& w = o.linear;
  const bool type_fits = x.type == w.type() || takes_few(x);
  if (x.cols != w.inputs() || o.out.cols != w.outputs() || o.out.rows != x.rows || !type_fits ||
      o.out.type != DType::f32) {
    fail(ErrorCode::shape, "linear: x [{}, {}] {} (row stride {}), weight [{}, {}] {}, out [{}, {}] do not fit", x.rows,
         x.cols, info(x.type).name, x.stride, w.outputs(), w.inputs(), info(w.type()).name, o.out.rows, o.out.cols);
  }
}

}  // namespace

DType activation_type(DType weight_type, int64_t rows) noexcept {
  return rows <= kFew ? DType::f32 : weight_type;
}

void linear_forward(const Matrix& x, std::initializer_list<LinearOutput> outputs) {
  for (const LinearOutput& o : outputs) check_shapes(x, o);
  if (takes_few(x)) {
    multiply_few(x, outputs);
  } else {
    for (const LinearOutput& o : outputs) {
      o.linear.is_packed() ? gemm(o.out, x, o.linear.packed) : gemm(o.out, x, o.linear.weight, Transpose::yes);
    }
  }
  for (const LinearOutput& o : outputs) {
    if (o.linear.bias == nullptr) continue;
    for (int64_t t = 0; t < o.out.rows; ++t) simd::add(o.out.f32(t), o.linear.bias, static_cast<size_t>(o.out.cols));
  }
}

void linear_backward(const Matrix& d_x, Store store, const LinearGradients& gradients, const Matrix& d_y,
                     const Matrix& x, const Matrix& weight) {
  if (d_y.rows != x.rows || d_y.cols != weight.rows || x.cols != weight.cols || d_y.type != weight.type ||
      x.type != weight.type) {
    fail(ErrorCode::shape, "linear backward: d_y [{}, {}] {}, x [{}, {}] {}, weight [{}, {}] {} do not fit", d_y.rows,
         d_y.cols, info(d_y.type).name, x.rows, x.cols, info(x.type).name, weight.rows, weight.cols,
         info(weight.type).name);
  }
  // y = x Wᵀ by x, by W, and y = … + b by b.
  if (d_x.data != nullptr) gemm(d_x, d_y, weight, Transpose::no, store);
  if (gradients.d_weight.data != nullptr) gemm_transposed(gradients.d_weight, d_y, x, Store::accumulate);
  if (gradients.d_bias != nullptr) add_column_sums(gradients.d_bias, d_y);
}

}  // namespace unchain::ops
