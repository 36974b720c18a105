#include "ops/gemm.h"

#include <omp.h>

#include <dnnl.hpp>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/thread.h"
#include "ops/rows.h"
#include "simd/kernels.h"
#include "tensor/tensor.h"

namespace unchain::ops {
namespace {

using dnnl::memory;

// A product that is ready to run, and the handles through which it reads and writes.
struct Product {
  dnnl::matmul run;
  memory a, b, c;
};

// Which inputs are read by columns, and what becomes of c.
struct Form {
  Transpose a, b;
  Store store;
};

// A product's sizes, types, strides and form; b_stride is kPacked for packed weights.
using Key =
    std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Transpose, Transpose, Store, DType, DType, int>;
constexpr int64_t kPacked = -1;

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::data_type dnnl_type(DType type) {
  return type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc describe(const Matrix& m, Transpose transpose) {
  return transpose == Transpose::yes ? memory::desc({m.cols, m.rows}, dnnl_type(m.type), memory::dims{1, m.stride})
                                     : memory::desc({m.rows, m.cols}, dnnl_type(m.type), memory::dims{m.stride, 1});
}

memory::desc describe_packed(DType type, int64_t outputs, int64_t inputs) {
  return {{inputs, outputs},
          dnnl_type(type),
          type == DType::bf16 ? memory::format_tag::BA16a64b2a : memory::format_tag::BA16a64b};
}

dnnl::matmul::primitive_desc prepare(const memory::desc& a, const memory::desc& b, const memory::desc& c, Store store) {
  dnnl::primitive_attr attributes;
  if (store == Store::accumulate) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(engine(), a, b, c, attributes);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, engine());
#endif
}

// Runs the product of these sizes, prepared when it is first needed; `describe_b` is only called then.
template <class DescribeB>
void run(const Matrix& c, const Matrix& a, const void* b, int64_t b_stride, const Form& form,
         const DescribeB& describe_b) {
  // More shapes than this means that lengths vary without end: start anew rather than grow.
  constexpr size_t kMost = 4096;
  thread_local std::map<Key, Product> prepared;
  thread_local dnnl::stream stream(engine());
  const int64_t k = form.a == Transpose::yes ? a.rows : a.cols;
  const Key key(c.rows, c.cols, k, a.stride, b_stride, c.stride, form.a, form.b, form.store, a.type, c.type,
                omp_in_parallel() ? 1 : omp_get_max_threads());
  auto found = prepared.find(key);
  if (found == prepared.end()) {
    if (prepared.size() >= kMost) prepared.clear();
    const auto plan = prepare(describe(a, form.a), describe_b(), describe(c, Transpose::no), form.store);
    Product made{dnnl::matmul(plan), memory(plan.src_desc(), engine(), nullptr),
                 memory(plan.weights_desc(), engine(), nullptr), memory(plan.dst_desc(), engine(), nullptr)};
    found = prepared.emplace(key, std::move(made)).first;
  }
  Product& p = found->second;
  p.a.set_data_handle(a.data);
  p.b.set_data_handle(const_cast<void*>(b));
  p.c.set_data_handle(c.data);
  p.run.execute(stream, {{DNNL_ARG_SRC, p.a}, {DNNL_ARG_WEIGHTS, p.b}, {DNNL_ARG_DST, p.c}});
  stream.wait();
}

void run(const Matrix& c, const Matrix& a, const Matrix& b, const Form& form) {
  run(c, a, b.data, b.stride, form, [&] { return describe(b, form.b); });
}

// For processors without bf16 products: f32 copies of both inputs.
void run_through_f32(const Matrix& c, const Matrix& a, const Matrix& b, const Form& form) {
  Buffer<float> copies(static_cast<size_t>(a.rows * a.cols + b.rows * b.cols + c.rows * c.cols));
  const Matrix wide_a(copies.data(), a.rows, a.cols), wide_b(wide_a.f32(a.rows), b.rows, b.cols),
      wide_c(wide_b.f32(b.rows), c.rows, c.cols);
  copy_rows(wide_a, a);
  copy_rows(wide_b, b);
  if (c.type == DType::f32) return run(c, wide_a, wide_b, form);
  if (form.store == Store::accumulate) copy_rows(wide_c, c);
  run(wide_c, wide_a, wide_b, form);
  copy_rows(c, wide_c);
}

// All products of matrices that lie row by row, once their sizes are known to fit.
void multiply(const Matrix& c, const Matrix& a, const Matrix& b, int64_t k, const Form& form) {
  if (c.rows == 0 || c.cols == 0) return;
  if (k == 0) {
    if (form.store == Store::overwrite) fill_zero(c);
    return;
  }
  try {
    static const bool bf16_products = has_fast_bf16();
    a.type == DType::bf16 && !bf16_products ? run_through_f32(c, a, b, form) : run(c, a, b, form);
  } catch (const dnnl::error& error) {
    fail(ErrorCode::internal, "matrix product [{}, {}, {}]: {}", c.rows, c.cols, k, error.what());
  }
}

}  // namespace

bool has_fast_bf16() {
  const auto isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx ||
         static_cast<int>(isa) > static_cast<int>(dnnl::cpu_isa::avx512_core_amx);
}

std::string gemm_backend() {
  const dnnl_version_t* version = dnnl_version();
  const char* isa = "unknown";
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      isa = "sse41";
      break;
    case dnnl::cpu_isa::avx:
      isa = "avx";
      break;
    case dnnl::cpu_isa::avx2:
      isa = "avx2";
      break;
    case dnnl::cpu_isa::avx2_vnni:
      isa = "avx2_vnni";
      break;
    case dnnl::cpu_isa::avx512_core:
      isa = "avx512_core";
      break;
    case dnnl::cpu_isa::avx512_core_vnni:
      isa = "avx512_core_vnni";
      break;
    case dnnl::cpu_isa::avx512_core_bf16:
      isa = "avx512_core_bf16";
      break;
    case dnnl::cpu_isa::avx512_core_amx:
      isa = "avx512_core_amx";
      break;
    default:
      isa = "newer";
      break;
  }
  return fmt::format("{}, oneDNN {}.{}.{}", isa, version->major, version->minor, version->patch);
}

