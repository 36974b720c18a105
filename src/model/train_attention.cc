// The attention of a layer that learns: what is around the kernels of src/attention. docs/math has the formulas.
#include <algorithm>
#include <cmath>

#include "base/thread.h"
#include "model/train_layer.h"
#include "ops/gemm.h"
#include "ops/rows.h"
#include "simd/kernels.h"

namespace unchain::model {
namespace {

using attention::HeadRows;
using attention::LambdaRule;
using attention::NoiseRows;

Matrix as_matrix(Buffer<float>& buffer, int64_t rows, int64_t cols) {
  buffer.reserve(static_cast<size_t>(rows * cols));
  return {buffer.data(), rows, cols};
}

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

// y ← softmax of each row of m numbers; and d_y ← y ⊙ (d_y − Σ y d_y).
void softmax_rows(float* y, int64_t rows, int64_t m) {
  for (int64_t i = 0; i < rows; ++i, y += m) {
    const float largest = *std::max_element(y, y + m);
    float sum = 0;
    for (int64_t j = 0; j < m; ++j) sum += y[j] = std::exp(y[j] - largest);
    for (int64_t j = 0; j < m; ++j) y[j] /= sum;
  }
}
void softmax_rows_backward(float* d_y, const float* y, int64_t rows, int64_t m) {
  for (int64_t i = 0; i < rows; ++i, y += m, d_y += m) {
    float inner = 0;
    for (int64_t j = 0; j < m; ++j) inner += y[j] * d_y[j];
    for (int64_t j = 0; j < m; ++j) d_y[j] = y[j] * (d_y[j] - inner);
  }
}

// Turns all heads of all rows to their positions, or back.
void rotate(const Matrix& x, int64_t width, const StepRows& rows, const ops::RopeTable& rope, ops::RopePairs pairs,
            bool back) {
  parallel_ranges(x.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (float* head = x.f32(t); head < x.f32(t) + x.cols; head += width) {
        back ? ops::rope_backward(head, head, rope, t % rows.context, pairs)
             : ops::rope_forward(head, head, rope, t % rows.context, pairs);
      }
    }
  });
}

}  // namespace

// out[N, heads·E]: the weight's heads, then those of the noise; with low-rank changes both halves are x W + (x A) B of
// their own.
void TrainLayer::project(const Matrix& out, const Matrix& x, const Weight& weight, const Weight& noise,
                         const LowRank* change, TypedBuffer* inner, LayerScratch& scratch) const {
  const int64_t own = weight.matrix().rows;
  ops::linear_forward(out.col_range(0, own), x, weight.linear());
  if (noise) ops::linear_forward(out.col_range(own, out.cols - own), x, noise.linear());
  if (!change[0].down) return;
  ops::copy_rows(out.col_range(own, own), out.col_range(0, own));
  const int64_t rank = family_.rank;
  const Matrix down = as_matrix(scratch.low_rank, x.rows, rank), up = as_matrix(scratch.written, x.rows, own);
  for (int map = 0; map < 2; ++map) {
    ops::linear_forward(down, x, change[map].down.linear());
    const Matrix kept = inner[map].get(dtype_, x.rows, rank);
    ops::copy_rows(kept, down);
    ops::linear_forward(up, kept, change[map].up.linear());
    const Matrix half = out.col_range(map * own, own);
    parallel_ranges(half.rows, 32, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) simd::add(half.f32(t), up.f32(t), static_cast<size_t>(own));
    });
  }
}

