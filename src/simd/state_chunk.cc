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

// Tokens eight at a time: as many sums in flight hide the latency of one.
void PrototypeScores(float* scores, size_t score_stride, const float* x, size_t x_stride, const float* p, size_t padded,
                     size_t width, float scale, size_t n, size_t rank) {
  constexpr size_t kTogether = 8;
  const hn::CappedTag<float, kPrototypes> d;
  using Sum = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  const auto put = [=](Sum sum, float* to, size_t first) HWY_ATTR {
    sum = hn::Mul(sum, hn::Set(d, scale));
    if (first + lanes <= rank) return hn::StoreU(sum, d, to + first);
    HWY_ALIGN float buffer[kPrototypes];
    hn::Store(sum, d, buffer);
    std::copy(buffer, buffer + rank - first, to + first);
  };
  for (size_t first = 0; first < rank; first += lanes) {
    size_t i = 0;
    for (; i + kTogether <= n; i += kTogether) {
      const float* rows = x + i * x_stride;
      Sum sums[kTogether];
      for (size_t j = 0; j < kTogether; ++j) sums[j] = hn::Zero(d);
      for (size_t e = 0; e < width; ++e) {
        const Sum column = hn::LoadU(d, p + e * padded + first);
        for (size_t j = 0; j < kTogether; ++j)
          sums[j] = hn::MulAdd(hn::Set(d, rows[j * x_stride + e]), column, sums[j]);
      }
      for (size_t j = 0; j < kTogether; ++j) put(sums[j], scores + (i + j) * score_stride, first);
    }
    for (; i < n; ++i) {
      Sum sum = hn::Zero(d);
      for (size_t e = 0; e < width; ++e)
        sum = hn::MulAdd(hn::Set(d, x[i * x_stride + e]), hn::LoadU(d, p + e * padded + first), sum);
      put(sum, scores + i * score_stride, first);
    }
  }
}

void RunningSoftmax(float* take, float* keep, double* largest, double* total, const float* score, size_t n) {
  const D64 d;
  const hn::Rebind<float, D64> narrow;
  const size_t lanes = hn::Lanes(d);
  const V64 one = hn::Set(d, 1.0);
  const auto step = [=](float* takes, float* keeps, double* most, double* sum, const float* scores) HWY_ATTR {
    const V64 s = hn::PromoteTo(d, hn::LoadU(narrow, scores)), before = hn::LoadU(d, most), held = hn::LoadU(d, sum);
    const auto above = hn::Gt(s, before);
    const V64 shrink = exponential(d, hn::IfThenElse(above, hn::Sub(before, s), hn::Sub(s, before)));
    const V64 past = hn::IfThenElse(above, hn::Mul(held, shrink), held), own = hn::IfThenElse(above, one, shrink);
    const V64 now = hn::Add(past, own);
    hn::StoreU(hn::IfThenElse(above, s, before), d, most);
    hn::StoreU(now, d, sum);
    hn::StoreU(hn::DemoteTo(narrow, hn::Div(past, now)), narrow, keeps);
    hn::StoreU(hn::DemoteTo(narrow, hn::Div(own, now)), narrow, takes);
  };
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) step(take + i, keep + i, largest + i, total + i, score + i);
  if (i == n) return;
  constexpr size_t kMost = HWY_MAX_BYTES / sizeof(double);
  HWY_ALIGN double last_largest[kMost] = {}, last_total[kMost] = {};
  HWY_ALIGN float last_score[kMost] = {}, last_take[kMost], last_keep[kMost];
  std::copy(largest + i, largest + n, last_largest);
  std::copy(total + i, total + n, last_total);
  std::copy(score + i, score + n, last_score);
  step(last_take, last_keep, last_largest, last_total, last_score);
  std::copy(last_largest, last_largest + (n - i), largest + i);
  std::copy(last_total, last_total + (n - i), total + i);
  std::copy(last_take, last_take + (n - i), take + i);
  std::copy(last_keep, last_keep + (n - i), keep + i);
}

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

HWY_EXPORT(PrototypeScores);
HWY_EXPORT(RunningSoftmax);
HWY_EXPORT(StateChunk);
HWY_EXPORT(StateChunkBackward);

void prototype_scores(float* scores, size_t score_stride, const float* x, size_t x_stride, const float* p,
                      size_t padded, size_t width, float scale, size_t n, size_t rank) {
  HWY_DYNAMIC_DISPATCH(PrototypeScores)(scores, score_stride, x, x_stride, p, padded, width, scale, n, rank);
}
void running_softmax(float* take, float* keep, double* largest, double* total, const float* score, size_t n) {
  HWY_DYNAMIC_DISPATCH(RunningSoftmax)(take, keep, largest, total, score, n);
}
void state_chunk(float* t, size_t stride, const ChunkGates& gates, size_t n) {
  HWY_DYNAMIC_DISPATCH(StateChunk)(t, stride, gates, n);
}
void state_chunk_backward(float* dot, float* reach, const float* d_t, size_t stride, const float* lambda,
                          size_t lambda_stride, const ChunkGates& gates, size_t n) {
  HWY_DYNAMIC_DISPATCH(StateChunkBackward)(dot, reach, d_t, stride, lambda, lambda_stride, gates, n);
}

}  // namespace unchain::simd
#endif  // HWY_ONCE
