// The pieces that kernels are written with, once for each instruction set: loading and storing f32 or bf16 as f32
// vectors, loops over arrays whose last, incomplete vector goes through a small buffer, dot products and exponentials.
// Include after hwy/highway.h.
#if defined(UNCHAIN_SIMD_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)  // once per target, by Highway's convention
#ifdef UNCHAIN_SIMD_VECTOR_INL_H_
#undef UNCHAIN_SIMD_VECTOR_INL_H_
#else
#define UNCHAIN_SIMD_VECTOR_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace unchain::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE V load(D d, const float* p) {
  return hn::LoadU(d, p);
}
HWY_INLINE V load(D d, const bf16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)))));
}

HWY_INLINE void store(D d, V v, float* p) {
  hn::StoreU(v, d, p);
}
// The bits of v rounded to bf16 in the upper half of each lane: to nearest, ties to even; a NaN stays a NaN.
HWY_INLINE hn::Vec<hn::Rebind<uint32_t, D>> round_to_bf16(D /*d*/, V v) {
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu)));
  return hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), hn::Set(d32, 0x7fc00000u), rounded);
}
// Stores the upper halves of the lanes.
HWY_INLINE void store_upper(hn::Vec<hn::Rebind<uint32_t, D>> bits, bf16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<int32_t, D> di32;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, hn::ShiftRight<16>(bits))), d16, reinterpret_cast<uint16_t*>(p));
}
HWY_INLINE void store(D d, V v, bf16* p) {
  store_upper(round_to_bf16(d, v), p);
}

// The first n < Lanes(d) numbers, zeros behind them.
template <class T>
HWY_INLINE V load_tail(D d, const T* p, size_t n) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  std::memcpy(buffer, p, n * sizeof(T));
  return load(d, buffer);
}
template <class T>
HWY_INLINE void store_tail(D d, V v, T* p, size_t n) {
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
  store(d, v, buffer);
  std::memcpy(p, buffer, n * sizeof(T));
}

// out_i = f(in_i …) on whole vectors; out may be one of the inputs.
template <class Out, class F, class... In>
HWY_INLINE void transform(Out* out, size_t n, const F& f, const In*... in) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, f(d, load(d, in + i)...), out + i);
  if (i < n) store_tail(d, f(d, load_tail(d, in + i, n - i)...), out + i, n - i);
}