// d_x += all of it.
void TrainLayer::project_backward(const Matrix& d_x, const Matrix& d_out, const Matrix& x, const Weight& weight,
                                  const Weight& noise, const LowRank* change, TypedBuffer* inner,
                                  LayerScratch& scratch) const {
  const int64_t own = weight.matrix().rows;
  const auto back = [&](const Matrix& d_y, const Weight& w) {
    linear_back(d_x, ops::Store::accumulate, d_y, x, w, scratch.rounded);
  };
  if (noise) back(d_out.col_range(own, d_out.cols - own), noise);
  if (change[0].down) {
    const Matrix d_inner = as_matrix(scratch.low_rank, x.rows, family_.rank);
    for (int map = 0; map < 2; ++map) {
      const Matrix half = d_out.col_range(map * own, own);
      linear_back(d_inner, ops::Store::overwrite, half, inner[map].get(dtype_, x.rows, family_.rank), change[map].up,
                  scratch.rounded);
      back(d_inner, change[map].down);
    }
    // Both maps read the same W: their gradients add up.
    parallel_ranges(x.rows, 32, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) simd::add(d_out.f32(t), d_out.f32(t) + own, static_cast<size_t>(own));
    });
  }
  back(d_out.col_range(0, own), weight);
}

// λ[N, O] of the rows.
void TrainLayer::make_lambda(const Matrix& x, LayerState& s, int64_t count) const {
  const int64_t outputs = shape_.outputs();
  const Attention& a = attention_;
  const Matrix lambda = as_matrix(s.lambda, count, outputs);
  const auto fill = [&](auto value_of_head) {
    for (int64_t i = 0; i < count * outputs; ++i) lambda.f32()[i] = value_of_head(i % outputs);
  };
  const auto depth = static_cast<size_t>(shape_.head_dim);
  switch (family_.lambda) {
    case LambdaRule::none:
      return;
    case LambdaRule::held:
      fill([&](int64_t) { return family_.held_lambda; });
      break;
    case LambdaRule::depth: {
      const float value = std::exp(simd::dot(a.lambda_q1.value(), a.lambda_k1.value(), depth)) -
                          std::exp(simd::dot(a.lambda_q2.value(), a.lambda_k2.value(), depth)) +
                          static_cast<float>(attention::lambda_init(layer_));
      fill([&](int64_t) { return value; });
      break;
    }
    case LambdaRule::token:
      ops::linear_forward(lambda, x, a.lambda_proj.linear());
      for (int64_t i = 0; i < count * outputs; ++i) lambda.f32()[i] = sigmoid(lambda.f32()[i]);
      break;
    case LambdaRule::head:
      fill([&](int64_t h) { return sigmoid(a.lambda_logit.value()[h]); });
      break;
  }
  if (!a.lambda_gain) return;
  ops::copy_rows(as_matrix(s.before_gain, count, outputs), lambda);
  for (int64_t i = 0; i < count * outputs; ++i) lambda.f32()[i] *= a.lambda_gain.value()[i % outputs];
}

// From scratch.d_lambda, which is used up; d_x is added to.
void TrainLayer::make_lambda_backward(const Matrix& d_x, const Matrix& x, LayerState& s, int64_t count,
                                      LayerScratch& scratch) const {
  const int64_t outputs = shape_.outputs();
  const Attention& a = attention_;
  const Matrix d_lambda = as_matrix(scratch.d_lambda, count, outputs);
  float* values = s.lambda.data();
  if (a.lambda_gain) {
    values = s.before_gain.data();
    for (int64_t i = 0; i < count * outputs; ++i) {
      a.lambda_gain.d_value()[i % outputs] += d_lambda.f32()[i] * values[i];
      d_lambda.f32()[i] *= a.lambda_gain.value()[i % outputs];
    }
  }
  if (family_.lambda == LambdaRule::depth) {
    double sum = 0;
    for (int64_t i = 0; i < count * outputs; ++i) sum += static_cast<double>(d_lambda.f32()[i]);
    const auto width = static_cast<size_t>(shape_.head_dim);
    const auto pair = [&](const Weight& q, const Weight& k, double sign) {
      const auto factor =
          static_cast<float>(sign * sum * std::exp(static_cast<double>(simd::dot(q.value(), k.value(), width))));
      simd::axpy(q.d_value(), factor, k.value(), width);
      simd::axpy(k.d_value(), factor, q.value(), width);
    };
    pair(a.lambda_q1, a.lambda_k1, 1);
    pair(a.lambda_q2, a.lambda_k2, -1);
  }
  if (family_.lambda != LambdaRule::token && family_.lambda != LambdaRule::head) return;
  for (int64_t i = 0; i < count * outputs; ++i) d_lambda.f32()[i] *= values[i] * (1 - values[i]);
  if (family_.lambda == LambdaRule::token) {
    linear_back(d_x, ops::Store::accumulate, d_lambda, x, a.lambda_proj, scratch.rounded);
  } else {
    ops::add_column_sums(a.lambda_logit.d_value(), d_lambda);
  }
}

