#include "model/context.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"
#include "ops/embedding.h"
#include "ops/gated.h"
#include "ops/gemm.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rows.h"
#include "simd/kernels.h"

namespace unchain::model {
namespace {

// Rows of the feed-forward layer at a time: its wide activations then stay in the caches and memory does not grow with
// N.
constexpr int64_t kFeedForwardRows = 512;

}  // namespace

// The rows of one layer's step: all of them feed keys and values, only those from `first` on go further (in the last
// layer).
struct Context::Rows {
  Matrix hidden;         // [T, D], the residual stream
  int64_t position = 0;  // of row 0
  int64_t first = 0;     // first row that is wanted
};

Context::Context(std::shared_ptr<const Transformer> model, int64_t capacity)
    : model_(std::move(model)), capacity_(capacity) {
  if (capacity < 1 || capacity > (int64_t{1} << 28))
    fail(ErrorCode::usage, "context: {} positions, expected 1 to 2^28", capacity);
  const Config& c = model_->config;
  const int64_t bytes = byte_count(model_->dtype, {c.layer_count(), c.kv_heads, capacity, 2, c.head_dim});
  cache_ = allocate_large(static_cast<size_t>(bytes));
  ropes_.resize(c.ropes.size());
}

attention::HeadRows Context::cached(int64_t layer, Part part) {
  const Config& c = model_->config;
  const int64_t numbers = c.kv_heads * capacity_ * c.head_dim;
  std::byte* begin = cache_.get() + (2 * layer + (part == Part::values ? 1 : 0)) * numbers * info(model_->dtype).bytes;
  return {begin, model_->dtype, c.kv_heads, c.head_dim, capacity_ * c.head_dim, c.head_dim};
}

void Context::reserve(int64_t rows) {
  const Config& c = model_->config;
  const int64_t block = std::min(rows, kFeedForwardRows);
  hidden_.reserve(static_cast<size_t>(rows * c.width));
  query_.reserve(static_cast<size_t>(rows * c.heads * c.head_dim));
  key_value_.reserve(static_cast<size_t>(rows * 2 * c.kv_heads * c.head_dim));
  projected_.reserve(static_cast<size_t>(rows * c.width));
  gate_up_.reserve(static_cast<size_t>(block * 2 * c.feed_forward));
  reserve_activations(rows);
}

// The contents are lost if this must grow.
void Context::reserve_activations(int64_t rows) {
  const Config& c = model_->config;
  const int64_t block = std::min(rows, kFeedForwardRows);
  const auto count = [&](int64_t n) {
    return static_cast<size_t>(std::max({n * c.width, n * c.heads * c.head_dim, std::min(n, block) * c.feed_forward}));
  };
  // Even bf16 models take a few rows in f32, see ops::activation_type().
  const bool narrow = model_->dtype == DType::bf16;
  activation_f32_.reserve(count(narrow ? std::min<int64_t>(rows, simd::kMaxVectors) : rows));
  if (narrow) activation_bf16_.reserve(count(rows));
}

// Inputs of products: f32 or bf16 as the product wants them.
Matrix Context::activations(int64_t rows, int64_t cols) {
  return ops::activation_type(model_->dtype, rows) == DType::bf16 ? Matrix(activation_bf16_.data(), rows, cols)
                                                                  : Matrix(activation_f32_.data(), rows, cols);
}

void Context::norm(const Matrix& out, const Matrix& x, const Vector& weight, int64_t layer, int64_t first_position) {
  const int64_t bad = ops::rms_norm_forward(out, {}, x, weight.data(), model_->config.norm_eps);
  if (bad >= 0) {
    // The norm of the output reads what the last layer wrote.
    const int64_t place = std::min(layer, model_->config.layer_count() - 1);
    fail(ErrorCode::numeric,
         "layer {}, position {}: activations are not finite; try --dtype f32, or the weights are damaged", place,
         first_position + bad);
  }
}

void Context::prepare_queries(int64_t index, const Matrix& query, int64_t first_position) {
  const Config& c = model_->config;
  const Layer& layer = model_->layers[static_cast<size_t>(index)];
  const ops::RopeTable& rope = ropes_[c.layers[static_cast<size_t>(index)].rope];
  parallel_ranges(query.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (!layer.query_norm.empty()) {
        const Matrix heads(query.f32(t), c.heads, c.head_dim);
        ops::rms_norm_forward(heads, {}, heads, layer.query_norm.data(), c.norm_eps);
      }
      for (int64_t h = 0; h < c.heads; ++h) {
        float* head = query.f32(t) + h * c.head_dim;
        ops::rope_forward(head, head, rope, first_position + t, c.pairs);
      }
    }
  });
}

