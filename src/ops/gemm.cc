#include "ops/gemm.h"

#include <omp.h>

#include <dnnl.hpp>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/thread.h"
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

using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, Transpose, Store, DType, DType, int>;

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::desc describe(const Matrix& m, Transpose transpose) {
  const auto type = m.type == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  return transpose == Transpose::yes ? memory::desc({m.cols, m.rows}, type, memory::dims{1, m.stride})
                                     : memory::desc({m.rows, m.cols}, type, memory::dims{m.stride, 1});
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

Product& product(const Matrix& c, const Matrix& a, const Matrix& b, Transpose transpose, Store store) {
  // More shapes than this means that lengths vary without end: start anew rather than grow.
  constexpr size_t kMost = 4096;
  thread_local std::map<Key, Product> prepared;
  const Key key(c.rows, c.cols, a.cols, a.stride, b.stride, c.stride, transpose, store, a.type, c.type,
                omp_in_parallel() ? 1 : omp_get_max_threads());
  const auto found = prepared.find(key);
  if (found != prepared.end()) return found->second;
  if (prepared.size() >= kMost) prepared.clear();
  const auto plan = prepare(describe(a, Transpose::no), describe(b, transpose), describe(c, Transpose::no), store);
  Product made{dnnl::matmul(plan), memory(plan.src_desc(), engine(), nullptr),
               memory(plan.weights_desc(), engine(), nullptr), memory(plan.dst_desc(), engine(), nullptr)};
  return prepared.emplace(key, std::move(made)).first->second;
}

void run(const Matrix& c, const Matrix& a, const Matrix& b, Transpose transpose, Store store) {
  thread_local dnnl::stream stream(engine());
  Product& p = product(c, a, b, transpose, store);
  p.a.set_data_handle(a.data);
  p.b.set_data_handle(b.data);
  p.c.set_data_handle(c.data);
  p.run.execute(stream, {{DNNL_ARG_SRC, p.a}, {DNNL_ARG_WEIGHTS, p.b}, {DNNL_ARG_DST, p.c}});
  stream.wait();
}

// For processors without bf16 products: f32 copies of both inputs.
void run_through_f32(const Matrix& c, const Matrix& a, const Matrix& b, Transpose transpose, Store store) {
  Buffer<float> copies(static_cast<size_t>(a.rows * a.cols + b.rows * b.cols + c.rows * c.cols));
  const Matrix wide_a(copies.data(), a.rows, a.cols), wide_b(wide_a.f32(a.rows), b.rows, b.cols),
      wide_c(wide_b.f32(b.rows), c.rows, c.cols);
  parallel_ranges(a.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) simd::convert(a.bf16s(i), wide_a.f32(i), static_cast<size_t>(a.cols));
  });
  parallel_ranges(b.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) simd::convert(b.bf16s(i), wide_b.f32(i), static_cast<size_t>(b.cols));
  });
  if (c.type == DType::f32) return run(c, wide_a, wide_b, transpose, store);
  const size_t width = static_cast<size_t>(c.cols);
  if (store == Store::accumulate) {
    for (int64_t i = 0; i < c.rows; ++i) simd::convert(c.bf16s(i), wide_c.f32(i), width);
  }
  run(wide_c, wide_a, wide_b, transpose, store);
  for (int64_t i = 0; i < c.rows; ++i) simd::convert(wide_c.f32(i), c.bf16s(i), width);
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
  if (c.rows == 0 || c.cols == 0) return;
  try {
    static const bool bf16_products = has_fast_bf16();
    if (a.type == DType::bf16 && !bf16_products) return run_through_f32(c, a, b, transpose_b, store);
    run(c, a, b, transpose_b, store);
  } catch (const dnnl::error& error) {
    fail(ErrorCode::internal, "matrix product [{}, {}, {}]: {}", c.rows, c.cols, k, error.what());
  }
}

}  // namespace unchain::ops