attention::SignedConfig TrainLayer::kernel_config() const {
  return {shape_.layout, config_->attention_scale, config_->layers[static_cast<size_t>(layer_)].window,
          config_->attention_cap};
}

attention::SignedInputs TrainLayer::inputs(LayerState& s, const StepRows& rows) const {
  attention::SignedInputs in;
  const int64_t count = rows.count(), d = shape_.head_dim;
  in.q = HeadRows::side_by_side(as_matrix(s.query, count, shape_.layout.query_heads * d), shape_.layout.query_heads);
  in.k = HeadRows::side_by_side(s.key.get(dtype_, count, shape_.layout.key_heads * d), shape_.layout.key_heads);
  in.v = HeadRows::side_by_side(s.value.get(dtype_, count, shape_.value_width), shape_.layout.value_heads);
  in.sequences = rows.sequences;
  in.rows = in.key_rows = rows.context;
  in.lambda = family_.lambda == LambdaRule::none ? nullptr : s.lambda.data();
  in.extra = attention_.sinks ? attention_.sinks.value() : (no_extra_.empty() ? nullptr : no_extra_.data());
  in.starts = rows.starts;
  return in;
}

attention::StateNoise TrainLayer::noise_of(LayerState& s) const {
  const int64_t rank = family_.state_rank(), outputs = shape_.outputs();
  if (family_.noise == attention::NoiseMap::fixed) {
    return {rank, {s.take.data(), rank, 0}, {s.keep.data(), rank, 0}, {s.alpha.data(), 0, rank}};
  }
  return {rank,
          {s.take.data(), outputs * rank, rank},
          {s.keep.data(), outputs * rank, rank},
          {s.alpha.data(), outputs * rank, rank}};
}

// Body(key head, first output that reads it, how many): neighbours in every layout with a state.
template <class Body>
void TrainLayer::for_key_heads(const Body& body) const {
  const auto& outputs = shape_.layout.outputs;
  for (int64_t first = 0; first < shape_.outputs();) {
    int64_t end = first;
    const int head = outputs[static_cast<size_t>(first)].k1;
    while (end < shape_.outputs() && outputs[static_cast<size_t>(end)].k1 == head) ++end;
    body(head, first, end - first);
    first = end;
  }
}

// Gates and shares of the state, from content keys and x.
void TrainLayer::make_state(const Matrix& x, LayerState& s, const attention::SignedInputs& in) const {
  const int64_t count = in.sequences * in.rows, outputs = shape_.outputs(), rank = family_.state_rank();
  const int64_t d = shape_.head_dim, chunks = (in.rows + 31) / 32;
  s.states.reserve(static_cast<size_t>(in.sequences * chunks * outputs * rank * in.v.width));
  if (family_.noise == attention::NoiseMap::fixed) {
    s.take.reserve(static_cast<size_t>(count * rank));
    s.keep.reserve(static_cast<size_t>(count * rank));
    attention::fixed_gates({s.take.data(), rank, 0}, {s.keep.data(), rank, 0}, family_.decays, in);
    s.alpha.reserve(static_cast<size_t>(outputs * rank));
    std::copy_n(attention_.basis.value(), outputs * rank, s.alpha.data());
    return softmax_rows(s.alpha.data(), outputs, rank);
  }
  const Matrix scores = as_matrix(s.take, count, outputs * rank);
  as_matrix(s.keep, count, outputs * rank);
  const Matrix alpha = as_matrix(s.alpha, count, outputs * rank);
  const Matrix content(s.content.data(), count, shape_.layout.key_heads * d);
  const Matrix prototypes(attention_.prototypes.parameter->value.data(), outputs * rank, d);
  for_key_heads([&](int64_t head, int64_t first, int64_t heads) {
    ops::gemm(scores.col_range(first * rank, heads * rank), content.col_range(head * d, d),
              prototypes.row_range(first * rank, heads * rank), ops::Transpose::yes);
  });
  simd::scale(scores.f32(), config_->attention_scale, static_cast<size_t>(count * scores.cols));
  const attention::StateNoise noise = noise_of(s);
  attention::prototype_gates(noise.take, noise.keep, noise.take, nullptr, in, outputs, rank);
  ops::linear_forward(alpha, x, attention_.alpha.linear());
  parallel_ranges(count, 64,
                  [&](int64_t begin, int64_t end) { softmax_rows(alpha.f32(begin), (end - begin) * outputs, rank); });
}

