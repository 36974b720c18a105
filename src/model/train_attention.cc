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

// d_y ← y ⊙ (d_y − Σ y d_y) in each row of m numbers.
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

// Back through member_heads(): d_x += all of it.
void TrainLayer::heads_backward(const Matrix& d_x, const Matrix& d_out, const Matrix& x, const Weight& weight,
                                const Weight& noise, const LowRankChange<Weight>* change, TypedBuffer* inner,
                                LayerScratch& scratch) const {
  const int64_t own = weight.matrix().rows;
  const auto back = [&](const Matrix& d_y, const Weight& w) {
    linear_back(d_x, ops::Store::accumulate, d_y, x, w, scratch.rounded);
  };
  if (noise) back(d_out.col_range(own, d_out.cols - own), noise);
  if (change[0].down) {
    const Matrix d_inner = as_matrix(scratch.d_low_rank, x.rows, member_.family.rank);
    for (int map = 0; map < 2; ++map) {
      const Matrix half = d_out.col_range(map * own, own);
      linear_back(d_inner, ops::Store::overwrite, half, inner[map].get(dtype_, x.rows, member_.family.rank),
                  change[map].up, scratch.rounded);
      back(d_inner, change[map].down);
    }
    // Both maps read the same W: their gradients add up.
    ops::add_rows(d_out.col_range(0, own), d_out.col_range(own, own));
  }
  back(d_out.col_range(0, own), weight);
}

// From scratch.d_lambda, which is used up; d_x is added to.
void TrainLayer::lambda_backward(const Matrix& d_x, const Matrix& x, LayerState& s, LayerScratch& scratch) const {
  const int64_t count = x.rows, outputs = member_.shape.outputs();
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
  if (member_.family.lambda == LambdaRule::depth) {
    double sum = 0;
    for (int64_t i = 0; i < count * outputs; ++i) sum += static_cast<double>(d_lambda.f32()[i]);
    const auto width = static_cast<size_t>(member_.shape.head_dim);
    const auto pair = [&](const Weight& q, const Weight& k, double sign) {
      const auto factor =
          static_cast<float>(sign * sum * std::exp(static_cast<double>(simd::dot(q.value(), k.value(), width))));
      simd::axpy(q.d_value(), factor, k.value(), width);
      simd::axpy(k.d_value(), factor, q.value(), width);
    };
    pair(a.lambda_q1, a.lambda_k1, 1);
    pair(a.lambda_q2, a.lambda_k2, -1);
  }
  if (member_.family.lambda != LambdaRule::token && member_.family.lambda != LambdaRule::head) return;
  for (int64_t i = 0; i < count * outputs; ++i) d_lambda.f32()[i] *= values[i] * (1 - values[i]);
  if (member_.family.lambda == LambdaRule::token) {
    linear_back(d_x, ops::Store::accumulate, d_lambda, x, a.lambda_proj, scratch.rounded);
  } else {
    ops::add_column_sums(a.lambda_logit.d_value(), d_lambda);
  }
}

attention::SignedInputs TrainLayer::inputs(LayerState& s, const StepRows& rows) const {
  attention::SignedInputs in;
  const int64_t count = rows.count(), d = member_.shape.head_dim;
  in.q = HeadRows::side_by_side(as_matrix(s.query, count, member_.shape.layout.query_heads * d),
                                member_.shape.layout.query_heads);
  in.k = HeadRows::side_by_side(s.key.get(dtype_, count, member_.shape.layout.key_heads * d),
                                member_.shape.layout.key_heads);
  in.v =
      HeadRows::side_by_side(s.value.get(dtype_, count, member_.shape.value_width), member_.shape.layout.value_heads);
  in.sequences = rows.sequences;
  in.rows = in.key_rows = rows.context;
  in.lambda = member_.family.has_noise() ? s.lambda.data() : nullptr;
  in.extra = member_.extra();
  in.starts = rows.starts;
  return in;
}

attention::StateNoise TrainLayer::noise_of(LayerState& s) const {
  const int64_t rank = member_.family.state_rank(), outputs = member_.shape.outputs();
  if (!member_.family.has_own_gates()) {
    return {rank, {s.take.data(), rank, 0}, {s.keep.data(), rank, 0}, {s.alpha.data(), 0, rank}};
  }
  return {rank,
          {s.take.data(), outputs * rank, rank},
          {s.keep.data(), outputs * rank, rank},
          {s.alpha.data(), outputs * rank, rank}};
}

