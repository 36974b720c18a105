// See gradients.h. Compiled once for each instruction set, as kernels.cc.
#include "simd/gradients.h"

#include <algorithm>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/gradients.cc"
#include "hwy/foreach_target.h"  // before highway.h
#include "hwy/highway.h"
#include "simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace unchain::simd::HWY_NAMESPACE {

// --- softmax ---------------------------------------------------------------------------------------------------------

template <class Out>
HWY_INLINE void softmax_row(Out* out, const float* map, const float* gradient, float inner, size_t n) {
  const V s = hn::Set(D(), inner);
  transform(
      out, n, [s](D, V a, V g) HWY_ATTR { return hn::Mul(a, hn::Sub(g, s)); }, map, gradient);
}
void SoftmaxBackwardRowF32(float* out, const float* map, const float* gradient, float inner, size_t n) {
  softmax_row(out, map, gradient, inner, n);
}
void SoftmaxBackwardRowBf16(bf16* out, const float* map, const float* gradient, float inner, size_t n) {
  softmax_row(out, map, gradient, inner, n);
}

// --- RMSNorm ---------------------------------------------------------------------------------------------------------

template <bool weighted, bool with_d_weight>
HWY_INLINE void rms_norm_row(float* d_x, float* d_weight, const float* d_out, const float* x, const float* weight,
                             float inverse_rms, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V r = hn::Set(d, inverse_rms);
  const auto get = [=](const float* p, size_t i)
                       HWY_ATTR { return i + lanes <= n ? load(d, p + i) : load_tail(d, p + i, n - i); };
  const auto put = [=](float* p, size_t i, V v)
                       HWY_ATTR { i + lanes <= n ? store(d, v, p + i) : store_tail(d, v, p + i, n - i); };
  // The forward's second pass was out = x·r·weight: Σ g·x, and the gradient of the weight.
  V s0 = hn::Zero(d), s1 = s0;
  for (size_t i = 0; i < n; i += lanes) {
    const V xs = get(x, i), upstream = get(d_out, i);
    const V product = hn::Mul(xs, upstream);
    if constexpr (weighted) {
      s0 = hn::MulAdd(product, get(weight, i), s0);
    } else {
      s0 = hn::MulAdd(xs, upstream, s0);
    }
    std::swap(s0, s1);
    if constexpr (with_d_weight) put(d_weight, i, hn::MulAdd(product, r, get(d_weight, i)));
  }
  // Its first pass was r = (mean(x²) + eps)^(−1/2), so ∂r/∂x_i = −r³·x_i/n.
  const float mean = hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1))) / static_cast<float>(n);
  const V shrink = hn::Set(d, mean * inverse_rms * inverse_rms);
  for (size_t i = 0; i < n; i += lanes) {
    V g = get(d_out, i);
    if constexpr (weighted) g = hn::Mul(g, get(weight, i));
    put(d_x, i, hn::MulAdd(r, hn::NegMulAdd(get(x, i), shrink, g), get(d_x, i)));
  }
}
void RmsNormBackwardRow(float* d_x, float* d_weight, const float* d_out, const float* x, const float* weight,
                        float inverse_rms, size_t n) {
  if (weight == nullptr) {
    d_weight == nullptr ? rms_norm_row<false, false>(d_x, d_weight, d_out, x, weight, inverse_rms, n)
                        : rms_norm_row<false, true>(d_x, d_weight, d_out, x, weight, inverse_rms, n);
  } else {
    d_weight == nullptr ? rms_norm_row<true, false>(d_x, d_weight, d_out, x, weight, inverse_rms, n)
                        : rms_norm_row<true, true>(d_x, d_weight, d_out, x, weight, inverse_rms, n);
  }
}

// --- gated feed-forward ----------------------------------------------------------------------------------------------

struct Gate {
  V value, slope;  // act(gate) and act'(gate)
};