// Behind state_noise_backward: on to prototypes, content keys (d_content, written) and α.
void TrainLayer::make_state_backward(const Matrix& d_x, const Matrix& x, LayerState& s, const Matrix& d_content,
                                     LayerScratch& scratch) const {
  const int64_t count = x.rows, outputs = shape_.outputs(), rank = family_.state_rank(), d = shape_.head_dim;
  const Matrix d_alpha = as_matrix(scratch.d_alpha, count, outputs * rank);
  if (family_.noise == attention::NoiseMap::fixed) {
    std::vector<float> d_shares(static_cast<size_t>(outputs * rank));
    ops::add_column_sums(d_shares.data(), d_alpha);
    softmax_rows_backward(d_shares.data(), s.alpha.data(), outputs, rank);
    return simd::add(attention_.basis.d_value(), d_shares.data(), d_shares.size());
  }
  const Matrix d_scores = as_matrix(scratch.d_scores, count, outputs * rank);
  simd::scale(d_scores.f32(), config_->attention_scale, static_cast<size_t>(count * d_scores.cols));
  const Matrix content(s.content.data(), count, d_content.cols);
  const Matrix prototypes(attention_.prototypes.parameter->value.data(), outputs * rank, d);
  const Matrix d_prototypes(attention_.prototypes.parameter->gradient.data(), outputs * rank, d);
  for_key_heads([&](int64_t head, int64_t first, int64_t heads) {
    const Matrix d_s = d_scores.col_range(first * rank, heads * rank);
    ops::gemm(d_content.col_range(head * d, d), d_s, prototypes.row_range(first * rank, heads * rank),
              ops::Transpose::no);
    ops::gemm_transposed(d_prototypes.row_range(first * rank, heads * rank), d_s, content.col_range(head * d, d),
                         ops::Store::accumulate);
  });
  parallel_ranges(count, 64, [&](int64_t begin, int64_t end) {
    softmax_rows_backward(d_alpha.f32(begin), s.alpha.data() + begin * outputs * rank, (end - begin) * outputs, rank);
  });
  linear_back(d_x, ops::Store::accumulate, d_alpha, x, attention_.alpha, scratch.rounded);
}

// (1 − λ_init) and the norm's own weight, one for each of W numbers.
std::vector<float> TrainLayer::head_norm_weight() const {
  const auto factor = static_cast<float>(1 - attention::lambda_init(layer_));
  std::vector<float> weight(static_cast<size_t>(shape_.value_dim), factor);
  for (size_t i = 0; attention_.head_norm && i < weight.size(); ++i) weight[i] *= attention_.head_norm.value()[i];
  return weight;
}

float TrainLayer::head_norm_eps() const {
  return family_.head_norm_eps > 0 ? family_.head_norm_eps : config_->norm_eps;
}