// Gates and shares of the state, from content keys and x.
void TrainLayer::make_state(const Matrix& x, LayerState& s, const attention::SignedInputs& in) const {
  const int64_t count = in.sequences * in.rows, outputs = member_.shape.outputs(), rank = member_.family.state_rank();
  const int64_t chunks = (in.rows + 31) / 32;
  s.states.reserve(static_cast<size_t>(in.sequences * chunks * outputs * rank * in.v.width));
  if (!member_.family.has_own_gates()) {
    s.take.reserve(static_cast<size_t>(count * rank));
    s.keep.reserve(static_cast<size_t>(count * rank));
    attention::fixed_gates({s.take.data(), rank, 0}, {s.keep.data(), rank, 0}, member_.family.decays, in);
    return member_shares(as_matrix(s.alpha, outputs, rank), x, member_);
  }
  const Matrix scores = as_matrix(s.take, count, outputs * rank);
  as_matrix(s.keep, count, outputs * rank);
  const Matrix alpha = as_matrix(s.alpha, count, outputs * rank);
  const attention::StateNoise noise = noise_of(s);
  if (member_.family.calibrated) {
    return attention::calibrated_gates(noise.take, noise.keep, noise.alpha, member_.calibrated_map(), in, outputs);
  }
  member_scores(scores, Matrix(s.content.data(), count, member_.shape.layout.key_heads * member_.shape.head_dim),
                member_);
  attention::prototype_gates(noise.take, noise.keep, noise.take, nullptr, in, outputs, rank);
  member_shares(alpha, x, member_);
}

// Behind state_noise_backward: on to prototypes, content keys (d_content, written) and α.
void TrainLayer::state_backward(const Matrix& d_x, const Matrix& x, LayerState& s, const Matrix& d_content,
                                LayerScratch& scratch) const {
  const int64_t count = x.rows, outputs = member_.shape.outputs(), rank = member_.family.state_rank(),
                d = member_.shape.head_dim;
  if (member_.family.calibrated) return;  // frozen
  const Matrix d_alpha = as_matrix(scratch.d_alpha, count, outputs * rank);
  if (member_.family.noise == attention::NoiseMap::fixed) {
    std::vector<float> d_shares(static_cast<size_t>(outputs * rank));
    ops::add_column_sums(d_shares.data(), d_alpha);
    softmax_rows_backward(d_shares.data(), s.alpha.data(), outputs, rank);
    return simd::add(attention_.basis.d_value(), d_shares.data(), d_shares.size());
  }
  const Matrix d_scores = as_matrix(scratch.d_scores, count, outputs * rank);
  simd::scale(d_scores.f32(), member_.kernel.scale, static_cast<size_t>(count * d_scores.cols));
  const Matrix content(s.content.data(), count, d_content.cols);
  const Matrix prototypes(attention_.prototypes.parameter->value.data(), outputs * rank, d);
  const Matrix d_prototypes(attention_.prototypes.parameter->gradient.data(), outputs * rank, d);
  ops::fill_zero(d_content);
  for (int64_t o = 0; o < outputs; ++o) {
    const int head = member_.shape.layout.outputs[static_cast<size_t>(o)].k1;
    const Matrix d_s = d_scores.col_range(o * rank, rank);
    ops::gemm(d_content.col_range(head * d, d), d_s, prototypes.row_range(o * rank, rank), ops::Transpose::no,
              ops::Store::accumulate);
    ops::gemm_transposed(d_prototypes.row_range(o * rank, rank), d_s, content.col_range(head * d, d),
                         ops::Store::accumulate);
  }
  parallel_ranges(count, 64, [&](int64_t begin, int64_t end) {
    softmax_rows_backward(d_alpha.f32(begin), s.alpha.data() + begin * outputs * rank, (end - begin) * outputs, rank);
  });
  linear_back(d_x, ops::Store::accumulate, d_alpha, x, attention_.alpha, scratch.rounded);
}

