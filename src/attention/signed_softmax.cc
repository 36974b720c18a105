#include "attention/signed_softmax.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "attention/signed_panel.h"
#include "base/thread.h"
#include "ops/cross_entropy.h"
#include "ops/gemm.h"
#include "simd/kernels.h"

namespace unchain::attention {
namespace {

// What f32 exponentials must be good to; bf16 ones are always good to bf16.
enum class Exponentials { exact, for_bf16 };

// Pass 1 is score(). Pass 2: each row of scores becomes e^(score − largest) over its visible keys and 0 elsewhere,
// written to `weights` (which may be `scores`). Returns 1/Σ, or 0 for a row that sees no key; a NaN goes on to the next
// layer's check.
template <Exponentials kind = Exponentials::exact, class T>
float exponentiate(const SignedCall& call, const Panel& panel, const Map& map, int64_t row, float* scores, T* weights,
                   float* log_sum) {
  const Visible seen = visible(call, panel, row);
  const auto count = static_cast<size_t>(seen.count);
  ops::soft_cap(scores + seen.begin, call.config.soft_cap, seen.count);
  float largest = simd::max(scores + seen.begin, count), rest = 0;
  if (call.in.extra && !map.second) {
    largest = std::max(largest, call.in.extra[map.output]);
    rest = std::exp(call.in.extra[map.output] - largest);
  }
  float sum = rest;
  if constexpr (kind == Exponentials::for_bf16 && std::is_same_v<T, float>) {
    sum += simd::exp_sum_quick(scores + seen.begin, largest, weights + seen.begin, count);
  } else {
    sum += simd::exp_sum(scores + seen.begin, largest, weights + seen.begin, count);
  }
  const int64_t end = seen.begin + seen.count;
  std::memset(static_cast<void*>(weights), 0, static_cast<size_t>(seen.begin) * sizeof(T));
  std::memset(static_cast<void*>(weights + end), 0, static_cast<size_t>(panel.width() - end) * sizeof(T));
  if (log_sum) *log_sum = largest + std::log(sum);
  return sum > 0 ? 1.0f / sum : (sum == 0 ? 0.0f : sum);
}

// Pass 3: P = A1 − λ A2 in place of A1 (or into bf16 weights), from exponentials and 1/Σ of both.
void subtract(const SignedCall& call, const Panel& panel, const Unit& unit, const Matrix& scores,
              const float* inverse_sums, const Matrix& weights) {
  const auto width = static_cast<size_t>(panel.width());
  for (int64_t a = 0; a < unit.count * panel.rows; ++a) {
    const int64_t i = a / panel.rows, r = a % panel.rows;
    const int64_t b = unit.noise[static_cast<size_t>(i)] * panel.rows + r;
    const float minus = -lambda_of(call, panel, r, unit.first + static_cast<int>(i)) * inverse_sums[b];
    weights.type == DType::bf16
        ? simd::combination(inverse_sums[a], scores.f32(a), minus, scores.f32(b), weights.bf16s(a), width)
        : simd::combination(inverse_sums[a], scores.f32(a), minus, scores.f32(b), weights.f32(a), width);
  }
}

// Pass 4: out = weights · v for the stacked rows of a unit, one product for all that share values; rows scaled by
// `factors` (nullptr: as they are).
void combine(const SignedCall& call, const HeadRows& out, const Panel& panel, const Unit& unit, const Matrix& weights,
             const float* factors) {
  const int64_t width = call.in.v.width, rows = panel.rows;
  const Matrix product(call.workspace.output.data() + thread_index() * call.most_outputs * kPanelRows * width,
                       unit.count * rows, width);
  for_value_runs(call, unit, rows, [&](int64_t first, int64_t count, int head) {
    ops::gemm(product.row_range(first, count), weights.row_range(first, count), seen_rows(call, call.in.v, head, panel),
              ops::Transpose::no);
  });
  for (int64_t i = 0; i < product.rows; ++i) {
    const Matrix to = out.rows(unit.first + i / rows, panel.sequence * call.in.rows + panel.first + i % rows, 1);
    const float factor = factors ? factors[i] : 1.0f;
    to.type == DType::bf16 ? simd::scaled(product.f32(i), factor, to.bf16s(), static_cast<size_t>(width))
                           : simd::scaled(product.f32(i), factor, to.f32(), static_cast<size_t>(width));
  }
}

void reserve(const SignedCall& call) {
  SignedWorkspace& w = call.workspace;
  const int64_t rows = threads() * kPanelRows, keys = call.in.keys();
  w.scores.reserve(static_cast<size_t>(rows * call.most_maps * keys));
  w.inverse_sums.reserve(static_cast<size_t>(rows * call.most_maps));
  w.output.reserve(static_cast<size_t>(rows * call.most_outputs * call.in.v.width));
  if (call.narrow()) {
    w.weights.reserve(static_cast<size_t>(rows * call.most_outputs * keys));
    w.query_bf16.reserve(static_cast<size_t>(rows * call.most_maps * call.in.q.width));
  } else {
    w.query_f32.reserve(static_cast<size_t>(rows * call.most_maps * call.in.q.width));
  }
}

void one_panel(const SignedCall& call, const HeadRows& out, const SignedSaved& saved, const Panel& panel,
               const Unit& unit) {
  const int64_t lane = thread_index() * kPanelRows, keys = call.in.keys(), outputs = unit.count * panel.rows;
  const int64_t stacked = static_cast<int64_t>(unit.maps.size()) * panel.rows;
  const Matrix scores(call.workspace.scores.data() + lane * call.most_maps * keys, stacked, panel.width());
  const Matrix weights =
      call.narrow() ? Matrix(call.workspace.weights.data() + lane * call.most_outputs * keys, outputs, panel.width())
                    : scores.row_range(0, outputs);
  float* inverse_sums = call.workspace.inverse_sums.data() + lane * call.most_maps;
  score(call, panel, unit.maps, scores);
  for (int64_t i = 0; i < stacked; ++i) {
    const Map& map = unit.maps[static_cast<size_t>(i / panel.rows)];
    const int64_t r = i % panel.rows;
    float* log_sum = log_sum_of(call, saved, panel, map, r);
    float* row = scores.f32(i);
    if (!call.narrow()) {
      inverse_sums[i] = exponentiate(call, panel, map, r, row, row, log_sum);
    } else if (call.second()) {
      inverse_sums[i] = exponentiate<Exponentials::for_bf16>(call, panel, map, r, row, row, log_sum);
    } else {
      inverse_sums[i] = exponentiate(call, panel, map, r, row, weights.bf16s(i), log_sum);
    }
  }
  if (call.second()) subtract(call, panel, unit, scores, inverse_sums, weights);
  combine(call, out, panel, unit, weights, call.second() ? nullptr : inverse_sums);
}

// Panels of all texts and units in parallel, the longest first so that the threads end together.
void forward_panels(SignedCall& call, const HeadRows& out, const SignedSaved& saved) {
  const auto units = make_units(call.config.layout, stackable(call.in, call.config.layout));
  call.measure(units);
  reserve(call);
  const auto count = static_cast<int64_t>(units.size());
  const int64_t panels = (call.in.rows + kPanelRows - 1) / kPanelRows, each = call.in.sequences * count;
  parallel_for(panels * each, [&](int64_t task) {
    const Panel panel = make_panel(call, task % each / count, (panels - 1 - task / each) * kPanelRows, kPanelRows);
    one_panel(call, out, saved, panel, units[static_cast<size_t>(task % count)]);
  });
}

// Decoding: for a few rows, products are bound by reading keys and values, so all maps over a key head read it
// together.
void one_unit_of_few(const SignedCall& call, const HeadRows& out, const Unit& unit) {
  const Panel panel = make_panel(call, 0, 0, call.in.rows);
  const int64_t rows = panel.rows, width = call.in.q.width, stacked = static_cast<int64_t>(unit.maps.size()) * rows;
  const auto span = static_cast<size_t>(panel.width());
  const int64_t slot = unit.first * 2 * rows;  // an output has two maps at most
  float* query = call.workspace.query_f32.data() + slot * width;
  float* inverse_sums = call.workspace.inverse_sums.data() + slot;
  const Matrix scores(call.workspace.scores.data() + slot * call.in.keys(), stacked, panel.width());
  for (int64_t i = 0; i < stacked; ++i) {
    simd::scaled(call.in.q.rows(unit.maps[static_cast<size_t>(i / rows)].q, i % rows, 1).f32(), call.config.scale,
                 query + i * width, static_cast<size_t>(width));
  }
  for_key_runs(unit.maps, rows, [&](int64_t first, int64_t run, int head) {
    const Matrix k = seen_rows(call, call.in.k, head, panel);
    const auto stride = static_cast<size_t>(k.stride), e = static_cast<size_t>(width);
    for (int64_t i = first; i < first + run; i += simd::kMaxVectors) {
      const auto count = static_cast<size_t>(std::min<int64_t>(simd::kMaxVectors, first + run - i));
      call.narrow() ? simd::matrix_vectors(k.bf16s(), stride, query + i * width, count, scores.f32(i), span, span, e)
                    : simd::matrix_vectors(k.f32(), stride, query + i * width, count, scores.f32(i), span, span, e);
    }
  });
  for (int64_t i = 0; i < stacked; ++i) {
    inverse_sums[i] = exponentiate(call, panel, unit.maps[static_cast<size_t>(i / rows)], i % rows, scores.f32(i),
                                   scores.f32(i), nullptr);
  }
  if (call.second()) subtract(call, panel, unit, scores, inverse_sums, scores);
  for_value_runs(call, unit, rows, [&](int64_t first, int64_t run, int head) {
    const Matrix v = seen_rows(call, call.in.v, head, panel);
    const auto stride = static_cast<size_t>(v.stride), w = static_cast<size_t>(v.cols);
    for (int64_t i = first; i < first + run; ++i) {
      float* to = out.rows(unit.first + i / rows, i % rows, 1).f32();
      call.narrow() ? simd::weighted_rows(scores.f32(i), v.bf16s(), stride, to, span, w)
                    : simd::weighted_rows(scores.f32(i), v.f32(), stride, to, span, w);
      if (!call.second()) simd::scale(to, inverse_sums[i], w);
    }
  });
}

void forward_few(const SignedCall& call, const HeadRows& out) {
  const auto units = make_units(call.config.layout, call.config.layout.output_heads());
  const int64_t slots = call.config.layout.output_heads() * 2 * call.in.rows;
  call.workspace.scores.reserve(static_cast<size_t>(slots * call.in.keys()));
  call.workspace.inverse_sums.reserve(static_cast<size_t>(slots));
  call.workspace.query_f32.reserve(static_cast<size_t>(slots * call.in.q.width));
  const auto one = [&](int64_t u) { one_unit_of_few(call, out, units[static_cast<size_t>(u)]); };
  const auto count = static_cast<int64_t>(units.size());
  // Below about 32 k multiply-adds a head a second thread costs more than it brings.
  if (call.in.keys() * call.in.q.width * call.in.rows < 32768) {
    for (int64_t u = 0; u < count; ++u) one(u);
  } else {
    parallel_for(count, one);
  }
}

}  // namespace

void signed_softmax_forward(const HeadRows& out, const SignedSaved& saved, const SignedInputs& in,
                            const SignedConfig& config, SignedWorkspace& workspace) {
  check(in, config, &out);
  if (in.rows == 0) return;
  if (in.sequences == 1 && in.rows <= static_cast<int64_t>(simd::kMaxVectors) && out.type == DType::f32 &&
      !saved.log_sums) {
    return forward_few({in, config, workspace}, out);
  }
  const SignedInputs inputs = with_heads_apart(in, workspace);
  SignedCall call(inputs, config, workspace);
  forward_panels(call, out, saved);
}

void signed_softmax_maps(const MapPanel& shown, int64_t first, const SignedInputs& in, const SignedConfig& config,
                         SignedWorkspace& workspace) {
  check(in, config, nullptr);
  const SignedCall call(in, config, workspace);
  const int64_t outputs = config.layout.output_heads();
  workspace.query_bf16.reserve(static_cast<size_t>(threads() * kPanelRows * in.q.width));
  workspace.query_f32.reserve(static_cast<size_t>(threads() * kPanelRows * in.q.width));
  const Panel panel = make_panel(call, 0, first, shown.rows);
  parallel_for(outputs * (call.second() ? 2 : 1), [&](int64_t task) {
    const auto o = static_cast<int>(task % outputs);
    const HeadPair& pair = config.layout.outputs[static_cast<size_t>(o)];
    const Map map = task < outputs ? Map{pair.q1, pair.k1, o, false} : Map{pair.q2, pair.k2, o, true};
    float* begin = map.second ? shown.noise_row(o, 0) : shown.positive_row(o, 0);
    const Matrix scores(begin + panel.key0, panel.rows, panel.width(), shown.row_stride);
    score(call, panel, {map}, scores);
    for (int64_t r = 0; r < panel.rows; ++r) {
      const float inverse = exponentiate(call, panel, map, r, scores.f32(r), scores.f32(r), nullptr);
      simd::scale(scores.f32(r), inverse, static_cast<size_t>(panel.width()));
      std::memset(begin + r * shown.row_stride, 0, static_cast<size_t>(panel.key0) * sizeof(float));
    }
  });
}

void signed_softmax_apply(const HeadRows& out, const MapPanel& shown, int64_t first, const SignedInputs& in,
                          const SignedConfig& config, SignedWorkspace& workspace) {
  const SignedCall call(in, config, workspace);
  const int64_t outputs = config.layout.output_heads(), lanes = threads() * kPanelRows;
  workspace.output.reserve(static_cast<size_t>(lanes * in.v.width));
  if (call.narrow()) workspace.weights.reserve(static_cast<size_t>(lanes * shown.keys));
  Panel panel = make_panel(call, 0, first, shown.rows);
  panel.key0 = 0;  // an editor may have put weight anywhere
  const auto width = static_cast<size_t>(panel.width());
  parallel_for(outputs, [&](int64_t o) {
    const Unit unit{static_cast<int>(o), 1, {}, {}};
    const Matrix map(shown.positive_row(unit.first, 0), panel.rows, panel.width(), shown.row_stride);
    for (int64_t r = 0; r < panel.rows && shown.noise; ++r) {
      simd::axpy(map.f32(r), -shown.lambda[o * shown.rows + r], shown.noise_row(unit.first, r), width);
    }
    if (!call.narrow()) return combine(call, out, panel, unit, map, nullptr);
    const Matrix weights(workspace.weights.data() + thread_index() * kPanelRows * shown.keys, panel.rows,
                         panel.width());
    for (int64_t r = 0; r < panel.rows; ++r) simd::convert(map.f32(r), weights.bf16s(r), width);
    combine(call, out, panel, unit, weights, nullptr);
  });
}

}  // namespace unchain::attention