// Behind the kernels: head norm, gate, and into the type of W_O's inputs.
void TrainLayer::finish(const Matrix& x, LayerState& s, int64_t count, LayerScratch& scratch) const {
  const int64_t outputs = shape_.outputs(), width = shape_.value_dim;
  const Matrix mixed = s.mixed.get(dtype_, count, outputs * width);
  Matrix output(s.output.data(), count, outputs * width);
  if (family_.head_norm) {
    const Matrix normed = attention_.gate ? as_matrix(s.normed, count, outputs * width) : mixed;
    Matrix to = normed;
    to.rows = count * outputs;
    to.cols = to.stride = width;
    s.head_rms.reserve(static_cast<size_t>(count * outputs));
    ops::rms_norm_forward(to, {s.head_rms.data()}, Matrix(s.output.data(), count * outputs, width),
                          head_norm_weight().data(), head_norm_eps());
    output = normed;
  }
  if (attention_.gate) {
    const Matrix gate = as_matrix(s.gate, count, outputs), gated = as_matrix(scratch.d_mixed, count, outputs * width);
    ops::linear_forward(gate, x, attention_.gate.linear());
    for (int64_t i = 0; i < count * outputs; ++i) {
      gate.f32()[i] = sigmoid(gate.f32()[i]);
      simd::scaled(output.f32() + i * width, gate.f32()[i], gated.f32() + i * width, static_cast<size_t>(width));
    }
    output = gated;
  }
  if (output.data != mixed.data) ops::copy_rows(mixed, output);
}

// d_mixed becomes the gradient of the kernels' output; d_x is added to.
void TrainLayer::finish_backward(const Matrix& d_x, const Matrix& d_mixed, const Matrix& x, LayerState& s,
                                 LayerScratch& scratch) const {
  const int64_t count = x.rows, outputs = shape_.outputs(), width = shape_.value_dim;
  if (attention_.gate) {
    const float* output = family_.head_norm ? s.normed.data() : s.output.data();
    const Matrix d_gate = as_matrix(scratch.d_gate_logit, count, outputs);
    for (int64_t i = 0; i < count * outputs; ++i) {
      const float gate = s.gate[static_cast<size_t>(i)];
      const float inner = simd::dot(d_mixed.f32() + i * width, output + i * width, static_cast<size_t>(width));
      d_gate.f32()[i] = inner * gate * (1 - gate);
      simd::scale(d_mixed.f32() + i * width, gate, static_cast<size_t>(width));
    }
    linear_back(d_x, ops::Store::accumulate, d_gate, x, attention_.gate, scratch.rounded);
  }
  if (!family_.head_norm) return;
  const Matrix d_output = as_matrix(scratch.d_output, count * outputs, width);
  ops::fill_zero(d_output);
  std::vector<float> d_weight(static_cast<size_t>(width));
  ops::rms_norm_backward(d_output, d_weight.data(), scratch.norm, Matrix(d_mixed.f32(), count * outputs, width),
                         {s.head_rms.data()}, Matrix(s.output.data(), count * outputs, width),
                         head_norm_weight().data());
  if (attention_.head_norm) {
    simd::axpy(attention_.head_norm.d_value(), static_cast<float>(1 - attention::lambda_init(layer_)), d_weight.data(),
               d_weight.size());
  }
  ops::copy_rows(Matrix(d_mixed.f32(), count * outputs, width), d_output);
}

void TrainLayer::attend(const Matrix& x, LayerState& s, const StepRows& rows, const ops::RopeTable& rope,
                        LayerScratch& scratch) const {
  const int64_t count = rows.count(), d = shape_.head_dim, outputs = shape_.outputs();
  const Matrix query = as_matrix(s.query, count, shape_.layout.query_heads * d);
  project(query, x, attention_.query, attention_.noise_query, attention_.query_change, s.query_inner, scratch);
  rotate(query, d, rows, rope, config_->pairs, false);
  const Matrix key = as_matrix(scratch.key, count, shape_.layout.key_heads * d);
  project(key, x, attention_.key, attention_.noise_key, attention_.key_change, s.key_inner, scratch);
  if (family_.noise == attention::NoiseMap::prototypes) ops::copy_rows(as_matrix(s.content, count, key.cols), key);
  rotate(key, d, rows, rope, config_->pairs, false);
  ops::copy_rows(s.key.get(dtype_, count, key.cols), key);
  const Matrix value = as_matrix(scratch.value, count, shape_.value_width);
  const Matrix kept = s.value.get(dtype_, count, shape_.value_width);
  ops::linear_forward(value, x, attention_.value.linear());
  for (size_t block = 0; block < shape_.value_order.size(); ++block) {
    ops::copy_rows(kept.col_range(shape_.value_order[block] * d, d),
                   value.col_range(static_cast<int64_t>(block) * d, d));
  }
  make_lambda(x, s, count);
  const attention::SignedInputs in = inputs(s, rows);
  const HeadRows output = HeadRows::side_by_side(as_matrix(s.output, count, shape_.output_width()), outputs);
  s.log_sums.reserve(static_cast<size_t>(2 * count * outputs));
  signed_softmax_forward(output, {s.log_sums.data()}, in, kernel_config(), scratch.kernel);
  if (family_.has_state()) {
    make_state(x, s, in);
    state_noise_forward(output, nullptr, s.states.data(), noise_of(s), in, shape_.layout, scratch.state);
  }
  finish(x, s, count, scratch);
}