// d_mixed becomes the gradient of the kernels' output; d_x is added to.
void TrainLayer::finish_backward(const Matrix& d_x, const Matrix& d_mixed, const Matrix& x, LayerState& s,
                                 LayerScratch& scratch) const {
  const int64_t count = x.rows, outputs = member_.shape.outputs(), width = member_.shape.value_dim;
  if (attention_.gate) {
    const float* output = member_.family.head_norm ? s.finish.normed.data() : s.output.data();
    const int64_t gates = attention_.gate.matrix().rows, group = d_mixed.cols / gates;
    const Matrix gate(s.finish.gate.data(), count, gates), d_gate = as_matrix(scratch.d_gate_logit, count, gates);
    parallel_ranges(count * gates, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float *d_out = d_mixed.f32() + i * group, *o = output + i * group, g = gate.f32()[i];
        // One number is too few for a kernel.
        const float inner = group == 1 ? d_out[0] * o[0] : simd::dot(d_out, o, static_cast<size_t>(group));
        d_gate.f32()[i] = inner * g * (1 - g);
      }
    });
    apply_gates(d_mixed, d_mixed, gate);
    linear_back(d_x, ops::Store::accumulate, d_gate, x, attention_.gate, scratch.rounded);
  }
  if (!member_.family.head_norm) return;
  const Matrix d_output = as_matrix(scratch.d_output, count * outputs, width);
  ops::fill_zero(d_output);
  std::vector<float> d_weight(static_cast<size_t>(width));
  ops::rms_norm_backward(d_output, d_weight.data(), scratch.norm, Matrix(d_mixed.f32(), count * outputs, width),
                         {s.finish.head_rms.data()}, Matrix(s.output.data(), count * outputs, width),
                         member_.head_norm_weight().data());
  if (attention_.head_norm) {
    simd::axpy(attention_.head_norm.d_value(), static_cast<float>(1 - attention::lambda_init(layer_)), d_weight.data(),
               d_weight.size());
  }
  ops::copy_rows(Matrix(d_mixed.f32(), count * outputs, width), d_output);
}

void TrainLayer::attend(const Matrix& x, LayerState& s, const StepRows& rows, const ops::RopeTable& rope,
                        LayerScratch& scratch) const {
  const attention::AttentionShape& shape = member_.shape;
  const MemberWeights& w = member_.weights;
  const int64_t count = rows.count(), d = shape.head_dim, outputs = shape.outputs();
  const Matrix query = as_matrix(s.query, count, shape.layout.query_heads * d);
  member_heads(query, x, w.query, w.noise_query, w.query_change, s.query_inner, scratch.member);
  rotate(query, d, rows, rope, config_->pairs, false);
  const Matrix key = as_matrix(scratch.key, count, shape.layout.key_heads * d);
  member_heads(key, x, w.key, w.noise_key, w.key_change, s.key_inner, scratch.member);
  if (w.prototypes) ops::copy_rows(as_matrix(s.content, count, key.cols), key);
  rotate(key, d, rows, rope, config_->pairs, false);
  ops::copy_rows(s.key.get(dtype_, count, key.cols), key);
  member_values(s.value.get(dtype_, count, shape.value_width), x, member_, scratch.member);
  member_lambda(as_matrix(s.lambda, count, outputs), as_matrix(s.before_gain, count, w.lambda_gain ? outputs : 0), x,
                member_);
  const attention::SignedInputs in = inputs(s, rows);
  const Matrix output = as_matrix(s.output, count, shape.output_width());
  const HeadRows heads = HeadRows::side_by_side(output, outputs);
  s.log_sums.reserve(static_cast<size_t>(2 * count * outputs));
  signed_softmax_forward(heads, {s.log_sums.data()}, in, member_.kernel, scratch.kernel);
  if (member_.family.has_state()) {
    make_state(x, s, in);
    state_noise_forward(heads, nullptr, s.states.data(), noise_of(s), in, shape.layout, scratch.state);
  }
  finish_member(s.mixed.get(dtype_, count, output.cols), s.finish, output, x, member_);
}