void Context::store_keys_and_values(int64_t index, const Matrix& key, const Matrix& value) {
  const Config& c = model_->config;
  const Layer& layer = model_->layers[static_cast<size_t>(index)];
  const ops::RopeTable& rope = ropes_[c.layers[static_cast<size_t>(index)].rope];
  const attention::HeadRows keys = cached(index, Part::keys), values = cached(index, Part::values);
  parallel_ranges(key.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (!layer.key_norm.empty()) {
        const Matrix heads(key.f32(t), c.kv_heads, c.head_dim);
        ops::rms_norm_forward(heads, {}, heads, layer.key_norm.data(), c.norm_eps);
      }
      for (int64_t g = 0; g < c.kv_heads; ++g) {
        float* k = key.f32(t) + g * c.head_dim;
        float* v = value.f32(t) + g * c.head_dim;
        ops::rope_forward(k, k, rope, position_ + t, c.pairs);
        ops::copy_rows(keys.rows(g, position_ + t, 1), Matrix(k, 1, c.head_dim));
        ops::copy_rows(values.rows(g, position_ + t, 1), Matrix(v, 1, c.head_dim));
      }
    }
  });
}

// ‖v_j W_O[h]‖₂ for every key j and head h, for observers that weigh mass by what it carries: the output projection of
// rows in which all heads but one are zero.
void Context::value_norms(int64_t index, int64_t keys) {
  const Config& c = model_->config;
  ops::Linear output = model_->layers[static_cast<size_t>(index)].output;
  output.bias = nullptr;
  const attention::HeadRows cache = cached(index, Part::values);
  value_norm_.reserve(static_cast<size_t>(c.heads * keys));
  reserve_activations(std::min(keys, kFeedForwardRows));
  Buffer<float> written(static_cast<size_t>(std::min(keys, kFeedForwardRows) * c.width));
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t first = 0; first < keys; first += kFeedForwardRows) {
      const int64_t count = std::min(kFeedForwardRows, keys - first);
      const Matrix alone = activations(count, c.heads * c.head_dim), product(written.data(), count, c.width);
      const Matrix values = cache.rows(h * c.kv_heads / c.heads, first, count);
      ops::fill_zero(alone);
      ops::copy_rows(alone.col_range(h * c.head_dim, c.head_dim), values);
      ops::linear_forward(product, alone, output);
      for (int64_t j = 0; j < count; ++j) {
        value_norm_[static_cast<size_t>(h * keys + first + j)] =
            std::sqrt(simd::sum_squares(product.f32(j), static_cast<size_t>(c.width)));
      }
    }
  }
}

// h += post_norm(W_O attention(...)).
void Context::attend(int64_t index, const Rows& step, const attention::Taps* taps) {
  const Config& c = model_->config;
  const Layer& layer = model_->layers[static_cast<size_t>(index)];
  const int64_t rows = step.hidden.rows, wanted = rows - step.first, kv_width = c.kv_heads * c.head_dim;
  // Pass 1: normalise, project, rotate, and put keys and values into the cache.
  const Matrix x = activations(rows, c.width);
  norm(x, step.hidden, layer.attention_norm, index, step.position);
  const Matrix query(query_.data(), wanted, c.heads * c.head_dim);
  const Matrix key(key_value_.data(), rows, kv_width), value(key_value_.data() + rows * kv_width, rows, kv_width);
  // Few wanted rows of many take f32 inputs, see ops::activation_type().
  Matrix wanted_x = x.row_range(step.first, wanted);
  Buffer<float> few;
  if (wanted_x.type != ops::activation_type(model_->dtype, wanted)) {
    few.reserve(static_cast<size_t>(wanted * c.width));
    const Matrix wide(few.data(), wanted, c.width);
    norm(wide, step.hidden.row_range(step.first, wanted), layer.attention_norm, index, step.position + step.first);
    wanted_x = wide;
  }
  if (step.first == 0) {
    ops::linear_forward(x, {{query, layer.query}, {key, layer.key}, {value, layer.value}});
  } else {
    ops::linear_forward(query, wanted_x, layer.query);
    ops::linear_forward(x, {{key, layer.key}, {value, layer.value}});
  }
  prepare_queries(index, query, step.position + step.first);
  store_keys_and_values(index, key, value);
  // Pass 2: attention, and its output projection.
  attention::SignedConfig config{attention::softmax_layout(c.heads, c.kv_heads), c.attention_scale,
                                 c.layers[static_cast<size_t>(index)].window, c.attention_cap};
  attention::TapContext tap{taps, static_cast<int>(index)};
  if (tap.active() && std::any_of(taps->observers.begin(), taps->observers.end(), [&](const attention::Observer* o) {
        return o->wants(static_cast<int>(index)) && o->wants_value_norm();
      })) {
    value_norms(index, step.position + rows);
    tap.value_norm = value_norm_.data();
    tap.value_norm_stride = step.position + rows;
  }
  const Matrix mixed = activations(wanted, c.heads * c.head_dim);
  attention::SignedInputs in;
  in.q = attention::HeadRows::side_by_side(query, c.heads);
  in.k = cached(index, Part::keys);
  in.v = cached(index, Part::values);
  in.rows = wanted;
  in.first_row = step.position + step.first;
  in.key_rows = capacity_;
  attention::attention_forward(mixed, in, config, attention_, tap);
  const Matrix projected(projected_.data(), wanted, c.width);
  ops::linear_forward(projected, mixed, layer.output);
  // Pass 3: into the residual stream.
  if (!layer.attention_post_norm.empty())
    norm(projected, projected, layer.attention_post_norm, index, step.position + step.first);
  parallel_ranges(wanted, 32, [&](int64_t begin, int64_t end) {
    simd::add(step.hidden.f32(step.first + begin), projected.f32(begin), static_cast<size_t>((end - begin) * c.width));
  });
}

