// See state_chunk.h. Compiled once for each instruction set, as kernels.cc.
#include "simd/state_chunk.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/state_chunk.cc"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"
#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unchain::simd::HWY_NAMESPACE {

constexpr size_t kLanes = HWY_LANES(float), kVectors = kChunk / kLanes;

// A row w_m(i, ·) in registers, and how it goes from one token to the next.
struct Row {
  V w[kVectors];

  HWY_INLINE void clear() {
    for (size_t v = 0; v < kVectors; ++v) w[v] = hn::Zero(D());
  }
  HWY_INLINE void step(size_t i, float take, float keep) {
    const D d;
    const V factor = hn::Set(d, keep), own = hn::Set(d, take), here = hn::Set(d, static_cast<float>(i));
    for (size_t v = 0; v < kVectors; ++v) {
      const V place = hn::Iota(d, static_cast<float>(v * kLanes));
      w[v] = hn::IfThenElse(hn::Eq(place, here), own, hn::Mul(w[v], factor));
    }
  }
};

void StateChunk(float* t, size_t stride, const ChunkGates& g, size_t n) {
  const D d;
  std::fill(t, t + (kChunk + g.rank) * stride, 0.0f);
  for (size_t m = 0; m < g.rank; ++m) {
    Row row;
    row.clear();
    float carried = 1;
    for (size_t i = 0; i < n; ++i) {
      const float keep = g.keep[i * g.gate_stride + m], alpha = g.alpha[i * g.alpha_stride + m];
      row.step(i, g.take[i * g.gate_stride + m], keep);
      carried *= keep;
      t[i * stride + kChunk + m] = alpha * carried;
      const V share = hn::Set(d, alpha);
      float* to = t + i * stride;
      for (size_t v = 0; v < kVectors; ++v)
        store(d, hn::MulAdd(share, row.w[v], load(d, to + v * kLanes)), to + v * kLanes);
    }
    float* last = t + (kChunk + m) * stride;
    for (size_t v = 0; v < kVectors; ++v) store(d, row.w[v], last + v * kLanes);
    last[kChunk + m] = carried;
  }
}

void StateChunkBackward(float* dot, float* reach, const float* d_t, size_t stride, const float* lambda,
                        size_t lambda_stride, const ChunkGates& g, size_t n) {
  const D d;
  for (size_t m = 0; m < g.rank; ++m) {
    Row row;
    row.clear();
    V sums[kVectors];
    for (size_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
    float carried = 1;
    for (size_t i = 0; i < n; ++i) {
      const float keep = g.keep[i * g.gate_stride + m];
      row.step(i, g.take[i * g.gate_stride + m], keep);
      carried *= keep;
      const V factor = hn::Set(d, lambda[i * lambda_stride] * g.alpha[i * g.alpha_stride + m]);
      V total = hn::Zero(d);
      for (size_t v = 0; v < kVectors; ++v) {
        const V product = hn::Mul(row.w[v], load(d, d_t + i * stride + v * kLanes));
        total = hn::Add(total, product);
        sums[v] = hn::MulAdd(factor, product, sums[v]);
      }
      dot[i * g.rank + m] = hn::GetLane(hn::SumOfLanes(d, total)) + carried * d_t[i * stride + kChunk + m];
    }
    HWY_ALIGN float sum[kChunk], last[kChunk];
    for (size_t v = 0; v < kVectors; ++v) {
      store(d, sums[v], sum + v * kLanes);
      store(d, row.w[v], last + v * kLanes);
    }
    const float* next = d_t + (kChunk + m) * stride;
    for (size_t j = 0; j < n; ++j) reach[j * g.rank + m] = sum[j] + last[j] * next[j];
  }
}

}  // namespace unchain::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unchain::simd {

HWY_EXPORT(StateChunk);
HWY_EXPORT(StateChunkBackward);

void state_chunk(float* t, size_t stride, const ChunkGates& gates, size_t n) {
  HWY_DYNAMIC_DISPATCH(StateChunk)(t, stride, gates, n);
}
void state_chunk_backward(float* dot, float* reach, const float* d_t, size_t stride, const float* lambda,
                          size_t lambda_stride, const ChunkGates& gates, size_t n) {
  HWY_DYNAMIC_DISPATCH(StateChunkBackward)(dot, reach, d_t, stride, lambda, lambda_stride, gates, n);
}

}  // namespace unchain::simd
#endif  // HWY_ONCE
