#include "attention/signed_softmax.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/thread.h"
#include "ops/cross_entropy.h"
#include "ops/gemm.h"
#include "simd/kernels.h"

namespace unchain::attention {
namespace {

// One softmax map: a query head over a key head.
struct Map {
  int q = 0, k = 0;
  int output = 0;       // one that uses it, for row statistics
  bool second = false;  // A2
};

// Neighbouring outputs computed together, because they share values or a noise map: their rows are stacked, so that
// products are larger and each map is computed once.
struct Unit {
  int first = 0, count = 0;  // outputs first … first + count − 1
  std::vector<Map> maps;     // the A1 of each output, then the distinct A2
  std::vector<int> noise;    // of each output, index into maps
};

// Consecutive equal keys of a list, [begin, end).
template <class KeyOf, class Body>
void for_runs(int count, const KeyOf& key, const Body& body) {
  for (int begin = 0; begin < count;) {
    int end = begin + 1;
    while (end < count && key(end) == key(begin)) ++end;
    body(begin, end);
    begin = end;
  }
}

// At most `most` outputs a unit.
std::vector<Unit> make_units(const Layout& layout, int64_t most) {
  std::vector<Unit> units;
  const auto& outputs = layout.outputs;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const bool joins = o > 0 && units.back().count < most &&
                       (outputs[o].v == outputs[o - 1].v || (outputs[o].q2 >= 0 && outputs[o].q2 == outputs[o - 1].q2));
    if (!joins) units.push_back({static_cast<int>(o), 0, {}, {}});
    ++units.back().count;
  }
  for (Unit& unit : units) {
    for (int i = 0; i < unit.count; ++i) {
      const HeadPair& pair = outputs[static_cast<size_t>(unit.first + i)];
      unit.maps.push_back({pair.q1, pair.k1, unit.first + i, false});
    }
    for (int i = 0; i < unit.count && layout.has_second_map(); ++i) {
      const HeadPair& pair = outputs[static_cast<size_t>(unit.first + i)];
      if (unit.maps.back().q != pair.q2 || !unit.maps.back().second)
        unit.maps.push_back({pair.q2, pair.k2, unit.first + i, true});
      unit.noise.push_back(static_cast<int>(unit.maps.size()) - 1);
    }
  }
  return units;
}

struct Call {
  const SignedInputs& in;
  const SignedConfig& config;
  SignedWorkspace& workspace;
  int64_t most_maps = 1, most_outputs = 1;  // of a unit

  bool narrow() const { return in.k.type == DType::bf16; }
};

// Rows first … first + rows − 1 of one text (counted from its first query row), which see positions key0 … keys − 1 at
// most.
struct Panel {
  int64_t sequence = 0, first = 0, rows = 0;
  int64_t key0 = 0, keys = 0;

