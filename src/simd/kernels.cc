// See kernels.h. Compiled once for each instruction set by Highway's foreach_target.h; the functions at the end of the
// file pick one at run time.
#include "simd/kernels.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/kernels.cc"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"
#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unchain::simd::HWY_NAMESPACE {

const char* Target() {
  return hwy::TargetName(HWY_TARGET);
}

float Max(const float* x, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  float result = -std::numeric_limits<float>::infinity();
  size_t i = 0;
  if (n >= lanes) {
    V largest = load(d, x);
    for (i = lanes; i + lanes <= n; i += lanes) largest = hn::Max(largest, load(d, x + i));
    result = hn::GetLane(hn::MaxOfLanes(d, largest));
  }
  for (; i < n; ++i) result = std::max(result, x[i]);
  return result;
}

float Sum(const float* x, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V s0 = hn::Zero(d), s1 = s0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    s0 = hn::Add(s0, load(d, x + i));
    s1 = hn::Add(s1, load(d, x + i + lanes));
  }
  for (; i < n; i += lanes) s0 = hn::Add(s0, i + lanes <= n ? load(d, x + i) : load_tail(d, x + i, n - i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}

float DotF32(const float* x, const float* y, size_t n) {
  return dot_product(x, y, n);
}
float DotBf16(const bf16* x, const float* y, size_t n) {
  return dot_product(x, y, n);
}

// Stores v as f32 or bf16 and returns what was stored: bf16 entries are summed as rounded.
HWY_INLINE V store_and_keep(D d, V v, float* out) {
  store(d, v, out);
  return v;
}
HWY_INLINE V store_and_keep(D d, V v, bf16* out) {
  const auto bits = round_to_bf16(d, v);
  store_upper(bits, out);
  return hn::BitCast(d, hn::And(bits, hn::Set(hn::Rebind<uint32_t, D>(), 0xffff0000u)));
}

// Exponentials good enough for entries of type Precision.
template <class Precision, class Out>
HWY_INLINE float exp_sum(const float* x, float offset, Out* out, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V off = hn::Set(d, offset);
  V s0 = hn::Zero(d), s1 = s0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V e0 = exponential<Precision>(d, hn::Sub(load(d, x + i), off));
    const V e1 = exponential<Precision>(d, hn::Sub(load(d, x + i + lanes), off));
    s0 = hn::Add(s0, store_and_keep(d, e0, out + i));
    s1 = hn::Add(s1, store_and_keep(d, e1, out + i + lanes));
  }
  HWY_ALIGN Out tail[HWY_MAX_BYTES / sizeof(Out)];
  for (; i < n; i += lanes) {
    const size_t left = std::min(lanes, n - i);
    const V value = exponential<Precision>(d, hn::Sub(load_tail(d, x + i, left), off));
    s0 = hn::Add(s0, store_and_keep(d, hn::IfThenElseZero(hn::FirstN(d, left), value), tail));
    std::memcpy(out + i, tail, left * sizeof(Out));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}
float ExpSumF32(const float* x, float offset, float* out, size_t n) {
  return exp_sum<float>(x, offset, out, n);
}
float ExpSumBf16(const float* x, float offset, bf16* out, size_t n) {
  return exp_sum<bf16>(x, offset, out, n);
}
float ExpSumQuick(const float* x, float offset, float* out, size_t n) {
  return exp_sum<bf16>(x, offset, out, n);
}

template <class In, class Out>
HWY_INLINE void scaled(const In* x, float factor, Out* out, size_t n) {
  const V f = hn::Set(D(), factor);
  transform(
      out, n, [f](D, V v) HWY_ATTR { return hn::Mul(v, f); }, x);
}
void ScaledF32(const float* x, float factor, float* out, size_t n) {
  scaled(x, factor, out, n);
}
void ScaledBf16(const float* x, float factor, bf16* out, size_t n) {
  scaled(x, factor, out, n);
}

void Add(float* out, const float* x, size_t n) {
  transform(
      out, n, [](D, V a, V b) HWY_ATTR { return hn::Add(a, b); }, out, x);
}

template <class T>
HWY_INLINE void axpy(float* out, float factor, const T* x, size_t n) {
  const V f = hn::Set(D(), factor);
  transform(
      out, n, [f](D, V a, V b) HWY_ATTR { return hn::MulAdd(f, b, a); }, out, x);
}
void AxpyF32(float* out, float factor, const float* x, size_t n) {
  axpy(out, factor, x, n);
}
void AxpyBf16(float* out, float factor, const bf16* x, size_t n) {
  axpy(out, factor, x, n);
}

template <class Out>
HWY_INLINE void combination(float a, const float* x, float b, const float* y, Out* out, size_t n) {
  const V as = hn::Set(D(), a), bs = hn::Set(D(), b);
  transform(
      out, n, [=](D, V v, V w) HWY_ATTR { return hn::MulAdd(as, v, hn::Mul(bs, w)); }, x, y);
}
void CombinationF32(float a, const float* x, float b, const float* y, float* out, size_t n) {
  combination(a, x, b, y, out, n);
}
void CombinationBf16(float a, const float* x, float b, const float* y, bf16* out, size_t n) {
  combination(a, x, b, y, out, n);
}

template <class Out>
HWY_INLINE void scaled_by(const float* x, float factor, const float* weight, Out* out, size_t n) {
  const V f = hn::Set(D(), factor);
  transform(
      out, n, [f](D, V v, V w) HWY_ATTR { return hn::Mul(hn::Mul(v, f), w); }, x, weight);
}
void ScaledByF32(const float* x, float factor, const float* weight, float* out, size_t n) {
  scaled_by(x, factor, weight, out, n);
}
void ScaledByBf16(const float* x, float factor, const float* weight, bf16* out, size_t n) {
  scaled_by(x, factor, weight, out, n);
}

void ToBf16(const float* x, bf16* out, size_t n) {
  transform(
      out, n, [](D, V v) HWY_ATTR { return v; }, x);
}
void ToF32(const bf16* x, float* out, size_t n) {
  transform(
      out, n, [](D, V v) HWY_ATTR { return v; }, x);
}

// x·σ(y) = x/(1 + e^−y). Below y = −88, where the exponential would leave f32, the quotient stays at x·6e−39.
template <class Out>
HWY_INLINE V times_sigmoid(D d, V x, V y) {
  const V e = exponential<Out>(d, hn::Min(hn::Neg(y), hn::Set(d, 88.0f)));
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), e));
}