// act(g) = g·σ(y): act' = σ + g·σ(y)·σ(−y)·y'. With e = e^−y, σ(y) = 1/(1 + e) and σ(−y) = e·σ(y), without
// cancellation. Beyond |y| = 88 the second term is below 1e−34 and e, y' may have left f32: it is taken as 0.
template <class Out>
HWY_INLINE Gate gate_of(D d, V g, V y, V y_slope) {
  const V limit = hn::Set(d, 88.0f), one = hn::Set(d, 1.0f);
  const V e = exponential<Out>(d, hn::Min(hn::Neg(y), limit));
  const V sigmoid = hn::Div(one, hn::Add(one, e));
  const V value = hn::Mul(g, sigmoid);
  const V bend = hn::Mul(hn::Mul(value, hn::Mul(e, sigmoid)), y_slope);
  return {value, hn::Add(sigmoid, hn::IfThenZeroElse(hn::Gt(hn::Abs(y), limit), bend))};
}

template <class Out>
HWY_INLINE Gate silu_of(D d, V g) {
  return gate_of<Out>(d, g, g, hn::Set(d, 1.0f));
}
template <class Out>
HWY_INLINE Gate gelu_of(D d, V g) {
  const V scale = hn::Set(d, 1.5957691216057308f), square = hn::Mul(g, g);
  const V y = hn::Mul(hn::MulAdd(hn::Mul(square, g), hn::Set(d, 0.044715f), g), scale);
  return gate_of<Out>(d, g, y, hn::Mul(hn::MulAdd(square, hn::Set(d, 3 * 0.044715f), hn::Set(d, 1.0f)), scale));
}

template <class Out, class Activation>
HWY_INLINE void gated_backward(Out* d_gate, Out* d_up, const float* d_out, const float* gate, const float* up, size_t n,
                               const Activation& activation) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V upstream = load(d, d_out + i), u = load(d, up + i);
    const Gate g = activation(d, load(d, gate + i));
    store(d, hn::Mul(hn::Mul(upstream, u), g.slope), d_gate + i);
    store(d, hn::Mul(upstream, g.value), d_up + i);
  }
  if (i < n) {
    const V upstream = load_tail(d, d_out + i, n - i), u = load_tail(d, up + i, n - i);
    const Gate g = activation(d, load_tail(d, gate + i, n - i));
    store_tail(d, hn::Mul(hn::Mul(upstream, u), g.slope), d_gate + i, n - i);
    store_tail(d, hn::Mul(upstream, g.value), d_up + i, n - i);
  }
}
void SiluBackwardF32(float* d_gate, float* d_up, const float* d_out, const float* gate, const float* up, size_t n) {
  gated_backward(d_gate, d_up, d_out, gate, up, n, [](D d, V g) HWY_ATTR { return silu_of<float>(d, g); });
}
void SiluBackwardBf16(bf16* d_gate, bf16* d_up, const float* d_out, const float* gate, const float* up, size_t n) {
  gated_backward(d_gate, d_up, d_out, gate, up, n, [](D d, V g) HWY_ATTR { return silu_of<bf16>(d, g); });
}
void GeluTanhBackwardF32(float* d_gate, float* d_up, const float* d_out, const float* gate, const float* up, size_t n) {
  gated_backward(d_gate, d_up, d_out, gate, up, n, [](D d, V g) HWY_ATTR { return gelu_of<float>(d, g); });
}
void GeluTanhBackwardBf16(bf16* d_gate, bf16* d_up, const float* d_out, const float* gate, const float* up, size_t n) {
  gated_backward(d_gate, d_up, d_out, gate, up, n, [](D d, V g) HWY_ATTR { return gelu_of<bf16>(d, g); });
}

// --- optimizer -------------------------------------------------------------------------------------------------------

