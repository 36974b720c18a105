#include "attention/attention.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/thread.h"
#include "ops/cross_entropy.h"
#include "ops/gemm.h"
#include "simd/kernels.h"

namespace unchain::attention {
namespace {

// One panel of one head: rows first … first + rows − 1, which see keys key0 … keys − 1 at most.
struct Panel {
  int64_t head = 0, group = 0;
  int64_t first = 0, rows = 0;
  int64_t key0 = 0, keys = 0;

  int64_t width() const { return keys - key0; }
  int64_t visible_from(int64_t row, int64_t window) const {
    const int64_t position = first + row;
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  int64_t visible_to(int64_t row) const { return first + row + 1; }
};

Panel make_panel(const AttentionConfig& config, int64_t head, int64_t first_row, int64_t offset, int64_t total) {
  Panel panel;
  panel.head = head;
  panel.group = head * config.kv_heads / config.heads;
  panel.first = first_row + offset;
  panel.rows = std::min(kPanelRows, total - offset);
  panel.keys = panel.first + panel.rows;
  panel.key0 = panel.visible_from(0, config.window);
  return panel;
}

struct Call {
  const Matrix& out;
  const Matrix& q;
  const KvView& kv;
  int64_t first_row;
  const AttentionConfig& config;
  AttentionWorkspace& workspace;
};

// Pass 1: scores[rows, width] = scale · q kᵀ, for the keys key0 … keys − 1.
void score(const Call& call, const Panel& panel, const Matrix& scores) {
  const int64_t width = call.config.head_dim, offset = panel.first - call.first_row;
  const int64_t slot = thread_index() * kPanelRows * width;
  const bool narrow = call.kv.keys.type == DType::bf16;
  Matrix query = narrow ? Matrix(call.workspace.query_bf16.data() + slot, panel.rows, width)
                        : Matrix(call.workspace.query_f32.data() + slot, panel.rows, width);
  for (int64_t r = 0; r < panel.rows; ++r) {
    const float* from = call.q.f32(offset + r) + panel.head * width;
    narrow ? simd::scaled(from, call.config.scale, query.bf16s(r), static_cast<size_t>(width))
           : simd::scaled(from, call.config.scale, query.f32(r), static_cast<size_t>(width));
  }
  ops::gemm(scores, query, call.kv.key_rows(panel.group, panel.key0, panel.width()), ops::Transpose::yes);
}

// Pass 2: each row of scores becomes e^(score − max) over its visible keys and 0 elsewhere, written to `weights` (which
// may be `scores`); inverse_sums[r] = 1/Σ, or 0 for a row that sees no key.
template <class T>
void exponentiate(const Call& call, const Panel& panel, const Matrix& scores, T* weights, int64_t stride,
                  float* inverse_sums) {
  for (int64_t r = 0; r < panel.rows; ++r) {
    const int64_t from = std::max(panel.visible_from(r, call.config.window), panel.key0) - panel.key0;
    const int64_t to = panel.visible_to(r) - panel.key0, count = to - from;
    float* row = scores.f32(r) + from;
    T* out = weights + r * stride;
    ops::soft_cap(row, call.config.soft_cap, count);
    const float sum =
        simd::exp_sum(row, simd::max(row, static_cast<size_t>(count)), out + from, static_cast<size_t>(count));
    inverse_sums[r] = sum > 0 ? 1.0f / sum : (sum == 0 ? 0.0f : sum);  // a NaN goes on to the next layer's check
    std::memset(static_cast<void*>(out), 0, static_cast<size_t>(from) * sizeof(T));
    std::memset(static_cast<void*>(out + to), 0, static_cast<size_t>(panel.width() - to) * sizeof(T));
  }
}

// Pass 3: output[rows, W] = weights · v, rows scaled by inverse_sums (nullptr: as they are), into the head's columns of
// out.
void combine(const Call& call, const Panel& panel, const Matrix& weights, const float* inverse_sums) {
  const int64_t width = call.config.value_dim, offset = panel.first - call.first_row;
  const Matrix product(call.workspace.output.data() + thread_index() * kPanelRows * width, panel.rows, width);
  ops::gemm(product, weights, call.kv.value_rows(panel.group, panel.key0, panel.width()), ops::Transpose::no);
  for (int64_t r = 0; r < panel.rows; ++r) {
    const float factor = inverse_sums ? inverse_sums[r] : 1.0f;
    call.out.type == DType::bf16 ? simd::scaled(product.f32(r), factor, call.out.bf16s(offset + r) + panel.head * width,
                                                static_cast<size_t>(width))
                                 : simd::scaled(product.f32(r), factor, call.out.f32(offset + r) + panel.head * width,
                                                static_cast<size_t>(width));
  }
}

void reserve(const Call& call, int64_t score_rows) {
  const int64_t keys = call.first_row + call.q.rows, lanes = threads() * kPanelRows;
  const bool narrow = call.kv.keys.type == DType::bf16;
  AttentionWorkspace& w = call.workspace;
  w.scores.reserve(static_cast<size_t>(score_rows * keys));
  w.inverse_sums.reserve(static_cast<size_t>(score_rows));
  w.output.reserve(static_cast<size_t>(lanes * call.config.value_dim));
  if (narrow) {
    w.weights.reserve(static_cast<size_t>(lanes * keys));
    w.query_bf16.reserve(static_cast<size_t>(lanes * call.config.head_dim));
  } else {
    w.query_f32.reserve(static_cast<size_t>(lanes * call.config.head_dim));
  }
}

// The fast path: panels of all heads in parallel, the longest first so that the threads end together.
void forward_panels(const Call& call) {
  reserve(call, threads() * kPanelRows);
  const int64_t heads = call.config.heads, panels = (call.q.rows + kPanelRows - 1) / kPanelRows;
  const int64_t keys = call.first_row + call.q.rows;
  parallel_for(panels * heads, [&](int64_t task) {
    const Panel panel =
        make_panel(call.config, task % heads, call.first_row, (panels - 1 - task / heads) * kPanelRows, call.q.rows);
    const int64_t lane = thread_index() * kPanelRows;
    const Matrix scores(call.workspace.scores.data() + lane * keys, panel.rows, panel.width());
    float* inverse_sums = call.workspace.inverse_sums.data() + lane;
    score(call, panel, scores);
    if (call.kv.values.type == DType::bf16) {
      const Matrix weights(call.workspace.weights.data() + lane * keys, panel.rows, panel.width());
      exponentiate(call, panel, scores, weights.bf16s(), weights.stride, inverse_sums);
      combine(call, panel, weights, inverse_sums);
    } else {
      exponentiate(call, panel, scores, scores.f32(), scores.stride, inverse_sums);
      combine(call, panel, scores, inverse_sums);
    }
  });
}

// Decoding: for a few rows, matrix products are bound by reading keys and values, so each head reads them once.
void forward_few(const Call& call) {
  const auto rows = static_cast<size_t>(call.q.rows);
  const int64_t keys = call.first_row + call.q.rows;
  reserve(call, call.config.heads * call.q.rows);
  const auto width = static_cast<size_t>(call.config.head_dim),
             value_width = static_cast<size_t>(call.config.value_dim);
  const auto one_head = [&](int64_t head) {
    Panel panel = make_panel(call.config, head, call.first_row, 0, call.q.rows);
    const auto span = static_cast<size_t>(panel.width());
    float query[simd::kMaxVectors * 512];
    for (size_t r = 0; r < rows; ++r)
      simd::scaled(call.q.f32(static_cast<int64_t>(r)) + head * call.config.head_dim, call.config.scale,
                   query + r * width, width);
    const Matrix scores(call.workspace.scores.data() + head * call.q.rows * keys, call.q.rows, panel.width());
    const Matrix k = call.kv.key_rows(panel.group, panel.key0, panel.width());
    const Matrix v = call.kv.value_rows(panel.group, panel.key0, panel.width());
    const bool narrow = k.type == DType::bf16;
    const auto key_stride = static_cast<size_t>(k.stride), value_stride = static_cast<size_t>(v.stride);
    narrow ? simd::matrix_vectors(k.bf16s(), key_stride, query, rows, scores.f32(), span, span, width)
           : simd::matrix_vectors(k.f32(), key_stride, query, rows, scores.f32(), span, span, width);
    float* inverse_sums = call.workspace.inverse_sums.data() + head * call.q.rows;
    exponentiate(call, panel, scores, scores.f32(), scores.stride, inverse_sums);
    for (size_t r = 0; r < rows; ++r) {
      const auto row = static_cast<int64_t>(r);
      float* out = call.out.f32(row) + head * call.config.value_dim;
      narrow ? simd::weighted_rows(scores.f32(row), v.bf16s(), value_stride, out, span, value_width)
             : simd::weighted_rows(scores.f32(row), v.f32(), value_stride, out, span, value_width);
      simd::scale(out, inverse_sums[r], value_width);
    }
  };
  // Below about 32 k multiply-adds a head a second thread costs more than it brings.
  if (keys * call.config.head_dim * call.q.rows < 32768) {
    for (int64_t head = 0; head < call.config.heads; ++head) one_head(head);
  } else {
    parallel_for(call.config.heads, one_head);
  }
}

MapPanel show(const Call& call, const Panel& panel, const TapContext& tap, int64_t stride) {
  MapPanel shown;
  shown.layer = tap.layer;
  shown.heads = static_cast<int>(call.config.heads);
  shown.kv_heads = static_cast<int>(call.config.kv_heads);
  shown.first_row = panel.first;
  shown.rows = panel.rows;
  shown.keys = panel.keys;
  shown.window = call.config.window;
  shown.positive = call.workspace.scores.data();
  shown.row_stride = stride;
  shown.head_stride = kPanelRows * stride;
  shown.value_norm = tap.value_norm;
  shown.value_norm_stride = tap.value_norm_stride;
  return shown;
}

// With taps: one panel of all heads after the other; editors change the normalised maps, observers see what remains.
void forward_tapped(const Call& call, const TapContext& tap) {
  const int64_t heads = call.config.heads, stride = call.first_row + call.q.rows;
  reserve(call, heads * kPanelRows);
  for (int64_t offset = 0; offset < call.q.rows; offset += kPanelRows) {
    const auto rows_of = [&](int64_t head) { return call.workspace.scores.data() + head * kPanelRows * stride; };
    parallel_for(heads, [&](int64_t head) {
      const Panel panel = make_panel(call.config, head, call.first_row, offset, call.q.rows);
      const Matrix scores(rows_of(head) + panel.key0, panel.rows, panel.width(), stride);
      float* inverse_sums = call.workspace.inverse_sums.data() + head * kPanelRows;
      score(call, panel, scores);
      exponentiate(call, panel, scores, scores.f32(), stride, inverse_sums);
      for (int64_t r = 0; r < panel.rows; ++r) {
        simd::scale(scores.f32(r), inverse_sums[r], static_cast<size_t>(panel.width()));
        std::memset(rows_of(head) + r * stride, 0, static_cast<size_t>(panel.key0) * sizeof(float));
      }
    });
    const Panel any = make_panel(call.config, 0, call.first_row, offset, call.q.rows);
    MapPanel shown = show(call, any, tap, stride);
    for (Editor* editor : tap.taps->editors) {
      if (editor->wants(tap.layer)) editor->edit_maps(shown);
    }
    for (Observer* observer : tap.taps->observers) {
      if (observer->wants(tap.layer)) observer->on_maps(shown);
    }
    parallel_for(heads, [&](int64_t head) {
      Panel panel = make_panel(call.config, head, call.first_row, offset, call.q.rows);
      panel.key0 = 0;  // an editor may have put weight anywhere
      const Matrix map(rows_of(head), panel.rows, panel.width(), stride);
      if (call.kv.values.type != DType::bf16) return combine(call, panel, map, nullptr);
      const Matrix weights(call.workspace.weights.data() + thread_index() * kPanelRows * stride, panel.rows,
                           panel.width());
      for (int64_t r = 0; r < panel.rows; ++r)
        simd::convert(map.f32(r), weights.bf16s(r), static_cast<size_t>(panel.width()));
      combine(call, panel, weights, nullptr);
    });
  }
}

// Hands the outputs to the taps as f32, and takes back what editors made of them.
void show_outputs(const Call& call, const TapContext& tap) {
  const auto width = static_cast<size_t>(call.out.cols);
  Buffer<float> panel(static_cast<size_t>(kPanelRows) * width);
  for (int64_t offset = 0; offset < call.out.rows; offset += kPanelRows) {
    OutputPanel shown{tap.layer,
                      static_cast<int>(call.config.heads),
                      call.first_row + offset,
                      std::min(kPanelRows, call.out.rows - offset),
                      call.config.value_dim,
                      panel.data(),
                      call.out.cols};
    const bool narrow = call.out.type == DType::bf16;
    for (int64_t r = 0; r < shown.rows; ++r) {
      float* row = shown.output + r * shown.row_stride;
      narrow ? simd::convert(call.out.bf16s(offset + r), row, width)
             : simd::scaled(call.out.f32(offset + r), 1.0f, row, width);
    }
    for (Editor* editor : tap.taps->editors) {
      if (editor->wants(tap.layer)) editor->edit_outputs(shown);
    }
    for (Observer* observer : tap.taps->observers) {
      if (observer->wants(tap.layer)) observer->on_outputs(shown);
    }
    for (int64_t r = 0; r < shown.rows; ++r) {
      const float* row = shown.output + r * shown.row_stride;
      narrow ? simd::convert(row, call.out.bf16s(offset + r), width)
             : simd::scaled(row, 1.0f, call.out.f32(offset + r), width);
    }
  }
  for (Observer* observer : tap.taps->observers) {
    if (observer->wants(tap.layer)) observer->end_layer(tap.layer);
  }
}

}  // namespace

bool TapContext::active() const {
  if (taps == nullptr) return false;
  const auto wants = [this](const auto* tap) { return tap->wants(layer); };
  return std::any_of(taps->observers.begin(), taps->observers.end(), wants) ||
         std::any_of(taps->editors.begin(), taps->editors.end(), wants);
}

void attention_forward(const Matrix& out, const Matrix& q, const KvView& kv, int64_t first_row,
                       const AttentionConfig& config, AttentionWorkspace& workspace, const TapContext& tap) {
  if (config.kv_heads < 1 || config.heads % config.kv_heads != 0) {
    fail(ErrorCode::shape, "attention: {} query heads cannot share {} key/value heads evenly", config.heads,
         config.kv_heads);
  }
  if (q.cols != config.heads * config.head_dim || out.cols != config.heads * config.value_dim || out.rows != q.rows ||
      first_row < 0 || first_row + q.rows > kv.capacity || kv.keys.cols != config.head_dim ||
      kv.values.cols != config.value_dim || kv.keys.type != kv.values.type) {
    fail(ErrorCode::shape,
         "attention: q [{}, {}], out [{}, {}], keys [{}, {}] at row {} do not fit {} heads of {} and {}", q.rows,
         q.cols, out.rows, out.cols, kv.capacity, kv.keys.cols, first_row, config.heads, config.head_dim,
         config.value_dim);
  }
  if (q.rows == 0) return;
  const Call call{out, q, kv, first_row, config, workspace};
  if (tap.active()) {
    forward_tapped(call, tap);
    show_outputs(call, tap);
  } else if (q.rows <= static_cast<int64_t>(simd::kMaxVectors) && out.type == DType::f32 && config.head_dim <= 512) {
    forward_few(call);
  } else {
    forward_panels(call);
  }
}

}  // namespace unchain::attention