template <class Out>
HWY_INLINE void silu_mul(const float* gate, const float* up, Out* out, size_t n) {
  transform(
      out, n, [](D d, V g, V u) HWY_ATTR { return hn::Mul(times_sigmoid<Out>(d, g, g), u); }, gate, up);
}
void SiluMulF32(const float* gate, const float* up, float* out, size_t n) {
  silu_mul(gate, up, out, n);
}
void SiluMulBf16(const float* gate, const float* up, bf16* out, size_t n) {
  silu_mul(gate, up, out, n);
}

template <class Out>
HWY_INLINE void gelu_tanh_mul(const float* gate, const float* up, Out* out, size_t n) {
  transform(
      out, n,
      [](D d, V g, V u) HWY_ATTR {
        const V cubic = hn::MulAdd(hn::Mul(hn::Mul(g, g), g), hn::Set(d, 0.044715f), g);
        return hn::Mul(times_sigmoid<Out>(d, g, hn::Mul(cubic, hn::Set(d, 1.5957691216057308f))), u);
      },
      gate, up);
}
void GeluTanhMulF32(const float* gate, const float* up, float* out, size_t n) {
  gelu_tanh_mul(gate, up, out, n);
}
void GeluTanhMulBf16(const float* gate, const float* up, bf16* out, size_t n) {
  gelu_tanh_mul(gate, up, out, n);
}