// h += post_norm(W_down (activation(W_gate m) ⊙ W_up m)), in blocks of rows.
void Context::feed_forward(int64_t index, const Rows& step) {
  const Config& c = model_->config;
  const Layer& layer = model_->layers[static_cast<size_t>(index)];
  for (int64_t first = step.first; first < step.hidden.rows; first += kFeedForwardRows) {
    const int64_t rows = std::min(kFeedForwardRows, step.hidden.rows - first), position = step.position + first;
    const Matrix hidden = step.hidden.row_range(first, rows);
    const Matrix x = activations(rows, c.width);
    norm(x, hidden, layer.feed_forward_norm, index, position);
    const Matrix gate(gate_up_.data(), rows, c.feed_forward),
        up(gate_up_.data() + rows * c.feed_forward, rows, c.feed_forward);
    ops::linear_forward(x, {{gate, layer.gate}, {up, layer.up}});
    const Matrix gated = activations(rows, c.feed_forward);  // x is not needed any more
    ops::gated_forward(gated, gate, up, c.architecture->activation);
    const Matrix projected(projected_.data(), rows, c.width);
    ops::linear_forward(projected, gated, layer.down);
    if (!layer.feed_forward_post_norm.empty())
      norm(projected, projected, layer.feed_forward_post_norm, index, position);
    parallel_ranges(rows, 32, [&](int64_t begin, int64_t end) {
      simd::add(hidden.f32(begin), projected.f32(begin), static_cast<size_t>((end - begin) * c.width));
    });
  }
}

void Context::extend(std::span<const int32_t> ids, int64_t keep, const attention::Taps* taps) {
  const Config& c = model_->config;
  const auto rows = static_cast<int64_t>(ids.size());
  if (rows == 0) return;
  if (position_ + rows > capacity_)
    fail(ErrorCode::usage, "context: {} + {} tokens, room for {}", position_, rows, capacity_);
  if (keep < -1 || keep > rows) fail(ErrorCode::usage, "context: cannot keep {} of {} rows", keep, rows);
  for (int64_t t = 0; t < rows; ++t) {
    const int32_t id = ids[static_cast<size_t>(t)];
    if (id < 0 || id >= c.vocabulary) {
      fail(ErrorCode::usage, "token {} at position {} is outside the vocabulary of {} (0 to {})", id, position_ + t,
           c.vocabulary, c.vocabulary - 1);
    }
  }
  const int64_t kept = keep < 0 || taps != nullptr ? rows : keep;
  kept_ = 0;  // until this step is done: a tap may throw
  reserve(rows);
  for (size_t r = 0; r < ropes_.size(); ++r) {
    const int64_t needed = position_ + rows;
    if (ropes_[r].positions() < needed)
      ropes_[r].extend(std::min(capacity_, std::max(needed, 2 * ropes_[r].positions())),
                       c.ropes[r].frequencies(c.head_dim), 1.0);
  }
  Rows step{Matrix(hidden_.data(), rows, c.width), position_, 0};
  ops::embedding_forward(step.hidden, model_->embedding, ids, c.embedding_scale);
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    // After the last layer's keys and values only the kept rows matter.
    if (i == c.layer_count() - 1) step.first = rows - kept;
    attend(i, step, taps);
    if (step.first < rows) feed_forward(i, step);
  }
  position_ += rows;
  kept_ = kept;
  first_kept_ = rows - kept;
}

void Context::truncate(int64_t position) {
  if (position < 0 || position > position_)
    fail(ErrorCode::usage, "context: cannot go back to position {} of {}", position, position_);
  position_ = position;
  kept_ = 0;
}

// The output norm of kept rows, as inputs of the vocabulary product.
Matrix Context::normalised(int64_t first, int64_t count) {
  if (first < 0 || count < 0 || first + count > kept_)
    fail(ErrorCode::usage, "context: rows {} to {} of {} kept ones", first, first + count, kept_);
  const Config& c = model_->config;
  const int64_t row = first_kept_ + first;
  const Matrix x = activations(count, c.width);
  norm(x, Matrix(hidden_.data() + row * c.width, count, c.width), model_->output_norm, c.layer_count(),
       position_ - kept_ + first);
  return x;
}

void Context::logits(const Matrix& logits, int64_t first, int64_t count) {
  const Matrix x = normalised(first, count);
  ops::linear_forward(logits, x, model_->head);
  for (int64_t t = 0; t < count; ++t) ops::soft_cap(logits.f32(t), model_->config.logit_cap, logits.cols);
}

void Context::nll(std::span<double> nll, std::span<const int32_t> targets) {
  const Matrix x = normalised(0, static_cast<int64_t>(targets.size()));
  ops::cross_entropy_forward(nll, cross_entropy_, x, model_->head, targets, model_->config.logit_cap);
}

}  // namespace unchain::model
