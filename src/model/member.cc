#include "model/member.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"
#include "ops/rms_norm.h"
#include "ops/rows.h"
#include "simd/kernels.h"
#include "simd/state_chunk.h"

namespace unchain::model {
namespace {

using attention::LambdaRule;

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}

template <class Out>
void gate_row(Out* out, const float* x, const float* gate, int64_t gates, int64_t n) {
  if (gates == n) return simd::scaled_by(x, 1, gate, out, static_cast<size_t>(n));
  for (int64_t i = 0, width = n / gates; i < gates; ++i)
    simd::scaled(x + i * width, gate[i], out + i * width, static_cast<size_t>(width));
}

}  // namespace

Matrix as_matrix(Buffer<float>& buffer, int64_t rows, int64_t cols) {
  buffer.reserve(static_cast<size_t>(rows * cols));
  return {buffer.data(), rows, cols};
}

Matrix TypedBuffer::get(DType type, int64_t rows, int64_t cols) {
  const auto count = static_cast<size_t>(rows * cols);
  if (type == DType::bf16) {
    narrow.reserve(count);
    return {narrow.data(), rows, cols};
  }
  wide.reserve(count);
  return {wide.data(), rows, cols};
}

std::vector<float> Member::head_norm_weight() const {
  std::vector<float> weight(static_cast<size_t>(shape.value_dim),
                            static_cast<float>(1 - attention::lambda_init(layer)));
  for (size_t i = 0; weights.head_norm && i < weight.size(); ++i) weight[i] *= weights.head_norm[i];
  return weight;
}

Member make_member(const Config& config, int64_t layer) {
  Member member;
  member.family = attention::at_layer(config.attention, layer, config.layer_count());
  member.shape = attention::shape_of(member.family, config.heads, config.kv_heads, config.head_dim);
  member.kernel = {member.shape.layout, config.attention_scale, config.layers[static_cast<size_t>(layer)].window,
                   config.attention_cap};
  member.layer = layer;
  member.positions = config.context;
  member.norm_eps = member.family.head_norm_eps > 0 ? member.family.head_norm_eps : config.norm_eps;
  if (member.family.positive == attention::PositiveMap::off_by_one)
    member.no_extra.assign(static_cast<size_t>(member.shape.outputs()), 0.0f);
  return member;
}

std::vector<attention::ExtraTensor> extra_tensors(const Config& config, int64_t layer) {
  const Member member = make_member(config, layer);
  return attention::extra_tensors(member.family, member.shape, config.width, config.context);
}

void member_heads(const Matrix& out, const Matrix& x, const ops::Linear& own, const ops::Linear& noise,
                  const LowRank* change, TypedBuffer* inner, MemberScratch& scratch) {
  const int64_t width = own.outputs();
  ops::linear_forward(out.col_range(0, width), x, own);
  if (present(noise)) ops::linear_forward(out.col_range(width, out.cols - width), x, noise);
  if (!present(change[0].down)) return;
  ops::copy_rows(out.col_range(width, width), out.col_range(0, width));
  const int64_t rank = change[0].down.outputs();
  const Matrix down = as_matrix(scratch.low_rank, x.rows, rank), up = as_matrix(scratch.written, x.rows, width);
  for (int map = 0; map < 2; ++map) {
    ops::linear_forward(down, x, change[map].down);
    const Matrix kept = (inner ? inner : scratch.inner)[map].get(x.type, x.rows, rank);
    ops::copy_rows(kept, down);
    ops::linear_forward(up, kept, change[map].up);
    ops::add_rows(out.col_range(map * width, width), up);
  }
}

void member_values(const Matrix& out, const Matrix& x, const Member& member, MemberScratch& scratch) {
  const int64_t d = member.shape.head_dim;
  const Matrix value = as_matrix(scratch.values, x.rows, member.shape.value_width);
  ops::linear_forward(value, x, member.weights.value);
  for (size_t block = 0; block < member.shape.value_order.size(); ++block) {
    ops::copy_rows(out.col_range(member.shape.value_order[block] * d, d),
                   value.col_range(static_cast<int64_t>(block) * d, d));
  }
}

void member_lambda(const Matrix& lambda, const Matrix& before_gain, const Matrix& x, const Member& member) {
  const MemberWeights& w = member.weights;
  const int64_t outputs = lambda.cols, numbers = lambda.rows * outputs;
  const auto fill = [&](auto value_of_head) {
    for (int64_t i = 0; i < numbers; ++i) lambda.f32()[i] = value_of_head(i % outputs);
  };
  const auto width = static_cast<size_t>(member.shape.head_dim);
  switch (member.family.lambda) {
    case LambdaRule::none:
      return;
    case LambdaRule::held:
      fill([&](int64_t) { return member.family.held_lambda; });
      break;
    case LambdaRule::depth: {
      const float value = std::exp(simd::dot(w.lambda_q1, w.lambda_k1, width)) -
                          std::exp(simd::dot(w.lambda_q2, w.lambda_k2, width)) +
                          static_cast<float>(attention::lambda_init(member.layer));
      fill([&](int64_t) { return value; });
      break;
    }
    case LambdaRule::token:
      ops::linear_forward(lambda, x, w.lambda_proj);
      for (int64_t i = 0; i < numbers; ++i) lambda.f32()[i] = sigmoid(lambda.f32()[i]);
      break;
    case LambdaRule::head:
      fill([&](int64_t h) { return sigmoid(w.lambda_logit[h]); });
      break;
  }
  if (w.lambda_gain == nullptr) return;
  ops::copy_rows(before_gain, lambda);
  for (int64_t i = 0; i < numbers; ++i) lambda.f32()[i] *= w.lambda_gain[i % outputs];
}