// Turning (a, b) back is turning (b, a) on: the template says where in x a lies.
template <bool back>
HWY_INLINE void rotate_halves_by(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  const D d;
  const size_t half = n / 2, at_a = back ? half : 0, at_b = half - at_a, lanes = hn::Lanes(d);
  for (size_t i = 0; i < half; i += lanes) {
    const size_t left = std::min(lanes, half - i);
    const bool whole = left == lanes;
    const V a = whole ? load(d, x + at_a + i) : load_tail(d, x + at_a + i, left);
    const V b = whole ? load(d, x + at_b + i) : load_tail(d, x + at_b + i, left);
    const V c = whole ? load(d, cosine + i) : load_tail(d, cosine + i, left);
    const V s = whole ? load(d, sine + i) : load_tail(d, sine + i, left);
    const V turned_a = hn::NegMulAdd(b, s, hn::Mul(a, c)), turned_b = hn::MulAdd(a, s, hn::Mul(b, c));
    if (whole) {
      store(d, turned_a, out + at_a + i);
      store(d, turned_b, out + at_b + i);
    } else {
      store_tail(d, turned_a, out + at_a + i, left);
      store_tail(d, turned_b, out + at_b + i, left);
    }
  }
}
void RotateHalves(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  rotate_halves_by<false>(x, cosine, sine, out, n);
}
void UnrotateHalves(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  rotate_halves_by<true>(x, cosine, sine, out, n);
}

template <bool back>
HWY_INLINE void rotate_neighbours_by(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  constexpr size_t at_a = back ? 1 : 0, at_b = 1 - at_a;
  for (size_t i = 0; i < n / 2; ++i) {
    const float a = x[2 * i + at_a], b = x[2 * i + at_b];
    out[2 * i + at_a] = a * cosine[i] - b * sine[i];
    out[2 * i + at_b] = a * sine[i] + b * cosine[i];
  }
}
void RotateNeighbours(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  rotate_neighbours_by<false>(x, cosine, sine, out, n);
}
void UnrotateNeighbours(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  rotate_neighbours_by<true>(x, cosine, sine, out, n);
}

// Four rows at a time, so that each vector of x serves four rows; `count` is a constant so that the sums stay in
// registers.
template <size_t count>
HWY_INLINE void rows_times_vectors(const float* w, size_t stride, const float* x, float* out, size_t out_stride,
                                   size_t rows, size_t k) {
  const D d;
  const size_t lanes = hn::Lanes(d), whole = k / lanes * lanes;
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    V sums[4 * count];
    for (size_t j = 0; j < 4 * count; ++j) sums[j] = hn::Zero(d);
    const float* row = w + r * stride;
    const auto step = [&](size_t i, auto get) HWY_ATTR {
      V weights[4];
      for (size_t j = 0; j < 4; ++j) weights[j] = get(row + j * stride + i);
      for (size_t m = 0; m < count; ++m) {
        const V xs = get(x + m * k + i);
        for (size_t j = 0; j < 4; ++j) sums[m * 4 + j] = hn::MulAdd(weights[j], xs, sums[m * 4 + j]);
      }
    };
    for (size_t i = 0; i < whole; i += lanes) step(i, [d](const float* p) HWY_ATTR { return load(d, p); });
    if (whole < k) step(whole, [=](const float* p) HWY_ATTR { return load_tail(d, p, k - whole); });
    for (size_t m = 0; m < count; ++m) {
      for (size_t j = 0; j < 4; ++j) out[m * out_stride + r + j] = hn::GetLane(hn::SumOfLanes(d, sums[m * 4 + j]));
    }
  }
  for (; r < rows; ++r) {
    for (size_t m = 0; m < count; ++m) out[m * out_stride + r] = dot_product(w + r * stride, x + m * k, k);
  }
}