void TrainLayer::attend_backward(const Matrix& d_x, const Matrix& d_mixed, LayerState& s, const StepRows& rows,
                                 const ops::RopeTable& rope, LayerScratch& scratch) const {
  const int64_t count = rows.count(), d = shape_.head_dim, outputs = shape_.outputs();
  const attention::Layout& layout = shape_.layout;
  const Matrix x = s.x1.get(dtype_, count, config_->width);
  ops::fill_zero(d_x);
  finish_backward(d_x, d_mixed, x, s, scratch);
  const attention::SignedInputs in = inputs(s, rows);
  const Matrix d_query = as_matrix(scratch.d_query, count, layout.query_heads * d);
  const Matrix d_key = as_matrix(scratch.key, count, layout.key_heads * d);
  const Matrix d_value = as_matrix(scratch.value, count, shape_.value_width);
  as_matrix(scratch.d_lambda, count, outputs);
  const HeadRows d_output = HeadRows::side_by_side(d_mixed, outputs);
  attention::SignedGradients g;
  g.d_q = HeadRows::side_by_side(d_query, layout.query_heads);
  g.d_k = HeadRows::side_by_side(d_key, layout.key_heads);
  g.d_v = HeadRows::side_by_side(d_value, layout.value_heads);
  g.d_lambda = scratch.d_lambda.data();
  g.d_extra = attention_.sinks ? attention_.sinks.d_value() : nullptr;
  signed_softmax_backward(g, d_output, {s.log_sums.data()}, in, kernel_config(), scratch.kernel);
  rotate(d_query, d, rows, rope, config_->pairs, true);
  rotate(d_key, d, rows, rope, config_->pairs, true);
  if (family_.has_state()) {
    const int64_t rank = family_.state_rank();
    as_matrix(scratch.d_alpha, count, outputs * rank);
    as_matrix(scratch.d_scores, count, outputs * rank);
    const NoiseRows d_alpha{scratch.d_alpha.data(), outputs * rank, rank},
        d_scores{scratch.d_scores.data(), outputs * rank, rank};
    state_noise_backward({g.d_v, g.d_lambda, d_alpha, d_scores}, d_output, s.states.data(), noise_of(s), in, layout,
                         scratch.state);
    const Matrix d_content = as_matrix(scratch.d_content, count, d_key.cols);
    make_state_backward(d_x, x, s, d_content, scratch);
    if (family_.noise == attention::NoiseMap::prototypes)
      simd::add(d_key.f32(), d_content.f32(), static_cast<size_t>(count * d_key.cols));
  }
  make_lambda_backward(d_x, x, s, count, scratch);
  project_backward(d_x, d_query, x, attention_.query, attention_.noise_query, attention_.query_change, s.query_inner,
                   scratch);
  project_backward(d_x, d_key, x, attention_.key, attention_.noise_key, attention_.key_change, s.key_inner, scratch);
  const Matrix d_file = as_matrix(scratch.d_output, count, shape_.value_width);
  for (size_t block = 0; block < shape_.value_order.size(); ++block) {
    ops::copy_rows(d_file.col_range(static_cast<int64_t>(block) * d, d),
                   d_value.col_range(shape_.value_order[block] * d, d));
  }
  linear_back(d_x, ops::Store::accumulate, d_file, x, attention_.value, scratch.rounded);
}

}  // namespace unchain::model