void AdamW(float* value, float* m, float* v, bf16* narrow, const float* gradient, const AdamWStep& step, size_t n) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < n; i += lanes) {
    const size_t left = std::min(lanes, n - i);
    const auto get = [=](const float* p) HWY_ATTR { return left == lanes ? load(d, p) : load_tail(d, p, left); };
    const auto put = [=](auto* p, V x) HWY_ATTR { left == lanes ? store(d, x, p) : store_tail(d, x, p, left); };
    const V g = hn::Mul(get(gradient + i), hn::Set(d, step.gradient_scale));
    const V first = hn::MulAdd(get(m + i), hn::Set(d, step.beta1), hn::Mul(g, hn::Set(d, step.one_minus_beta1)));
    const V second =
        hn::MulAdd(get(v + i), hn::Set(d, step.beta2), hn::Mul(hn::Mul(g, g), hn::Set(d, step.one_minus_beta2)));
    const V root = hn::MulAdd(hn::Sqrt(second), hn::Set(d, step.root_scale), hn::Set(d, step.eps));
    const V move = hn::Div(hn::Mul(first, hn::Set(d, step.rate)), root);
    const V result = hn::Sub(hn::Mul(get(value + i), hn::Set(d, step.keep)), move);
    put(m + i, first);
    put(v + i, second);
    put(value + i, result);
    if (narrow != nullptr) put(narrow + i, result);
  }
}

double SumSquaresF64(const float* x, size_t n) {
  const hn::ScalableTag<double> d64;
  const hn::Rebind<float, decltype(d64)> half;
  const size_t lanes = hn::Lanes(d64);
  auto s0 = hn::Zero(d64), s1 = s0;
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::PromoteTo(d64, hn::LoadU(half, x + i)), b = hn::PromoteTo(d64, hn::LoadU(half, x + i + lanes));
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d64, hn::Add(s0, s1)));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace unchain::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace unchain::simd {

HWY_EXPORT(SoftmaxBackwardRowF32);
HWY_EXPORT(SoftmaxBackwardRowBf16);
HWY_EXPORT(RmsNormBackwardRow);
HWY_EXPORT(SiluBackwardF32);
HWY_EXPORT(SiluBackwardBf16);
HWY_EXPORT(GeluTanhBackwardF32);
HWY_EXPORT(GeluTanhBackwardBf16);
HWY_EXPORT(AdamW);
HWY_EXPORT(SumSquaresF64);

void softmax_backward_row(float* out, const float* map, const float* gradient, float inner, size_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBackwardRowF32)(out, map, gradient, inner, n);
}
void softmax_backward_row(bf16* out, const float* map, const float* gradient, float inner, size_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBackwardRowBf16)(out, map, gradient, inner, n);
}
void rms_norm_backward_row(float* d_x, float* d_weight, const float* d_out, const float* x, const float* weight,
                           float inverse_rms, size_t n) {
  HWY_DYNAMIC_DISPATCH(RmsNormBackwardRow)(d_x, d_weight, d_out, x, weight, inverse_rms, n);
}
void silu_backward(float* d_gate, float* d_up, const float* d_out, const float* gate, const float* up, size_t n) {
  HWY_DYNAMIC_DISPATCH(SiluBackwardF32)(d_gate, d_up, d_out, gate, up, n);
}
void silu_backward(bf16* d_gate, bf16* d_up, const float* d_out, const float* gate, const float* up, size_t n) {
  HWY_DYNAMIC_DISPATCH(SiluBackwardBf16)(d_gate, d_up, d_out, gate, up, n);
}
void gelu_tanh_backward(float* d_gate, float* d_up, const float* d_out, const float* gate, const float* up, size_t n) {
  HWY_DYNAMIC_DISPATCH(GeluTanhBackwardF32)(d_gate, d_up, d_out, gate, up, n);
}
void gelu_tanh_backward(bf16* d_gate, bf16* d_up, const float* d_out, const float* gate, const float* up, size_t n) {
  HWY_DYNAMIC_DISPATCH(GeluTanhBackwardBf16)(d_gate, d_up, d_out, gate, up, n);
}
void adamw(float* value, float* m, float* v, bf16* narrow, const float* gradient, const AdamWStep& step, size_t n) {
  HWY_DYNAMIC_DISPATCH(AdamW)(value, m, v, narrow, gradient, step, n);
}
double sum_squares_f64(const float* x, size_t n) {
  return HWY_DYNAMIC_DISPATCH(SumSquaresF64)(x, n);
}

}  // namespace unchain::simd
#endif  // HWY_ONCE
