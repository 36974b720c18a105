#include "attention/attention.h"

#include <algorithm>

#include "base/check.h"
#include "simd/kernels.h"

namespace unchain::attention {
namespace {

struct Call {
  const HeadRows& out;
  const SignedInputs& in;
  const SignedConfig& config;
  AttentionWorkspace& workspace;
  const TapContext& tap;
};

template <class Tap, class Body>
void each_that_wants(const std::vector<Tap*>& taps, int layer, const Body& body) {
  for (Tap* tap : taps) {
    if (tap->wants(layer)) body(*tap);
  }
}

MapPanel show(const Call& call, int64_t first, int64_t rows) {
  const auto outputs = call.config.layout.output_heads();
  MapPanel shown;
  shown.layer = call.tap.layer;
  shown.heads = static_cast<int>(outputs);
  shown.kv_heads = call.config.layout.value_heads;
  shown.first_row = call.in.first_row + first;
  shown.rows = rows;
  shown.keys = shown.first_row + rows;
  shown.window = call.config.window;
  shown.row_stride = call.in.keys();
  shown.head_stride = kPanelRows * shown.row_stride;
  shown.positive = call.workspace.positive.data();
  if (call.config.layout.has_second_map()) {
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

// One panel of all heads after the other; editors change the normalised maps, observers see what remains.
void forward_tapped(const Call& call) {
  const auto size = static_cast<size_t>(call.config.layout.output_heads() * kPanelRows * call.in.keys());
  call.workspace.positive.reserve(size);
  if (call.config.layout.has_second_map()) {
    call.workspace.noise.reserve(size);
    call.workspace.lambda.reserve(static_cast<size_t>(call.config.layout.output_heads() * kPanelRows));
  }
  for (int64_t first = 0; first < call.in.rows; first += kPanelRows) {
    MapPanel shown = show(call, first, std::min(kPanelRows, call.in.rows - first));
    signed_softmax_maps(shown, first, call.in, call.config, call.workspace.kernel);
    each_that_wants(call.tap.taps->editors, call.tap.layer, [&](Editor& editor) { editor.edit_maps(shown); });
    each_that_wants(call.tap.taps->observers, call.tap.layer, [&](Observer& observer) { observer.on_maps(shown); });
    signed_softmax_apply(call.out, shown, first, call.in, call.config, call.workspace.kernel);
  }
}

// Hands the outputs to the taps as f32, and takes back what editors made of them.
void show_outputs(const Matrix& out, const Call& call) {
  const auto width = static_cast<size_t>(out.cols);
  Buffer<float> panel(static_cast<size_t>(kPanelRows) * width);
  for (int64_t first = 0; first < out.rows; first += kPanelRows) {
    OutputPanel shown{call.tap.layer,
                      static_cast<int>(call.config.layout.output_heads()),
                      call.in.first_row + first,
                      std::min(kPanelRows, out.rows - first),
                      call.in.v.width,
                      panel.data(),
                      out.cols};
    const bool narrow = out.type == DType::bf16;
    for (int64_t r = 0; r < shown.rows; ++r) {
      float* row = shown.output + r * shown.row_stride;
      narrow ? simd::convert(out.bf16s(first + r), row, width) : simd::scaled(out.f32(first + r), 1.0f, row, width);
    }
    each_that_wants(call.tap.taps->editors, call.tap.layer, [&](Editor& editor) { editor.edit_outputs(shown); });
    each_that_wants(call.tap.taps->observers, call.tap.layer, [&](Observer& observer) { observer.on_outputs(shown); });
    for (int64_t r = 0; r < shown.rows; ++r) {
      const float* row = shown.output + r * shown.row_stride;
      narrow ? simd::convert(row, out.bf16s(first + r), width) : simd::scaled(row, 1.0f, out.f32(first + r), width);
    }
  }
  each_that_wants(call.tap.taps->observers, call.tap.layer,
                  [&](Observer& observer) { observer.end_layer(call.tap.layer); });
}

}  // namespace

bool TapContext::active() const {
  if (taps == nullptr) return false;
  const auto wants = [this](const auto* tap) { return tap->wants(layer); };
  return std::any_of(taps->observers.begin(), taps->observers.end(), wants) ||
         std::any_of(taps->editors.begin(), taps->editors.end(), wants);
}

void attention_forward(const Matrix& out, const SignedInputs& in, const SignedConfig& config,
                       AttentionWorkspace& workspace, const TapContext& tap) {
  const int64_t outputs = config.layout.output_heads();
  if (out.rows != in.rows || outputs < 1 || out.cols != outputs * in.v.width || in.sequences != 1) {
    fail(ErrorCode::shape, "attention: out [{}, {}] does not fit {} rows of {} heads of {}", out.rows, out.cols,
         in.sequences * in.rows, outputs, in.v.width);
  }
  const HeadRows heads = HeadRows::side_by_side(out, outputs);
  if (!tap.active()) return signed_softmax_forward(heads, {}, in, config, workspace.kernel);
  if (in.rows == 0) return;
  const Call call{heads, in, config, workspace, tap};
  forward_tapped(call);
  show_outputs(out, call);
}

}  // namespace unchain::attention