// bf16 weights come two a 32-bit lane: the even one is the lane shifted left, the odd one its upper half, so widening
// two vectors costs two instructions. x is split into evens and odds once a call, in chunks that stay in the level-1
// cache.
template <size_t count>
HWY_INLINE void rows_times_vectors(const bf16* w, size_t stride, const float* x, float* out, size_t out_stride,
                                   size_t rows, size_t k) {
  constexpr size_t kChunk = 2048;
  const D d;
  const hn::Rebind<uint32_t, D> d32;
  const auto upper = hn::Set(d32, 0xffff0000u);
  const size_t lanes = hn::Lanes(d), step = 2 * lanes;
  HWY_ALIGN float split[count * kChunk];
  for (size_t begin = 0; begin < k; begin += kChunk) {
    const size_t length = std::min(kChunk, k - begin), whole = length / step * step;
    for (size_t m = 0; m < count; ++m) {
      for (size_t i = 0; i < whole; i += step) {
        V even, odd;
        hn::LoadInterleaved2(d, x + m * k + begin + i, even, odd);
        hn::Store(even, d, split + m * kChunk + i);
        hn::Store(odd, d, split + m * kChunk + i + lanes);
      }
    }
    const auto put = [&](size_t m, size_t r, float sum) {
      if (whole < length) sum += dot_product(w + r * stride + begin + whole, x + m * k + begin + whole, length - whole);
      float& result = out[m * out_stride + r];
      result = begin == 0 ? sum : result + sum;
    };
    const auto add = [&](const bf16* row, size_t i, size_t m, V total) HWY_ATTR {
      const auto pairs = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(row + i));
      total = hn::MulAdd(hn::BitCast(d, hn::ShiftLeft<16>(pairs)), hn::Load(d, split + m * kChunk + i), total);
      return hn::MulAdd(hn::BitCast(d, hn::And(pairs, upper)), hn::Load(d, split + m * kChunk + i + lanes), total);
    };
    size_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      V sums[4 * count];
      for (size_t j = 0; j < 4 * count; ++j) sums[j] = hn::Zero(d);
      const bf16* row = w + r * stride + begin;
      for (size_t i = 0; i < whole; i += step) {
        for (size_t m = 0; m < count; ++m) {
          for (size_t j = 0; j < 4; ++j) sums[m * 4 + j] = add(row + j * stride, i, m, sums[m * 4 + j]);
        }
        // The next four rows: the processor's own prefetching starts anew with each row, and rows of a kilobyte are too
        // short for it (26 to 34 GB/s on one core of a Zen 5).
        for (size_t j = 4; j < 8; ++j) hwy::Prefetch(row + j * stride + i);
      }
      for (size_t m = 0; m < count; ++m) {
        for (size_t j = 0; j < 4; ++j) put(m, r + j, hn::GetLane(hn::SumOfLanes(d, sums[m * 4 + j])));
      }
    }
    for (; r < rows; ++r) {
      for (size_t m = 0; m < count; ++m) {
        V sum = hn::Zero(d);
        for (size_t i = 0; i < whole; i += step) sum = add(w + r * stride + begin, i, m, sum);
        put(m, r, hn::GetLane(hn::SumOfLanes(d, sum)));
      }
    }
  }
}

template <class T>
HWY_INLINE void matrix_vectors(const T* w, size_t stride, const float* x, size_t count, float* out, size_t out_stride,
                               size_t rows, size_t k) {
  switch (count) {
    case 1:
      return rows_times_vectors<1>(w, stride, x, out, out_stride, rows, k);
    case 2:
      return rows_times_vectors<2>(w, stride, x, out, out_stride, rows, k);
    case 3:
      return rows_times_vectors<3>(w, stride, x, out, out_stride, rows, k);
    case 4:
      return rows_times_vectors<4>(w, stride, x, out, out_stride, rows, k);
  }
}
void MatrixVectorsF32(const float* w, size_t stride, const float* x, size_t count, float* out, size_t out_stride,
                      size_t rows, size_t k) {
  matrix_vectors(w, stride, x, count, out, out_stride, rows, k);
}
void MatrixVectorsBf16(const bf16* w, size_t stride, const float* x, size_t count, float* out, size_t out_stride,
                       size_t rows, size_t k) {
  matrix_vectors(w, stride, x, count, out, out_stride, rows, k);
}

// Panel rows of 256 bytes that are asked for ahead of their use: one core's own prefetching does not keep enough of
// memory busy.
constexpr size_t kAhead = 16;