  int64_t width() const { return keys - key0; }
};

int64_t first_visible(const Call& call, int64_t sequence, int64_t row) {
  const int64_t position = call.in.first_row + row, window = call.config.window;
  const int64_t begin = window > 0 && position >= window ? position - window + 1 : 0;
  return call.in.starts ? std::max<int64_t>(begin, call.in.starts[sequence * call.in.rows + row]) : begin;
}

Panel make_panel(const Call& call, int64_t sequence, int64_t first, int64_t rows) {
  Panel panel{sequence, first, std::min(rows, call.in.rows - first), 0, 0};
  panel.keys = call.in.first_row + panel.first + panel.rows;
  panel.key0 = first_visible(call, sequence, first);
  return panel;
}

Matrix key_rows(const Call& call, const HeadRows& heads, int head, const Panel& panel) {
  return heads.rows(head, panel.sequence * call.in.key_rows + panel.key0, panel.width());
}

// Pass 1: scores[maps·rows, width] = scale · q kᵀ of each map, stacked; maps over one key head in one product.
void score(const Call& call, const Panel& panel, const std::vector<Map>& maps, const Matrix& scores) {
  const int64_t width = call.in.q.width, rows = panel.rows, slot = thread_index() * call.most_maps * kPanelRows * width;
  const int64_t stacked = static_cast<int64_t>(maps.size()) * rows;
  const Matrix query = call.narrow() ? Matrix(call.workspace.query_bf16.data() + slot, stacked, width)
                                     : Matrix(call.workspace.query_f32.data() + slot, stacked, width);
  for (int64_t i = 0; i < stacked; ++i) {
    const Matrix from = call.in.q.rows(maps[static_cast<size_t>(i / rows)].q,
                                       panel.sequence * call.in.rows + panel.first + i % rows, 1);
    call.narrow() ? simd::scaled(from.f32(), call.config.scale, query.bf16s(i), static_cast<size_t>(width))
                  : simd::scaled(from.f32(), call.config.scale, query.f32(i), static_cast<size_t>(width));
  }
  for_runs(
      static_cast<int>(maps.size()), [&](int m) { return maps[static_cast<size_t>(m)].k; },
      [&](int begin, int end) {
        ops::gemm(scores.row_range(begin * rows, (end - begin) * rows),
                  query.row_range(begin * rows, (end - begin) * rows),
                  key_rows(call, call.in.k, maps[static_cast<size_t>(begin)].k, panel), ops::Transpose::yes);
      });
}

// Pass 2: each row of scores becomes e^(score − largest) over its visible keys and 0 elsewhere, written to `weights`
// (which may be `scores`). Returns 1/Σ, or 0 for a row that sees no key; a NaN goes on to the next layer's check.
template <class T>
float exponentiate(const Call& call, const Panel& panel, const Map& map, int64_t row, float* scores, T* weights,
                   float* log_sums) {
  const int64_t from = std::max(first_visible(call, panel.sequence, panel.first + row), panel.key0) - panel.key0;
  const int64_t to = call.in.first_row + panel.first + row + 1 - panel.key0, count = std::max<int64_t>(to - from, 0);
  const auto n = static_cast<size_t>(count);
  ops::soft_cap(scores + from, call.config.soft_cap, count);
  float largest = simd::max(scores + from, n), rest = 0;
  if (call.in.extra && !map.second) {
    const float extra = call.in.extra[map.output];
    largest = std::max(largest, extra);
    rest = std::exp(extra - largest);
  }
  const float sum = simd::exp_sum(scores + from, largest, weights + from, n) + rest;
  std::memset(static_cast<void*>(weights), 0, static_cast<size_t>(from) * sizeof(T));
  std::memset(static_cast<void*>(weights + from + count), 0,
              static_cast<size_t>(panel.width() - from - count) * sizeof(T));
  if (log_sums) *log_sums = count > 0 || rest > 0 ? largest + std::log(sum) : std::numeric_limits<float>::infinity();
  return sum > 0 ? 1.0f / sum : (sum == 0 ? 0.0f : sum);
}

float* log_sum_of(const Call& call, const SignedSaved& saved, const Panel& panel, const Map& map, int64_t row) {
  if (!saved.log_sums) return nullptr;
  const int64_t all = call.in.sequences * call.in.rows, outputs = call.config.layout.output_heads();
  const int64_t t = panel.sequence * call.in.rows + panel.first + row;
  return saved.log_sums + ((map.second ? all : 0) + t) * outputs + map.output;
}

float lambda_of(const Call& call, const Panel& panel, int64_t row, int output) {
  return call.in
      .lambda[(panel.sequence * call.in.rows + panel.first + row) * call.config.layout.output_heads() + output];
}

void write_row(const HeadRows& out, int output, int64_t row, const float* from, float factor) {
  const Matrix to = out.rows(output, row, 1);
  const auto width = static_cast<size_t>(out.width);
  to.type == DType::bf16 ? simd::scaled(from, factor, to.bf16s(), width) : simd::scaled(from, factor, to.f32(), width);
}

// Pass 3: out = weights · v for the stacked rows of outputs first … first + count − 1, one product for all that share
// values; rows scaled by `factors` (nullptr: as they are).
void combine(const Call& call, const HeadRows& out, const Panel& panel, int first, int count, const Matrix& weights,
             const float* factors) {
  const int64_t width = call.in.v.width, rows = panel.rows;
  const auto& outputs = call.config.layout.outputs;
  const Matrix product(call.workspace.output.data() + thread_index() * call.most_outputs * kPanelRows * width,
                       count * rows, width);
  for_runs(
      count, [&](int i) { return outputs[static_cast<size_t>(first + i)].v; },
      [&](int begin, int end) {
        ops::gemm(product.row_range(begin * rows, (end - begin) * rows),
                  weights.row_range(begin * rows, (end - begin) * rows),
                  key_rows(call, call.in.v, outputs[static_cast<size_t>(first + begin)].v, panel), ops::Transpose::no);
      });
  for (int64_t i = 0; i < count * rows; ++i) {
    write_row(out, first + static_cast<int>(i / rows), panel.sequence * call.in.rows + panel.first + i % rows,
              product.f32(i), factors ? factors[i] : 1.0f);
  }
}

// P = A1 − λ A2 in place of A1 (or into bf16 weights), from exponentials and 1/Σ of both.
void subtract(const Call& call, const Panel& panel, const Unit& unit, const Matrix& scores, const float* inverse_sums,
              const Matrix& weights) {
  const auto width = static_cast<size_t>(panel.width());
  for (int i = 0; i < unit.count; ++i) {
    for (int64_t r = 0; r < panel.rows; ++r) {
      const int64_t a = i * panel.rows + r, b = unit.noise[static_cast<size_t>(i)] * panel.rows + r;
      const float minus = -lambda_of(call, panel, r, unit.first + i) * inverse_sums[b];
      weights.type == DType::bf16
          ? simd::combination(inverse_sums[a], scores.f32(a), minus, scores.f32(b), weights.bf16s(a), width)
          : simd::combination(inverse_sums[a], scores.f32(a), minus, scores.f32(b), weights.f32(a), width);
    }
  }
}

void reserve(Call& call, const std::vector<Unit>& units, int64_t lanes) {
  for (const Unit& unit : units) {
    call.most_maps = std::max(call.most_maps, static_cast<int64_t>(unit.maps.size()));
    call.most_outputs = std::max<int64_t>(call.most_outputs, unit.count);
  }
  SignedWorkspace& w = call.workspace;
  const int64_t rows = lanes * kPanelRows, keys = call.in.keys();
  w.scores.reserve(static_cast<size_t>(rows * call.most_maps * keys));
  w.inverse_sums.reserve(static_cast<size_t>(rows * call.most_maps));
  w.output.reserve(static_cast<size_t>(rows * call.most_outputs * call.in.v.width));
  if (call.narrow()) w.weights.reserve(static_cast<size_t>(rows * call.most_outputs * keys));
  if (call.narrow()) w.query_bf16.reserve(static_cast<size_t>(rows * call.most_maps * call.in.q.width));
  w.query_f32.reserve(static_cast<size_t>(rows * call.most_maps * call.in.q.width));
}

void one_panel(const Call& call, const HeadRows& out, const SignedSaved& saved, const Panel& panel, const Unit& unit) {
  const int64_t lane = thread_index() * kPanelRows, keys = call.in.keys();
  const auto maps = static_cast<int64_t>(unit.maps.size());
  const Matrix scores(call.workspace.scores.data() + lane * call.most_maps * keys, maps * panel.rows, panel.width());
  float* inverse_sums = call.workspace.inverse_sums.data() + lane * call.most_maps;
  const bool narrow = call.narrow(), second = call.config.layout.has_second_map();
  const int64_t outputs = unit.count * panel.rows;
  const Matrix weights =
      narrow ? Matrix(call.workspace.weights.data() + lane * call.most_outputs * keys, outputs, panel.width())
             : scores.row_range(0, outputs);
  score(call, panel, unit.maps, scores);
  for (int64_t i = 0; i < maps * panel.rows; ++i) {
    const Map& map = unit.maps[static_cast<size_t>(i / panel.rows)];
    const int64_t r = i % panel.rows;
    float* log_sum = log_sum_of(call, saved, panel, map, r);
    inverse_sums[i] = narrow && !second ? exponentiate(call, panel, map, r, scores.f32(i), weights.bf16s(i), log_sum)
                                        : exponentiate(call, panel, map, r, scores.f32(i), scores.f32(i), log_sum);
  }
  if (second) subtract(call, panel, unit, scores, inverse_sums, weights);
  combine(call, out, panel, unit.first, unit.count, weights, second ? nullptr : inverse_sums);
}

// How many outputs may be stacked so that the scores of their maps keep to a level-2 cache of 1 MB.
int64_t stackable(const SignedInputs& in, const Layout& layout) {
  const int64_t bytes = kPanelRows * in.keys() * 4 * (layout.has_second_map() ? 2 : 1);
  return std::clamp<int64_t>((int64_t{1} << 20) / bytes, 1, 4);
}

// Panels of all texts and units in parallel, the longest first so that the threads end together.
void forward_panels(Call& call, const HeadRows& out, const SignedSaved& saved) {
  const auto units = make_units(call.config.layout, stackable(call.in, call.config.layout));
  reserve(call, units, threads());
  const auto count = static_cast<int64_t>(units.size());
  const int64_t panels = (call.in.rows + kPanelRows - 1) / kPanelRows, each = call.in.sequences * count;
  parallel_for(panels * each, [&](int64_t task) {
    const Panel panel = make_panel(call, task % each / count, (panels - 1 - task / each) * kPanelRows, kPanelRows);
    one_panel(call, out, saved, panel, units[static_cast<size_t>(task % count)]);
  });
}

// Decoding: for a few rows, products are bound by reading keys and values, so all maps over a key head read it
// together.
void one_unit_of_few(const Call& call, const HeadRows& out, const Unit& unit) {
  const Panel panel = make_panel(call, 0, 0, call.in.rows);
  const auto maps = static_cast<int64_t>(unit.maps.size());
  const int64_t rows = panel.rows, width = call.in.q.width;
  const auto span = static_cast<size_t>(panel.width());
  const int64_t base = unit.first * 2 * rows;  // an output has two maps at most
  float* query = call.workspace.query_f32.data() + base * width;
  const Matrix scores(call.workspace.scores.data() + base * call.in.keys(), maps * rows, panel.width());
  float* inverse_sums = call.workspace.inverse_sums.data() + base;
  for (int64_t i = 0; i < maps * rows; ++i) {
    simd::scaled(call.in.q.rows(unit.maps[static_cast<size_t>(i / rows)].q, i % rows, 1).f32(), call.config.scale,
                 query + i * width, static_cast<size_t>(width));
  }
  for_runs(
      static_cast<int>(maps), [&](int m) { return unit.maps[static_cast<size_t>(m)].k; },
      [&](int begin, int end) {
        const Matrix k = key_rows(call, call.in.k, unit.maps[static_cast<size_t>(begin)].k, panel);
        for (int64_t i = begin * rows; i < end * rows; i += simd::kMaxVectors) {
          const auto count = static_cast<size_t>(std::min<int64_t>(simd::kMaxVectors, end * rows - i));
          const auto stride = static_cast<size_t>(k.stride), e = static_cast<size_t>(width);
          call.narrow()
              ? simd::matrix_vectors(k.bf16s(), stride, query + i * width, count, scores.f32(i), span, span, e)
              : simd::matrix_vectors(k.f32(), stride, query + i * width, count, scores.f32(i), span, span, e);
        }
      });
  for (int64_t i = 0; i < maps * rows; ++i) {
    inverse_sums[i] = exponentiate(call, panel, unit.maps[static_cast<size_t>(i / rows)], i % rows, scores.f32(i),
                                   scores.f32(i), nullptr);
  }
  const bool second = call.config.layout.has_second_map();
  if (second) subtract(call, panel, unit, scores, inverse_sums, scores);
  for (int64_t i = 0; i < unit.count * rows; ++i) {
    const int output = unit.first + static_cast<int>(i / rows);
    const Matrix v = key_rows(call, call.in.v, call.config.layout.outputs[static_cast<size_t>(output)].v, panel);
    const auto stride = static_cast<size_t>(v.stride), w = static_cast<size_t>(v.cols);
    float* to = out.rows(output, i % rows, 1).f32();
    call.narrow() ? simd::weighted_rows(scores.f32(i), v.bf16s(), stride, to, span, w)
                  : simd::weighted_rows(scores.f32(i), v.f32(), stride, to, span, w);
    if (!second) simd::scale(to, inverse_sums[i], w);
  }
}

void forward_few(Call& call, const HeadRows& out) {
  const auto units = make_units(call.config.layout, call.config.layout.output_heads());
  const int64_t slots = call.config.layout.output_heads() * 2 * call.in.rows;
  call.workspace.scores.reserve(static_cast<size_t>(slots * call.in.keys()));
  call.workspace.inverse_sums.reserve(static_cast<size_t>(slots));
  call.workspace.query_f32.reserve(static_cast<size_t>(slots * call.in.q.width));
  const auto one = [&](int64_t u) { one_unit_of_few(call, out, units[static_cast<size_t>(u)]); };
  // Below about 32 k multiply-adds a head a second thread costs more than it brings.
  const auto count = static_cast<int64_t>(units.size());
  if (call.in.keys() * call.in.q.width * call.in.rows < 32768) {
    for (int64_t u = 0; u < count; ++u) one(u);
  } else {
    parallel_for(count, one);
  }
}

void check(const SignedInputs& in, const SignedConfig& config, const HeadRows* out) {
  const Layout& l = config.layout;
  const auto fits = [](const HeadRows& heads, int count) { return heads.heads == count && heads.width > 0; };
  if (!fits(in.q, l.query_heads) || !fits(in.k, l.key_heads) || !fits(in.v, l.value_heads) ||
      in.q.width != in.k.width || in.k.type != in.v.type || in.q.type != DType::f32 || in.first_row < 0 ||
      in.rows < 0 || in.sequences < 1 || in.key_rows < in.keys() || (l.has_second_map() && !in.lambda) ||
      (out && (out->heads != l.output_heads() || out->width != in.v.width))) {
    fail(ErrorCode::shape,
         "attention: queries {}x{}, keys {}x{}, values {}x{}, outputs {}x{}, {} rows at row {} of {} do not fit a "
         "layout "
         "of {} query, {} key, {} value heads and {} outputs",
         in.q.heads, in.q.width, in.k.heads, in.k.width, in.v.heads, in.v.width, out ? out->heads : l.output_heads(),
         out ? out->width : in.v.width, in.rows, in.first_row, in.key_rows, l.query_heads, l.key_heads, l.value_heads,
         l.output_heads());
  }
}

}  // namespace