// Σ_i x_i·y_i, in four independent vector sums (the latency of one multiply-add is about four cycles).
template <class X, class Y>
HWY_INLINE float dot_product(const X* x, const Y* y, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::MulAdd(load(d, x + i), load(d, y + i), s0);
    s1 = hn::MulAdd(load(d, x + i + lanes), load(d, y + i + lanes), s1);
    s2 = hn::MulAdd(load(d, x + i + 2 * lanes), load(d, y + i + 2 * lanes), s2);
    s3 = hn::MulAdd(load(d, x + i + 3 * lanes), load(d, y + i + 3 * lanes), s3);
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::MulAdd(load(d, x + i), load(d, y + i), s0);
  if (i < n) s1 = hn::MulAdd(load_tail(d, x + i, n - i), load_tail(d, y + i, n - i), s1);
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// e^v to the accuracy that an output of type Out keeps, v ≤ 88; 0 below 2⁻¹²⁶, a NaN stays one. Several times as fast
// as Highway's Exp, which makes 0 of a NaN.
template <class Out>
HWY_INLINE V exponential(D d, V v);

// With k = round(v·log₂e) and r = v − k·ln 2: e^v = 2^k·e^r. Adding 1.5·2²³ + 127 rounds, and leaves k + 127, the
// exponent field of 2^k, in the sum's lowest bits. ln 2 in two parts, of which the first has nine bits, so that its
// product with k is exact. e^r = 1 + r + r²·q(r) on [−½ ln 2, ½ ln 2], q fitted to the least largest relative error of
// the whole, 4e-9: what remains is rounding.
template <>
HWY_INLINE V exponential<float>(D d, V v) {
  const hn::Rebind<uint32_t, D> d32;
  const V t = hn::Mul(v, hn::Set(d, 1.4426950408889634f)), magic = hn::Set(d, 12582912.0f + 127.0f);
  const V sum = hn::Add(t, magic);
  const V k = hn::Sub(sum, magic);
  const V r = hn::NegMulAdd(k, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(k, hn::Set(d, 0.693359375f), v));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(d32, sum)));
  V q = hn::MulAdd(hn::Set(d, 0.001381459878757596f), r, hn::Set(d, 0.008368716575205326f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.04166838899254799f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.1666652113199234f));
  q = hn::MulAdd(q, r, hn::Set(d, 0.4999999403953552f));
  const V p = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0f));
  return hn::IfThenZeroElse(hn::Lt(t, hn::Set(d, -126.0f)), hn::Mul(p, power));
}
// 2^t = 2^k·2^f, t = v·log₂e, k = round(t). 2^f on [−½, ½] is a polynomial fitted to the least largest relative error,
// 2.6e-6; the rounding of t, at most 126·2⁻²⁴, adds 6e-6 at the far end.
template <>
HWY_INLINE V exponential<bf16>(D d, V v) {
  const hn::Rebind<uint32_t, D> d32;
  const V t = hn::Mul(v, hn::Set(d, 1.4426950408889634f)), magic = hn::Set(d, 12582912.0f + 127.0f);
  const V sum = hn::Add(t, magic);
  const V f = hn::Sub(t, hn::Sub(sum, magic));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(d32, sum)));
  V p = hn::MulAdd(hn::Set(d, 0.009570102207362652f), f, hn::Set(d, 0.05591785907745361f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.240247443318367f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.6931217908859253f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.9999992847442627f));
  return hn::IfThenZeroElse(hn::Lt(t, hn::Set(d, -126.0f)), hn::Mul(p, power));
}

using D64 = hn::ScalableTag<double>;
using V64 = hn::Vec<D64>;

// e^v for v ≤ 700, 0 below −708 (e^−708 = 3e−308), a NaN stays one. As above: adding 1.5·2⁵² + 1023 rounds t; ln 2 in
// two parts, of which the first has 42 bits, so that its product with k, below 2¹⁰, is exact, and v less that product
// too. On [−½ ln 2, ½ ln 2] the power series up to r¹³ is within 4.2e-18, 0.04 of ε = 2⁻⁵³. Relative error: the last
// sum ε; r, and r²·q + r, which are below ½ and are rounded, ¼ ε each; r², q and their product, which are rounded as
// well where there is no fused multiply-add, ε·3·r²/2 < 0.2 ε. Where 1 + p < 1 these weigh 1.42 as much, but the last
// sum half: below 2 ε.
HWY_INLINE V64 exponential(D64 d, V64 v) {
  const hn::Rebind<uint64_t, D64> d64;
  const V64 magic = hn::Set(d, 0x1.8p52 + 1023);
  const V64 sum = hn::MulAdd(v, hn::Set(d, 1.4426950408889634074), magic);
  const V64 k = hn::Sub(sum, magic);
  const V64 r = hn::NegMulAdd(k, hn::Set(d, 0x1.ef35793c7673p-45), hn::NegMulAdd(k, hn::Set(d, 0x1.62e42fefa38p-1), v));
  const V64 power = hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(d64, sum)));
  V64 q = hn::Set(d, 1.0 / 6227020800);
  for (const double factorial :
       {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0})
    q = hn::MulAdd(q, r, hn::Set(d, 1 / factorial));
  const V64 p = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), hn::Set(d, 1.0));
  return hn::IfThenZeroElse(hn::Lt(v, hn::Set(d, -708.0)), hn::Mul(p, power));
}

}  // namespace unchain::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // UNCHAIN_SIMD_VECTOR_INL_H_