// `width` outputs of a packed panel stay in registers while the inputs go by; the panel is read from front to back.
template <size_t width>
HWY_INLINE void panel_vector(const float* w, const float* x, float* out, size_t k) {
  constexpr size_t kLanes = HWY_LANES(float), kVectors = width / kLanes;
  const D d;
  V sums[kVectors];
  for (size_t j = 0; j < kVectors; ++j) sums[j] = hn::Zero(d);
  for (size_t i = 0; i < k; ++i) {
    const V xs = hn::Set(d, x[i]);
    for (size_t j = 0; j < width; j += 16) hwy::Prefetch(w + (i + kAhead) * 64 + j);
    for (size_t j = 0; j < kVectors; ++j) sums[j] = hn::MulAdd(xs, load(d, w + i * 64 + j * kLanes), sums[j]);
  }
  for (size_t j = 0; j < kVectors; ++j) store(d, sums[j], out + j * kLanes);
}

// bf16: a 32-bit lane holds an output's weights of two inputs; the even one is the lane shifted left, the odd its upper
// half.
template <size_t width>
HWY_INLINE void panel_vector(const bf16* w, const float* x, float* out, size_t k) {
  constexpr size_t kLanes = HWY_LANES(float), kVectors = width / kLanes;
  const D d;
  const hn::Rebind<uint32_t, D> d32;
  const auto upper = hn::Set(d32, 0xffff0000u);
  V even[kVectors], odd[kVectors];  // separate sums, so that additions need not wait for each other
  for (size_t j = 0; j < kVectors; ++j) even[j] = odd[j] = hn::Zero(d);
  for (size_t i = 0; i < k; i += 2) {
    const V x0 = hn::Set(d, x[i]), x1 = hn::Set(d, i + 1 < k ? x[i + 1] : 0.0f);
    const uint32_t* pairs = reinterpret_cast<const uint32_t*>(w + i * 64);
    for (size_t j = 0; j < width; j += 16) hwy::Prefetch(pairs + kAhead * 64 + j);
    for (size_t j = 0; j < kVectors; ++j) {
      const auto pair = hn::LoadU(d32, pairs + j * kLanes);
      even[j] = hn::MulAdd(x0, hn::BitCast(d, hn::ShiftLeft<16>(pair)), even[j]);
      odd[j] = hn::MulAdd(x1, hn::BitCast(d, hn::And(pair, upper)), odd[j]);
    }
  }
  for (size_t j = 0; j < kVectors; ++j) store(d, hn::Add(even[j], odd[j]), out + j * kLanes);
}

template <class T>
HWY_INLINE void panel_vectors(const T* w, const float* x, size_t count, float* out, size_t out_stride, size_t first,
                              size_t width, size_t k) {
  const T* begin = w + first * (sizeof(T) == 2 ? 2 : 1);
  for (size_t m = 0; m < count; ++m) {
    width == 64 ? panel_vector<64>(begin, x + m * k, out + m * out_stride, k)
                : panel_vector<32>(begin, x + m * k, out + m * out_stride, k);
  }
}
void PanelVectorsF32(const float* w, const float* x, size_t count, float* out, size_t out_stride, size_t first,
                     size_t width, size_t k) {
  panel_vectors(w, x, count, out, out_stride, first, width, k);
}
void PanelVectorsBf16(const bf16* w, const float* x, size_t count, float* out, size_t out_stride, size_t first,
                      size_t width, size_t k) {
  panel_vectors(w, x, count, out, out_stride, first, width, k);
}

