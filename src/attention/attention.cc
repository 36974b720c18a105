#include "attention/attention.h"

#include <algorithm>

#include "base/check.h"
#include "base/thread.h"
#include "ops/gemm.h"
#include "ops/rows.h"
#include "simd/kernels.h"

namespace unchain::attention {
namespace {

struct Call {
  const SignedInputs& in;
  const SignedConfig& config;
  AttentionWorkspace& workspace;
  const TapContext& tap;
  const StateCall* state;

  bool has_noise() const { return state || config.layout.has_second_map(); }
};

template <class Tap, class Body>
void each_that_wants(const std::vector<Tap*>& taps, int layer, const Body& body) {
  for (Tap* tap : taps) {
    if (tap->wants(layer)) body(*tap);
  }
}

// A panel of all heads' rows first … first + rows − 1, whose maps are still to be formed.
MapPanel shape_panel(const Call& call, int64_t first, int64_t rows) {
  const auto outputs = call.config.layout.output_heads();
  MapPanel shown;
  shown.layer = call.tap.layer;
  shown.heads = static_cast<int>(outputs);
  shown.kv_heads = call.config.layout.value_heads;
  shown.first_row = call.in.first_row + first;
  shown.rows = rows;
  shown.keys = shown.first_row + rows;
  shown.window = call.config.window;
  shown.noise_is_state = call.state != nullptr;
  shown.row_stride = call.in.keys();
  shown.head_stride = rows * shown.row_stride;
  const auto size = static_cast<size_t>(outputs * shown.head_stride);
  call.workspace.positive.reserve(size);
  shown.positive = call.workspace.positive.data();
  if (call.has_noise()) {
    call.workspace.noise.reserve(size);
    call.workspace.lambda.reserve(static_cast<size_t>(outputs * rows));
    shown.noise = call.workspace.noise.data();
    shown.lambda = call.workspace.lambda.data();
    for (int64_t o = 0; o < outputs; ++o) {
      for (int64_t r = 0; r < rows; ++r) shown.lambda[o * rows + r] = call.in.lambda[(first + r) * outputs + o];
    }
  }
  shown.value_norm = call.tap.value_norm;
  shown.value_norm_stride = call.tap.value_norm_stride;
  return shown;
}

// body(part, row) for the rows of a panel, kPanelRows at a time from its row `row` on: panels that share its maps, with
// a copy of its λ.
template <class Body>
void each_part(const Call& call, const MapPanel& whole, const Body& body) {
  Buffer<float>& lambda = call.workspace.part_lambda;
  for (int64_t row = 0; row < whole.rows; row += kPanelRows) {
    MapPanel part = whole;
    part.first_row += row;
    part.rows = std::min(kPanelRows, whole.rows - row);
    part.keys = part.first_row + part.rows;
    part.positive = whole.positive_row(0, row);
    if (whole.noise) {
      part.noise = whole.noise_row(0, row);
      lambda.reserve(static_cast<size_t>(part.heads * part.rows));
      part.lambda = lambda.data();
      for (int64_t o = 0; o < part.heads; ++o)
        std::copy_n(whole.lambda + o * whole.rows + row, part.rows, part.lambda + o * part.rows);
    }
    body(part, row);
  }
}

// Keys of the whole panel that no row of this part sees.
void clear_unseen(const MapPanel& part, int64_t keys) {
  for (int head = 0; head < part.heads; ++head) {
    for (int64_t r = 0; r < part.rows; ++r) {
      std::fill(part.positive_row(head, r) + part.keys, part.positive_row(head, r) + keys, 0.0f);
      if (part.noise) std::fill(part.noise_row(head, r) + part.keys, part.noise_row(head, r) + keys, 0.0f);
    }
  }
}

// The normalised maps of all heads for a panel that begins at row `first`.
MapPanel form_maps(const Call& call, int64_t first, int64_t rows) {
  const MapPanel shown = shape_panel(call, first, rows);
  each_part(call, shown, [&](const MapPanel& part, int64_t row) {
    signed_softmax_maps(part, first + row, call.in, call.config, call.workspace.kernel);
    if (call.state) state_noise_maps(part, call.state->noise, call.in.first_row);
    clear_unseen(part, shown.keys);
  });
  return shown;
}

// A1 V and −λ A2 V by themselves, of the maps that editors left.
void split(const Call& call, const MapPanel& shown, int64_t first) {
  const int64_t outputs = shown.heads;
  const auto part = [&](const Matrix& out, float* map) {
    MapPanel alone = shown;
    alone.positive = map;
    alone.noise = nullptr;
    signed_softmax_apply(HeadRows::side_by_side(out, outputs), alone, first, call.in, call.config,
                         call.workspace.kernel);
  };
  part(call.tap.positive, shown.positive);
  if (shown.noise == nullptr) return;
  part(call.tap.noise, shown.noise);
  const int64_t width = call.tap.noise.cols / outputs;
  for (int64_t r = 0; r < shown.rows; ++r) {
    for (int64_t o = 0; o < outputs; ++o) {
      simd::scale(call.tap.noise.f32(first + r) + o * width, -shown.lambda[o * shown.rows + r],
                  static_cast<size_t>(width));
    }
  }
}

// One panel of all heads after the other; editors change the normalised maps, observers see what remains.
void forward_tapped(const Call& call, const HeadRows& out) {
  bool whole = false;
  each_that_wants(call.tap.taps->editors, call.tap.layer, [&](Editor& editor) { whole |= editor.wants_whole_maps(); });
  const int64_t panel_rows = whole ? call.in.rows : kPanelRows;
  for (int64_t first = 0; first < call.in.rows; first += panel_rows) {
    MapPanel shown = form_maps(call, first, std::min(panel_rows, call.in.rows - first));
    each_that_wants(call.tap.taps->editors, call.tap.layer, [&](Editor& editor) { editor.edit_maps(shown); });
    each_that_wants(call.tap.taps->observers, call.tap.layer, [&](Observer& observer) { observer.on_maps(shown); });
    each_part(call, shown, [&](const MapPanel& part, int64_t row) {
      if (call.tap.positive.data) split(call, part, first + row);
      signed_softmax_apply(out, part, first + row, call.in, call.config, call.workspace.kernel);
    });
  }
}

// The state moves on over the rows of this call, its output goes to `out`.
void take_state_off(const Call& call, const HeadRows& out) {
  const StateNoise noise = call.state->noise.gates_from(call.in.first_row - call.state->gates_first);
  state_noise_forward(out, call.state->states, nullptr, noise, call.in, call.config.layout, call.workspace.state);
}

}  // namespace

bool TapContext::active() const {
  if (taps == nullptr) return false;
  const auto wants = [this](const auto* tap) { return tap->wants(layer); };
  return std::any_of(taps->observers.begin(), taps->observers.end(), wants) ||
         std::any_of(taps->editors.begin(), taps->editors.end(), wants);
}

void attention_forward(const Matrix& out, const SignedInputs& in, const SignedConfig& config,
                       AttentionWorkspace& workspace, const TapContext& tap, const StateCall* state) {
  const int64_t outputs = config.layout.output_heads();
  if (out.rows != in.rows || outputs < 1 || out.cols != outputs * in.v.width || in.sequences != 1 ||
      (state && out.type != DType::f32)) {
    fail(ErrorCode::shape, "attention: out [{}, {}] does not fit {} rows of {} heads of {}", out.rows, out.cols,
         in.sequences * in.rows, outputs, in.v.width);
  }
  const HeadRows heads = HeadRows::side_by_side(out, outputs);
  const Call call{in, config, workspace, tap, state};
  if (in.rows == 0) return;
  if (!tap.active()) {
    signed_softmax_forward(heads, {}, in, config, workspace.kernel);
    if (state) take_state_off(call, heads);
    return;
  }
  forward_tapped(call, heads);
  if (!state) return;
  // The maps have done the work; the state must still move on.
  workspace.thrown_away.reserve(static_cast<size_t>(out.rows * out.cols));
  const Matrix nowhere(workspace.thrown_away.data(), out.rows, out.cols);
  ops::fill_zero(nowhere);
  take_state_off(call, HeadRows::side_by_side(nowhere, outputs));
}

void show_residual(const Matrix& x, const float* positive, const float* noise, int64_t first_row,
                   const TapContext& tap) {
  if (!tap.active()) return;
  const ResidualPanel panel{tap.layer, first_row, x.rows, x.cols, x.f32(), positive, noise};
  each_that_wants(tap.taps->observers, tap.layer, [&](Observer& observer) { observer.on_residual(panel); });
}

void show_outputs(const Matrix& out, int64_t outputs, int64_t first_row, const TapContext& tap) {
  if (!tap.active()) return;
  Buffer<float> panel(static_cast<size_t>(kPanelRows * out.cols));
  for (int64_t first = 0; first < out.rows; first += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, out.rows - first);
    OutputPanel shown{tap.layer, static_cast<int>(outputs), first_row + first, rows, out.cols / outputs, panel.data(),
                      out.cols};
    const Matrix copy(panel.data(), rows, out.cols), part = out.row_range(first, rows);
    ops::copy_rows(copy, part);
    each_that_wants(tap.taps->editors, tap.layer, [&](Editor& editor) { editor.edit_outputs(shown); });
    each_that_wants(tap.taps->observers, tap.layer, [&](Observer& observer) { observer.on_outputs(shown); });
    ops::copy_rows(part, copy);
  }
  each_that_wants(tap.taps->observers, tap.layer, [&](Observer& observer) { observer.end_layer(tap.layer); });
}