void member_scores(const Matrix& scores, const Matrix& content, const Member& member) {
  const int64_t rank = member.family.state_rank(), d = member.shape.head_dim, outputs = member.shape.outputs();
  constexpr auto kVector = static_cast<int64_t>(simd::kPrototypes);
  const int64_t padded = (rank + kVector - 1) / kVector * kVector;
  // Prototypes as columns, head by head.
  std::vector<float> columns(static_cast<size_t>(outputs * d * padded), 0.0f);
  for (int64_t row = 0; row < outputs * rank; ++row) {
    float* column = columns.data() + row / rank * d * padded + row % rank;
    for (int64_t e = 0; e < d; ++e) column[e * padded] = member.weights.prototypes[row * d + e];
  }
  // A few rows at a time for all heads, which lie side by side in them: memory is read in order.
  constexpr int64_t kRows = 8;
  parallel_ranges((scores.rows + kRows - 1) / kRows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kRows; first < std::min(end * kRows, scores.rows); first += kRows) {
      const auto n = static_cast<size_t>(std::min(kRows, scores.rows - first));
      for (int64_t o = 0; o < outputs; ++o) {
        const int64_t head = member.shape.layout.outputs[static_cast<size_t>(o)].k1;
        simd::prototype_scores(scores.f32(first) + o * rank, static_cast<size_t>(scores.stride),
                               content.f32(first) + head * d, static_cast<size_t>(content.stride),
                               columns.data() + o * d * padded, static_cast<size_t>(padded), static_cast<size_t>(d),
                               member.kernel.scale, n, static_cast<size_t>(rank));
      }
    }
  });
}

void member_shares(const Matrix& alpha, const Matrix& x, const Member& member) {
  const int64_t rank = member.family.state_rank(), outputs = member.shape.outputs();
  if (member.family.noise == attention::NoiseMap::fixed) {
    std::copy_n(member.weights.basis, outputs * rank, alpha.f32());
    return softmax_rows(alpha.f32(), outputs, rank);
  }
  ops::linear_forward(alpha, x, member.weights.alpha);
  parallel_ranges(alpha.rows, 64,
                  [&](int64_t begin, int64_t end) { softmax_rows(alpha.f32(begin), (end - begin) * outputs, rank); });
}

void apply_gates(const Matrix& out, const Matrix& x, const Matrix& gate) {
  parallel_ranges(out.rows, 32, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      out.type == DType::bf16 ? gate_row(out.bf16s(t), x.f32(t), gate.f32(t), gate.cols, out.cols)
                              : gate_row(out.f32(t), x.f32(t), gate.f32(t), gate.cols, out.cols);
    }
  });
}

void finish_member(const Matrix& mixed, FinishSaved& saved, const Matrix& output, const Matrix& x,
                   const Member& member) {
  const int64_t count = output.rows, outputs = member.shape.outputs(), width = member.shape.value_dim;
  const bool gated = present(member.weights.gate);
  Matrix from = output;
  if (member.family.head_norm) {
    const Matrix normed = gated ? as_matrix(saved.normed, count, output.cols) : mixed;
    Matrix heads = normed, whole = output;
    heads.rows = whole.rows = count * outputs;
    heads.cols = heads.stride = whole.cols = whole.stride = width;
    saved.head_rms.reserve(static_cast<size_t>(count * outputs));
    ops::rms_norm_forward(heads, {saved.head_rms.data()}, whole, member.head_norm_weight().data(), member.norm_eps);
    from = normed;
  }
  if (gated) {
    const Matrix gate = as_matrix(saved.gate, count, member.weights.gate.outputs());
    ops::linear_forward(gate, x, member.weights.gate);
    parallel_ranges(count * gate.cols, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) gate.f32()[i] = sigmoid(gate.f32()[i]);
    });
    apply_gates(mixed, from, gate);
  } else if (from.data != mixed.data) {
    ops::copy_rows(mixed, from);
  }
}

void finish_part(const Matrix& part, const FinishSaved& saved, const Member& member) {
  const int64_t outputs = member.shape.outputs(), width = member.shape.value_dim;
  if (member.family.head_norm) {
    const std::vector<float> weight = member.head_norm_weight();
    for (int64_t i = 0; i < part.rows * outputs; ++i) {
      float* head = part.f32(i / outputs) + i % outputs * width;
      simd::scaled_by(head, saved.head_rms[static_cast<size_t>(i)], weight.data(), head, static_cast<size_t>(width));
    }
  }
  if (present(member.weights.gate)) {
    const Matrix gate(const_cast<float*>(saved.gate.data()), part.rows, member.weights.gate.outputs());
    apply_gates(part, part, gate);
  }
}

void softmax_rows(float* y, int64_t rows, int64_t m) {
  for (int64_t i = 0; i < rows; ++i, y += m) {
    const float largest = *std::max_element(y, y + m);
    float sum = 0;
    for (int64_t j = 0; j < m; ++j) sum += y[j] = std::exp(y[j] - largest);
    for (int64_t j = 0; j < m; ++j) y[j] /= sum;
  }
}

}  // namespace unchain::model