// Four vectors of the width at a time stay in registers while the rows go by.
template <class T>
HWY_INLINE void weighted_rows(const float* p, const T* v, size_t stride, float* out, size_t rows, size_t width) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (size_t j = 0; j < rows; ++j) {
      const V weight = hn::Set(d, p[j]);
      const T* row = v + j * stride + i;
      s0 = hn::MulAdd(weight, load(d, row), s0);
      s1 = hn::MulAdd(weight, load(d, row + lanes), s1);
      s2 = hn::MulAdd(weight, load(d, row + 2 * lanes), s2);
      s3 = hn::MulAdd(weight, load(d, row + 3 * lanes), s3);
    }
    store(d, s0, out + i);
    store(d, s1, out + i + lanes);
    store(d, s2, out + i + 2 * lanes);
    store(d, s3, out + i + 3 * lanes);
  }
  for (; i < width; i += lanes) {
    const size_t left = std::min(lanes, width - i);
    V s = hn::Zero(d);
    for (size_t j = 0; j < rows; ++j) s = hn::MulAdd(hn::Set(d, p[j]), load_tail(d, v + j * stride + i, left), s);
    store_tail(d, s, out + i, left);
  }
}
void WeightedRowsF32(const float* p, const float* v, size_t stride, float* out, size_t rows, size_t width) {
  weighted_rows(p, v, stride, out, rows, width);
}
void WeightedRowsBf16(const float* p, const bf16* v, size_t stride, float* out, size_t rows, size_t width) {
  weighted_rows(p, v, stride, out, rows, width);
}

}  // namespace unchain::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unchain::simd {

HWY_EXPORT(Target);
HWY_EXPORT(Max);
HWY_EXPORT(Sum);
HWY_EXPORT(DotF32);
HWY_EXPORT(DotBf16);
HWY_EXPORT(ExpSumF32);
HWY_EXPORT(ExpSumBf16);
HWY_EXPORT(ExpSumQuick);
HWY_EXPORT(ScaledF32);
HWY_EXPORT(ScaledBf16);
HWY_EXPORT(Add);
HWY_EXPORT(AxpyF32);
HWY_EXPORT(AxpyBf16);
HWY_EXPORT(CombinationF32);
HWY_EXPORT(CombinationBf16);
HWY_EXPORT(ScaledByF32);
HWY_EXPORT(ScaledByBf16);
HWY_EXPORT(ToBf16);
HWY_EXPORT(ToF32);
HWY_EXPORT(SiluMulF32);
HWY_EXPORT(SiluMulBf16);
HWY_EXPORT(GeluTanhMulF32);
HWY_EXPORT(GeluTanhMulBf16);
HWY_EXPORT(RotateHalves);
HWY_EXPORT(UnrotateHalves);
HWY_EXPORT(RotateNeighbours);
HWY_EXPORT(UnrotateNeighbours);
HWY_EXPORT(MatrixVectorsF32);
HWY_EXPORT(MatrixVectorsBf16);
HWY_EXPORT(PanelVectorsF32);
HWY_EXPORT(PanelVectorsBf16);
HWY_EXPORT(WeightedRowsF32);
HWY_EXPORT(WeightedRowsBf16);