// ∂loss/∂gate_h at gate 1, from the inputs of W_O and their gradient, both f32.
void TrainLayer::show_gates(attention::GradientObserver& observer, const Matrix& d_mixed, LayerState& s) const {
  const int64_t outputs = member_.shape.outputs(), width = member_.shape.value_dim;
  const Matrix mixed = s.mixed.get(dtype_, d_mixed.rows, d_mixed.cols);
  std::vector<double> d_gate(static_cast<size_t>(outputs));
  for (int64_t t = 0; t < mixed.rows; ++t) {
    for (int64_t i = 0; i < mixed.cols; ++i) {
      d_gate[static_cast<size_t>(i / width)] +=
          static_cast<double>(d_mixed.f32(t)[i]) * static_cast<double>(mixed.f32(t)[i]);
    }
  }
  observer.on_gates(static_cast<int>(layer_), d_gate);
}

void TrainLayer::attend_backward(const Matrix& d_x, const Matrix& d_mixed, LayerState& s, const StepRows& rows,
                                 const ops::RopeTable& rope, LayerScratch& scratch,
                                 attention::GradientObserver* observer) const {
  const int64_t count = rows.count(), d = member_.shape.head_dim, outputs = member_.shape.outputs();
  const attention::Layout& layout = member_.shape.layout;
  const Matrix x = s.x1.get(dtype_, count, config_->width);
  ops::fill_zero(d_x);
  if (observer) show_gates(*observer, d_mixed, s);
  finish_backward(d_x, d_mixed, x, s, scratch);
  const attention::SignedInputs in = inputs(s, rows);
  if (observer && observer->wants_maps(static_cast<int>(layer_))) {
    const attention::StateCall state{noise_of(s), nullptr};
    attention::show_gradients(*observer, d_mixed, static_cast<int>(layer_), in, member_.kernel, scratch.shown,
                              member_.family.has_state() ? &state : nullptr);
  }
  const Matrix d_query = as_matrix(scratch.d_query, count, layout.query_heads * d);
  const Matrix d_key = as_matrix(scratch.key, count, layout.key_heads * d);
  const Matrix d_value = as_matrix(scratch.d_value, count, member_.shape.value_width);
  as_matrix(scratch.d_lambda, count, outputs);
  const HeadRows d_output = HeadRows::side_by_side(d_mixed, outputs);
  attention::SignedGradients g;
  g.d_q = HeadRows::side_by_side(d_query, layout.query_heads);
  g.d_k = HeadRows::side_by_side(d_key, layout.key_heads);
  g.d_v = HeadRows::side_by_side(d_value, layout.value_heads);
  g.d_lambda = scratch.d_lambda.data();
  g.d_extra = attention_.sinks ? attention_.sinks.d_value() : nullptr;
  signed_softmax_backward(g, d_output, {s.log_sums.data()}, in, member_.kernel, scratch.kernel);
  rotate(d_query, d, rows, rope, config_->pairs, true);
  rotate(d_key, d, rows, rope, config_->pairs, true);
  if (member_.family.has_state()) {
    const int64_t rank = member_.family.state_rank();
    as_matrix(scratch.d_alpha, count, outputs * rank);
    as_matrix(scratch.d_scores, count, outputs * rank);
    const NoiseRows d_alpha{scratch.d_alpha.data(), outputs * rank, rank},
        d_scores{scratch.d_scores.data(), outputs * rank, rank};
    state_noise_backward({g.d_v, g.d_lambda, d_alpha, d_scores}, d_output, s.states.data(), noise_of(s), in, layout,
                         scratch.state);
    const Matrix d_content = as_matrix(scratch.d_content, count, d_key.cols);
    state_backward(d_x, x, s, d_content, scratch);
    if (member_.family.noise == attention::NoiseMap::prototypes) ops::add_rows(d_key, d_content);
  }
  lambda_backward(d_x, x, s, scratch);
  heads_backward(d_x, d_query, x, attention_.query, attention_.noise_query, attention_.query_change, s.query_inner,
                 scratch);
  heads_backward(d_x, d_key, x, attention_.key, attention_.noise_key, attention_.key_change, s.key_inner, scratch);
  const Matrix d_file = as_matrix(scratch.d_output, count, member_.shape.value_width);
  for (size_t block = 0; block < member_.shape.value_order.size(); ++block) {
    ops::copy_rows(d_file.col_range(static_cast<int64_t>(block) * d, d),
                   d_value.col_range(member_.shape.value_order[block] * d, d));
  }
  linear_back(d_x, ops::Store::accumulate, d_file, x, attention_.value, scratch.rounded);
}

}  // namespace unchain::model