void show_gradients(GradientObserver& observer, const Matrix& d_out, int layer, const SignedInputs& in,
                    const SignedConfig& config, AttentionWorkspace& workspace, const StateCall* state) {
  const int64_t outputs = config.layout.output_heads();
  if (d_out.rows != in.rows || outputs < 1 || d_out.cols != outputs * in.v.width || in.sequences != 1) {
    fail(ErrorCode::shape, "attention: d_out [{}, {}] does not fit one text of {} rows of {} heads of {}", d_out.rows,
         d_out.cols, in.rows, outputs, in.v.width);
  }
  TapContext tap;
  tap.layer = layer;
  const Call call{in, config, workspace, tap, state};
  const HeadRows d_heads = HeadRows::side_by_side(d_out, outputs);
  workspace.d_map.reserve(static_cast<size_t>(outputs * kPanelRows * in.keys()));
  for (int64_t first = 0; first < in.rows; first += kPanelRows) {
    const MapPanel maps = form_maps(call, first, std::min(kPanelRows, in.rows - first));
    parallel_for(outputs, [&](int64_t o) {
      const Matrix d_map(workspace.d_map.data() + o * maps.head_stride, maps.rows, maps.keys, maps.row_stride);
      ops::gemm(d_map, d_heads.rows(o, first, maps.rows),
                in.v.rows(config.layout.outputs[static_cast<size_t>(o)].v, 0, maps.keys), ops::Transpose::yes);
      for (int64_t r = 0; r < maps.rows; ++r)
        std::fill(d_map.f32(r) + maps.first_row + r + 1, d_map.f32(r) + maps.keys, 0.0f);
    });
    observer.on_maps({maps, workspace.d_map.data()});
  }
}

}  // namespace unchain::attention