const char* target_name() {
  return HWY_DYNAMIC_DISPATCH(Target)();
}
float max(const float* x, size_t n) {
  return HWY_DYNAMIC_DISPATCH(Max)(x, n);
}
float sum(const float* x, size_t n) {
  return HWY_DYNAMIC_DISPATCH(Sum)(x, n);
}
float dot(const float* x, const float* y, size_t n) {
  return HWY_DYNAMIC_DISPATCH(DotF32)(x, y, n);
}
float dot(const bf16* x, const float* y, size_t n) {
  return HWY_DYNAMIC_DISPATCH(DotBf16)(x, y, n);
}
float sum_squares(const float* x, size_t n) {
  return HWY_DYNAMIC_DISPATCH(DotF32)(x, x, n);
}
float exp_sum(const float* x, float offset, float* out, size_t n) {
  return HWY_DYNAMIC_DISPATCH(ExpSumF32)(x, offset, out, n);
}
float exp_sum(const float* x, float offset, bf16* out, size_t n) {
  return HWY_DYNAMIC_DISPATCH(ExpSumBf16)(x, offset, out, n);
}
float exp_sum_quick(const float* x, float offset, float* out, size_t n) {
  return HWY_DYNAMIC_DISPATCH(ExpSumQuick)(x, offset, out, n);
}
void scale(float* x, float factor, size_t n) {
  HWY_DYNAMIC_DISPATCH(ScaledF32)(x, factor, x, n);
}
void scaled(const float* x, float factor, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(ScaledF32)(x, factor, out, n);
}
void scaled(const float* x, float factor, bf16* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(ScaledBf16)(x, factor, out, n);
}
void add(float* out, const float* x, size_t n) {
  HWY_DYNAMIC_DISPATCH(Add)(out, x, n);
}
void axpy(float* out, float factor, const float* x, size_t n) {
  HWY_DYNAMIC_DISPATCH(AxpyF32)(out, factor, x, n);
}
void axpy(float* out, float factor, const bf16* x, size_t n) {
  HWY_DYNAMIC_DISPATCH(AxpyBf16)(out, factor, x, n);
}
void combination(float a, const float* x, float b, const float* y, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(CombinationF32)(a, x, b, y, out, n);
}
void combination(float a, const float* x, float b, const float* y, bf16* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(CombinationBf16)(a, x, b, y, out, n);
}
void scaled_by(const float* x, float factor, const float* weight, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(ScaledByF32)(x, factor, weight, out, n);
}
void scaled_by(const float* x, float factor, const float* weight, bf16* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(ScaledByBf16)(x, factor, weight, out, n);
}
void convert(const float* x, bf16* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(ToBf16)(x, out, n);
}
void convert(const bf16* x, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(ToF32)(x, out, n);
}
void silu_mul(const float* gate, const float* up, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(SiluMulF32)(gate, up, out, n);
}
void silu_mul(const float* gate, const float* up, bf16* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(SiluMulBf16)(gate, up, out, n);
}
void gelu_tanh_mul(const float* gate, const float* up, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(GeluTanhMulF32)(gate, up, out, n);
}
void gelu_tanh_mul(const float* gate, const float* up, bf16* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(GeluTanhMulBf16)(gate, up, out, n);
}
void rotate_halves(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(RotateHalves)(x, cosine, sine, out, n);
}
void unrotate_halves(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(UnrotateHalves)(x, cosine, sine, out, n);
}
void rotate_neighbours(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(RotateNeighbours)(x, cosine, sine, out, n);
}
void unrotate_neighbours(const float* x, const float* cosine, const float* sine, float* out, size_t n) {
  HWY_DYNAMIC_DISPATCH(UnrotateNeighbours)(x, cosine, sine, out, n);
}
void matrix_vectors(const float* w, size_t stride, const float* x, size_t count, float* out, size_t out_stride,
                    size_t rows, size_t k) {
  HWY_DYNAMIC_DISPATCH(MatrixVectorsF32)(w, stride, x, count, out, out_stride, rows, k);
}
void matrix_vectors(const bf16* w, size_t stride, const float* x, size_t count, float* out, size_t out_stride,
                    size_t rows, size_t k) {
  HWY_DYNAMIC_DISPATCH(MatrixVectorsBf16)(w, stride, x, count, out, out_stride, rows, k);
}

void panel_vectors(const float* w, const float* x, size_t count, float* out, size_t out_stride, size_t first,
                   size_t width, size_t k) {
  HWY_DYNAMIC_DISPATCH(PanelVectorsF32)(w, x, count, out, out_stride, first, width, k);
}
void panel_vectors(const bf16* w, const float* x, size_t count, float* out, size_t out_stride, size_t first,
                   size_t width, size_t k) {
  HWY_DYNAMIC_DISPATCH(PanelVectorsBf16)(w, x, count, out, out_stride, first, width, k);
}
void weighted_rows(const float* p, const float* v, size_t stride, float* out, size_t rows, size_t width) {
  HWY_DYNAMIC_DISPATCH(WeightedRowsF32)(p, v, stride, out, rows, width);
}
void weighted_rows(const float* p, const bf16* v, size_t stride, float* out, size_t rows, size_t width) {
  HWY_DYNAMIC_DISPATCH(WeightedRowsBf16)(p, v, stride, out, rows, width);
}

}  // namespace unchain::simd
#endif  // HWY_ONCE