Matrix HeadRows::rows(int64_t head, int64_t first, int64_t count) const {
  Matrix m;
  m.data = static_cast<char*>(data) + (head * head_stride + first * row_stride) * info(type).bytes;
  m.type = type;
  m.rows = count;
  m.cols = width;
  m.stride = row_stride;
  return m;
}

void signed_softmax_forward(const HeadRows& out, const SignedSaved& saved, const SignedInputs& in,
                            const SignedConfig& config, SignedWorkspace& workspace) {
  check(in, config, &out);
  if (in.rows == 0) return;
  Call call{in, config, workspace};
  if (in.sequences == 1 && in.rows <= static_cast<int64_t>(simd::kMaxVectors) && out.type == DType::f32 &&
      !saved.log_sums) {
    forward_few(call, out);
  } else {
    forward_panels(call, out, saved);
  }
}

void signed_softmax_maps(const MapPanel& shown, int64_t first, const SignedInputs& in, const SignedConfig& config,
                         SignedWorkspace& workspace) {
  check(in, config, nullptr);
  Call call{in, config, workspace};
  const int64_t outputs = config.layout.output_heads();
  workspace.query_bf16.reserve(static_cast<size_t>(threads() * kPanelRows * in.q.width));
  workspace.query_f32.reserve(static_cast<size_t>(threads() * kPanelRows * in.q.width));
  const Panel panel = make_panel(call, 0, first, shown.rows);
  parallel_for(outputs * (shown.noise && config.layout.has_second_map() ? 2 : 1), [&](int64_t task) {
    const auto o = static_cast<int>(task % outputs);
    const bool second = task >= outputs;
    const HeadPair& pair = config.layout.outputs[static_cast<size_t>(o)];
    const Map map{second ? pair.q2 : pair.q1, second ? pair.k2 : pair.k1, o, second};
    float* begin = second ? shown.noise_row(o, 0) : shown.positive_row(o, 0);
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
  Call call{in, config, workspace};
  const int64_t outputs = config.layout.output_heads(), lanes = threads() * kPanelRows;
  workspace.output.reserve(static_cast<size_t>(lanes * in.v.width));
  if (call.narrow()) workspace.weights.reserve(static_cast<size_t>(lanes * shown.keys));
  Panel panel = make_panel(call, 0, first, shown.rows);
  panel.key0 = 0;  // an editor may have put weight anywhere
  const auto width = static_cast<size_t>(panel.width());
  parallel_for(outputs, [&](int64_t o) {
    const Matrix map(shown.positive_row(static_cast<int>(o), 0), panel.rows, panel.width(), shown.row_stride);
    for (int64_t r = 0; r < panel.rows && shown.noise; ++r) {
      simd::axpy(map.f32(r), -shown.lambda[o * shown.rows + r], shown.noise_row(static_cast<int>(o), r), width);
    }
    if (!call.narrow()) return combine(call, out, panel, static_cast<int>(o), 1, map, nullptr);
    const Matrix weights(workspace.weights.data() + thread_index() * kPanelRows * shown.keys, panel.rows,
                         panel.width());
    for (int64_t r = 0; r < panel.rows; ++r) simd::convert(map.f32(r), weights.bf16s(r), width);
    combine(call, out, panel, static_cast<int>(o), 1, weights, nullptr);
  });
}

}  // namespace unchain::attention
