#include "model/train_layer.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/thread.h"
#include "ops/gated.h"
#include "ops/gemm.h"
#include "ops/rows.h"
#include "simd/kernels.h"

namespace unchain::model {
Matrix Weight::matrix() const {
  const int64_t rows = parameter->shape.front(), cols = static_cast<int64_t>(parameter->value.size()) / rows;
  return parameter->narrow.empty() ? Matrix(parameter->value.data(), rows, cols)
                                   : Matrix(parameter->narrow.data(), rows, cols);
}

Matrix Weight::gradient() const {
  const int64_t rows = parameter->shape.front(), cols = static_cast<int64_t>(parameter->value.size()) / rows;
  return {parameter->gradient.data(), rows, cols};
}

TrainLayer::TrainLayer(const Config& config, int64_t layer, DType dtype,
                       const std::function<Parameter*(const std::string&)>& find)
    : config_(&config), layer_(layer), dtype_(dtype), member_(make_member(config, layer)) {
  const auto weight = [&](const std::string& name) { return Weight{find(name)}; };
  attention_norm_ = weight("input_layernorm.weight");
  feed_forward_norm_ = weight("post_attention_layernorm.weight");
  gate_ = weight("mlp.gate_proj.weight");
  up_ = weight("mlp.up_proj.weight");
  down_ = weight("mlp.down_proj.weight");
  output_ = weight("self_attn.o_proj.weight");
  const std::string attention = "self_attn.";
  Attention::for_each(attention_, [&](const char* name, Weight& target) { target = weight(attention + name); });
  MemberWeights::for_each(member_.weights, [&](const char* name, auto& target) {
    if constexpr (std::is_same_v<decltype(target), ops::Linear&>) {
      target = weight(attention + name).linear();
    } else {
      target = weight(attention + name).value();
    }
  });
}

void TrainLayer::norm(const Matrix& out, Buffer<float>& inverse_rms, const Matrix& x, const Weight& weight,
                      const StepRows& rows) const {
  inverse_rms.reserve(static_cast<size_t>(x.rows));
  const int64_t bad = ops::rms_norm_forward(out, {inverse_rms.data()}, x, weight.value(), config_->norm_eps);
  if (bad >= 0) {
    fail(ErrorCode::numeric, "layer {}, row {}, position {}: activations are not finite", layer_, bad / rows.context,
         bad % rows.context);
  }
}

// The gradient of a product: d_y rounded to the weights' type once for both.
void TrainLayer::linear_back(const Matrix& d_x, ops::Store store, const Matrix& d_y, const Matrix& x,
                             const Weight& weight, TypedBuffer& typed) const {
  Matrix rounded = d_y;
  if (dtype_ != DType::f32 && d_y.type == DType::f32) {
    rounded = typed.get(dtype_, d_y.rows, d_y.cols);
    ops::copy_rows(rounded, d_y);
  }
  ops::linear_backward(d_x, store, {weight.gradient(), nullptr}, rounded, x, weight.matrix());
}

void TrainLayer::forward(const Matrix& hidden, LayerState& s, const StepRows& rows, const ops::RopeTable& rope,
                         LayerScratch& scratch) const {
  const int64_t count = rows.count(), width = config_->width, feed = config_->feed_forward;
  ops::copy_rows(as_matrix(s.input, count, width), hidden);
  const Matrix x1 = s.x1.get(dtype_, count, width);
  norm(x1, s.rms1, hidden, attention_norm_, rows);
  attend(x1, s, rows, rope, scratch);
  const Matrix written = as_matrix(scratch.written, count, width);
  ops::linear_forward(written, s.mixed.get(dtype_, count, member_.shape.output_width()), output_.linear());
  ops::add_rows(hidden, written);

  ops::copy_rows(as_matrix(s.middle, count, width), hidden);
  const Matrix x2 = s.x2.get(dtype_, count, width);
  norm(x2, s.rms2, hidden, feed_forward_norm_, rows);
  const Matrix gate = as_matrix(s.feed_gate, count, feed), up = as_matrix(s.feed_up, count, feed);
  ops::linear_forward(x2, {{gate, gate_.linear()}, {up, up_.linear()}});
  const Matrix gated = scratch.gated.get(dtype_, count, feed);
  ops::gated_forward(gated, gate, up, config_->architecture->activation);
  ops::linear_forward(written, gated, down_.linear());
  ops::add_rows(hidden, written);
}

void TrainLayer::backward(const Matrix& d_hidden, LayerState& s, const StepRows& rows, const ops::RopeTable& rope,
                          LayerScratch& scratch, attention::GradientObserver* observer) const {
  const int64_t count = rows.count(), width = config_->width, feed = config_->feed_forward;
  // h += W_down (activation(gate) ⊙ up): the gated product is computed again.
  const Matrix gate = as_matrix(s.feed_gate, count, feed), up = as_matrix(s.feed_up, count, feed);
  const Matrix gated = scratch.gated.get(dtype_, count, feed), d_gated = as_matrix(scratch.d_gated, count, feed);
  ops::gated_forward(gated, gate, up, config_->architecture->activation);
  linear_back(d_gated, ops::Store::overwrite, d_hidden, gated, down_, scratch.rounded);
  const Matrix d_gate = scratch.d_gate.get(dtype_, count, feed), d_up = scratch.d_up.get(dtype_, count, feed);
  ops::gated_backward(d_gate, d_up, d_gated, gate, up, config_->architecture->activation);
  const Matrix x2 = s.x2.get(dtype_, count, width), d_x = as_matrix(scratch.d_x, count, width);
  linear_back(d_x, ops::Store::overwrite, d_gate, x2, gate_, scratch.rounded);
  linear_back(d_x, ops::Store::accumulate, d_up, x2, up_, scratch.rounded);
  ops::rms_norm_backward(d_hidden, feed_forward_norm_.d_value(), scratch.norm, d_x, {s.rms2.data()},
                         as_matrix(s.middle, count, width), feed_forward_norm_.value());

  const Matrix mixed = s.mixed.get(dtype_, count, member_.shape.output_width());
  const Matrix d_mixed = as_matrix(scratch.d_mixed, count, member_.shape.output_width());
  linear_back(d_mixed, ops::Store::overwrite, d_hidden, mixed, output_, scratch.rounded);
  attend_backward(d_x, d_mixed, s, rows, rope, scratch, observer);
  ops::rms_norm_backward(d_hidden, attention_norm_.d_value(), scratch.norm, d_x, {s.rms1.data()},
                         as_matrix(s.input, count, width), attention_norm_.value());
}

double TrainLayer::mean_lambda(const LayerState& s, const StepRows& rows) const {
  if (member_.family.lambda == attention::LambdaRule::none) return std::numeric_limits<double>::quiet_NaN();
  const int64_t count = rows.count() * member_.shape.outputs();
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(s.lambda[static_cast<size_t>(i)]);
  return sum / static_cast<double>(count);
}

}  // namespace unchain::model