void gemm(const Matrix& c, const Matrix& a, const Matrix& b, Transpose transpose_b, Store store) {
  const bool turned = transpose_b == Transpose::yes;
  const int64_t n = turned ? b.rows : b.cols, k = turned ? b.cols : b.rows;
  if (a.cols != k || c.rows != a.rows || c.cols != n || a.type != b.type) {
    fail(ErrorCode::shape, "matrix product: [{}, {}] x [{}, {}]{} into [{}, {}] does not fit", a.rows, a.cols, b.rows,
         b.cols, turned ? "ᵀ" : "", c.rows, c.cols);
  }
  multiply(c, a, b, k, {Transpose::no, transpose_b, store});
}

void gemm_transposed(const Matrix& c, const Matrix& a, const Matrix& b, Store store) {
  if (a.rows != b.rows || c.rows != a.cols || c.cols != b.cols || a.type != b.type) {
    fail(ErrorCode::shape, "matrix product: [{}, {}]ᵀ x [{}, {}] into [{}, {}] does not fit", a.rows, a.cols, b.rows,
         b.cols, c.rows, c.cols);
  }
  multiply(c, a, b, a.rows, {Transpose::yes, Transpose::no, store});
}

bool prefers_packed(DType type, int64_t outputs, int64_t inputs) {
  if (type == DType::bf16 && !has_fast_bf16()) return false;
  try {
    // What the library itself would choose for a prompt of ordinary length.
    constexpr int64_t kRows = 512;
    const memory::desc a({kRows, inputs}, dnnl_type(type), memory::format_tag::ab);
    const memory::desc c({kRows, outputs}, memory::data_type::f32, memory::format_tag::ab);
    const memory::desc any({inputs, outputs}, dnnl_type(type), memory::format_tag::any);
    return prepare(a, any, c, Store::overwrite).weights_desc() == describe_packed(type, outputs, inputs);
  } catch (const dnnl::error&) {
    return false;
  }
}

void pack_panel(void* out, const Matrix& rows) {
  constexpr int64_t kOutputs = PackedMatrix::kPanelOutputs;
  if (rows.type == DType::bf16) {
    bf16* panel = static_cast<bf16*>(out);
    for (int64_t n = 0; n < rows.rows; ++n) {
      const bf16* row = rows.bf16s(n);
      for (int64_t k = 0; k < rows.cols; ++k) panel[k / 2 * 2 * kOutputs + n * 2 + k % 2] = row[k];
    }
    return;
  }
  float* panel = static_cast<float*>(out);
  for (int64_t n = 0; n < rows.rows; ++n) {
    const float* row = rows.f32(n);
    for (int64_t k = 0; k < rows.cols; ++k) panel[k * kOutputs + n] = row[k];
  }
}

void gemm(const Matrix& c, const Matrix& a, const PackedMatrix& w, Store store) {
  if (a.cols != w.inputs || c.rows != a.rows || c.cols != w.outputs || a.type != w.type) {
    fail(ErrorCode::shape, "matrix product: [{}, {}] x packed [{}, {}] into [{}, {}] does not fit", a.rows, a.cols,
         w.outputs, w.inputs, c.rows, c.cols);
  }
  if (c.rows == 0 || c.cols == 0) return;
  if (c.stride != c.cols && c.type == DType::f32) {
    Buffer<float> dense(static_cast<size_t>(c.rows * c.cols));
    const Matrix whole(dense.data(), c.rows, c.cols);
    gemm(whole, a, w, Store::overwrite);
    store == Store::accumulate ? add_rows(c, whole) : copy_rows(c, whole);
    return;
  }
  try {
    run(c, a, w.data, kPacked, {Transpose::no, Transpose::yes, store},
        [&] { return describe_packed(w.type, w.outputs, w.inputs); });
  } catch (const dnnl::error& error) {
    fail(ErrorCode::internal, "matrix product [{}, {}, {}]: {}", c.rows, c.cols, w.inputs, error.what());
  }
}

}  // namespace unchain::ops
