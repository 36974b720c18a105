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
  int64_t numbers = 0;
  states_.resize(model_->layers.size());
  for (size_t i = 0; i < model_->layers.size(); ++i) {
    const Member& member = model_->layers[i].attention;
    cache_offset_.push_back(numbers);
    numbers += capacity * (member.shape.layout.key_heads * c.head_dim + member.shape.value_width);
    if (!member.family.has_state()) continue;
    const int64_t rank = member.family.state_rank(), outputs = member.shape.outputs();
    const bool learned = member.family.noise == attention::NoiseMap::prototypes;
    states_[i].log_sums.reserve(static_cast<size_t>(learned ? outputs * rank : 0));
    states_[i].means.reserve(static_cast<size_t>(outputs * rank * member.shape.value_dim));
  }
  cache_bytes_ = numbers * info(model_->dtype).bytes;
  cache_ = allocate_large(static_cast<size_t>(cache_bytes_));
  ropes_.resize(c.ropes.size());
}

int64_t Context::state_bytes() const {
  size_t bytes = 0;
  for (const StateMemory& memory : states_)
    bytes += memory.means.size() * sizeof(float) + memory.log_sums.size() * sizeof(double);
  return static_cast<int64_t>(bytes);
}

attention::HeadRows Context::cached(int64_t layer, Part part) {
  const attention::AttentionShape& shape = model_->layers[static_cast<size_t>(layer)].attention.shape;
  const int64_t keys = shape.layout.key_heads * capacity_ * shape.head_dim;
  const bool is_keys = part == Part::keys;
  const int64_t width = is_keys ? shape.head_dim : shape.value_dim;
  std::byte* begin =
      cache_.get() + (cache_offset_[static_cast<size_t>(layer)] + (is_keys ? 0 : keys)) * info(model_->dtype).bytes;
  return {begin, model_->dtype,     is_keys ? shape.layout.key_heads : shape.layout.value_heads,
          width, capacity_ * width, width};
}

void Context::reserve(int64_t rows) {
  const Config& c = model_->config;
  const int64_t block = std::min(rows, kFeedForwardRows);
  const auto numbers = [rows](int64_t width) { return static_cast<size_t>(rows * width); };
  hidden_.reserve(numbers(c.width));
  projected_.reserve(numbers(c.width));
  gate_up_.reserve(static_cast<size_t>(block * 2 * c.feed_forward));
  for (const Layer& layer : model_->layers) {
    const attention::AttentionShape& shape = layer.attention.shape;
    query_.reserve(numbers(shape.layout.query_heads * c.head_dim));
    key_.reserve(numbers(shape.layout.key_heads * c.head_dim));
    value_.reserve(numbers(shape.value_width));
    lambda_.reserve(numbers(shape.outputs()));
    if (!layer.attention.is_plain()) output_.reserve(numbers(shape.output_width()));
  }
  reserve_activations(rows);
}

// The contents are lost if this must grow.
void Context::reserve_activations(int64_t rows) {
  const Config& c = model_->config;
  const int64_t block = std::min(rows, kFeedForwardRows);
  int64_t widest = c.width;
  for (const Layer& layer : model_->layers) widest = std::max(widest, layer.attention.shape.output_width());
  const auto count = [&](int64_t n) {
    return static_cast<size_t>(std::max(n * widest, std::min(n, block) * c.feed_forward));
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

// The norm of each head, where the model has one, then rotary position; heads lie side by side in rows. `content` (or
// without data): a copy of them between the two.
void Context::rotate(int64_t index, const Matrix& heads, const Vector& head_norm, int64_t first_position,
                     const Matrix& content) {
  const Config& c = model_->config;
  const ops::RopeTable& rope = ropes_[c.layers[static_cast<size_t>(index)].rope];
  parallel_ranges(heads.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const Matrix row(heads.f32(t), heads.cols / c.head_dim, c.head_dim);
      if (!head_norm.empty()) ops::rms_norm_forward(row, {}, row, head_norm.data(), c.norm_eps);
      if (content.data) std::copy_n(heads.f32(t), heads.cols, content.f32(t));
      for (int64_t h = 0; h < row.rows; ++h)
        ops::rope_forward(row.f32(h), row.f32(h), rope, first_position + t, c.pairs);
    }
  });
}

// Into the cache, keys rotated. `content` (or without data): the keys as rotate() leaves them there.
void Context::store_keys_and_values(int64_t index, const Matrix& key, const Matrix& value, const Matrix& content) {
  const Layer& layer = model_->layers[static_cast<size_t>(index)];
  const attention::AttentionShape& shape = layer.attention.shape;
  const attention::HeadRows keys = cached(index, Part::keys), values = cached(index, Part::values);
  const int64_t d = shape.head_dim, blocks_a_head = shape.value_dim / d;
  // One parallel step for all of it: what is called here finds itself inside and runs on the calling thread.
  parallel_ranges(key.rows, 8, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin, position = position_ + begin;
    const Matrix own = key.row_range(begin, count), own_values = value.row_range(begin, count);
    rotate(index, own, layer.key_norm, position, content.data ? content.row_range(begin, count) : content);
    for (int64_t h = 0; h < keys.heads; ++h) ops::copy_rows(keys.rows(h, position, count), own.col_range(h * d, d));
    for (size_t block = 0; block < shape.value_order.size(); ++block) {
      const int64_t slot = shape.value_order[block];
      const Matrix to = values.rows(slot / blocks_a_head, position, count);
      ops::copy_rows(to.col_range(slot % blocks_a_head * d, d),
                     own_values.col_range(static_cast<int64_t>(block) * d, d));
    }
  });
}

// ‖v_j W_O[h]‖₂ for every key j and head h, for observers that weigh mass by what it carries: the output projection of
// rows in which all heads but one are zero.
void Context::value_norms(int64_t index, int64_t keys) {
  const Config& c = model_->config;
  const attention::AttentionShape& shape = model_->layers[static_cast<size_t>(index)].attention.shape;
  ops::Linear output = model_->layers[static_cast<size_t>(index)].output;
  output.bias = nullptr;
  const attention::HeadRows cache = cached(index, Part::values);
  value_norm_.reserve(static_cast<size_t>(shape.outputs() * keys));
  TypedBuffer rows_of_one;
  Buffer<float> written(static_cast<size_t>(std::min(keys, kFeedForwardRows) * c.width));
  for (int64_t h = 0; h < shape.outputs(); ++h) {
    for (int64_t first = 0; first < keys; first += kFeedForwardRows) {
      const int64_t count = std::min(kFeedForwardRows, keys - first);
      const Matrix alone = rows_of_one.get(ops::activation_type(model_->dtype, count), count, shape.output_width()),
                   product(written.data(), count, c.width);
      const Matrix values = cache.rows(shape.layout.outputs[static_cast<size_t>(h)].v, first, count);
      ops::fill_zero(alone);
      ops::copy_rows(alone.col_range(h * shape.value_dim, shape.value_dim), values);
      ops::linear_forward(product, alone, output);
      for (int64_t j = 0; j < count; ++j) {
        value_norm_[static_cast<size_t>(h * keys + first + j)] =
            std::sqrt(simd::sum_squares(product.f32(j), static_cast<size_t>(c.width)));
      }
    }
  }
}

// What the terms of attention, tap.positive and tap.noise, write to x: the factors of head norm, gates and post norm at
// each row are those of their sum, which became `mixed`.
void Context::show_residual(int64_t index, const Matrix& x, const Matrix& mixed, int64_t position,
                            const attention::TapContext& tap) {
  if (!tap.positive.data) return attention::show_residual(x, nullptr, nullptr, position, tap);
  const Layer& layer = model_->layers[static_cast<size_t>(index)];
  std::vector<float> post_norm(layer.attention_post_norm.empty() ? 0 : static_cast<size_t>(x.rows));
  if (!post_norm.empty()) {
    const Matrix whole(projected_.data(), x.rows, x.cols);
    ops::linear_forward(whole, mixed, layer.output);
    ops::rms_norm_forward(whole, {post_norm.data()}, whole, layer.attention_post_norm.data(), model_->config.norm_eps);
  }
  ops::Linear output = layer.output;
  output.bias = nullptr;
  TypedBuffer rounded;
  const int64_t numbers = x.rows * x.cols;
  writes_.reserve(static_cast<size_t>(2 * numbers));
  float* next = writes_.data();
  const auto write = [&](const Matrix& part) {
    finish_part(part, finish_, layer.attention);
    const Matrix operand = rounded.get(mixed.type, part.rows, part.cols), to(next, x.rows, x.cols);
    ops::copy_rows(operand, part);
    ops::linear_forward(to, operand, output);
    for (size_t t = 0; t < post_norm.size(); ++t) {
      float* row = to.f32(static_cast<int64_t>(t));
      simd::scaled_by(row, post_norm[t], layer.attention_post_norm.data(), row, static_cast<size_t>(x.cols));
    }
    next += numbers;
    return to.f32();
  };
  const float* positive = write(tap.positive);
  const float* noise = tap.noise.data ? write(tap.noise) : nullptr;
  attention::show_residual(x, positive, noise, position, tap);
}

// Queries of rows first …, keys and values of all rows of the step, the last two into the cache.
void Context::project(int64_t index, const Rows& step, const Matrix& x, const Matrix& wanted_x, const Matrix& query,
                      int64_t first) {
  const Layer& layer = model_->layers[static_cast<size_t>(index)];
  const Member& member = layer.attention;
  const MemberWeights& w = member.weights;
  const int64_t rows = step.hidden.rows, d = member.shape.head_dim;
  const Matrix key(key_.data(), rows, member.shape.layout.key_heads * d);
  const Matrix value(value_.data(), rows, member.shape.value_width);
  const bool simple = !present(w.noise_query) && !present(w.query_change[0].down);
  if (simple && first == 0) {
    ops::linear_forward(x, {{query, w.query}, {key, w.key}, {value, w.value}});
  } else {
    member_heads(query, wanted_x, w.query, w.noise_query, w.query_change, nullptr, member_);
    if (simple) {
      ops::linear_forward(x, {{key, w.key}, {value, w.value}});
    } else {
      member_heads(key, x, w.key, w.noise_key, w.key_change, nullptr, member_);
      ops::linear_forward(value, x, w.value);
    }
  }
  rotate(index, query, layer.query_norm, step.position + first, {});
  Matrix content;
  if (w.prototypes) {
    content_.reserve(static_cast<size_t>(rows * key.cols));
    content = Matrix(content_.data(), rows, key.cols);
  }
  store_keys_and_values(index, key, value, content);
}

// Gates of the positions in.first_row …, and L behind them; `content`: their keys before rotary, of prototypes.
void Context::form_gates(const Member& member, const attention::StateNoise& noise, double* log_sums,
                         const Matrix& content, const attention::SignedInputs& in) {
  const int64_t outputs = member.shape.outputs();
  if (member.family.calibrated) {
    attention::calibrated_gates(noise.take, noise.keep, noise.alpha, member.calibrated_map(), in, outputs);
  } else if (member.family.has_own_gates()) {
    member_scores(Matrix(noise.take.data, in.rows, outputs * noise.rank), content, member);
    attention::prototype_gates(noise.take, noise.keep, noise.take, log_sums, in, outputs, noise.rank);
  } else {
    attention::fixed_gates(noise.take, noise.keep, member.family.decays, in);
  }
}

// The state of the positions before this step once more, from the cache, whose keys are turned back to before rotary;
// where it still stands behind them, their gates alone, for maps. With all_gates they stay in `noise`, else each block
// of rows takes the place of the one before.
void Context::read_again(int64_t index, const attention::StateNoise& noise, bool all_gates) {
  const Config& c = model_->config;
  const Member& member = model_->layers[static_cast<size_t>(index)].attention;
  const int64_t outputs = member.shape.outputs(), width = member.shape.output_width(), d = member.shape.head_dim;
  StateMemory& memory = states_[static_cast<size_t>(index)];
  const bool lost = memory.position != position_;
  const attention::HeadRows keys = cached(index, Part::keys);
  const int64_t block = std::min(position_, kFeedForwardRows);
  Buffer<float> content(static_cast<size_t>(member.weights.prototypes ? block * keys.heads * d : 0)),
      shares(static_cast<size_t>(block * outputs * noise.rank)), nowhere(static_cast<size_t>(lost ? block * width : 0));
  const std::vector<float> no_lambda(static_cast<size_t>(block * outputs));
  std::vector<double> log_sums(memory.log_sums.size());
  std::fill_n(shares.data(), shares.size(), 0.0f);
  std::fill_n(nowhere.data(), nowhere.size(), 0.0f);
  if (lost) std::fill_n(memory.means.data(), memory.means.size(), 0.0f);
  attention::SignedInputs in;
  in.v = cached(index, Part::values);
  in.key_rows = capacity_;
  in.lambda = no_lambda.data();
  for (int64_t first = 0; first < position_; first += block) {
    const int64_t rows = std::min(block, position_ - first);
    in.first_row = first;
    in.rows = rows;
    const Matrix unrotated(content.data(), rows, keys.heads * d);
    for (int64_t h = 0; member.weights.prototypes && h < keys.heads; ++h) {
      const Matrix head = unrotated.col_range(h * d, d);
      ops::copy_rows(head, keys.rows(h, first, rows));
      const ops::RopeTable& rope = ropes_[c.layers[static_cast<size_t>(index)].rope];
      for (int64_t t = 0; t < rows; ++t) ops::rope_backward(head.f32(t), head.f32(t), rope, first + t, c.pairs);
    }
    attention::StateNoise here = noise.gates_from(all_gates ? first : 0);
    here.alpha = {shares.data(), outputs * noise.rank, noise.rank};
    form_gates(member, here, log_sums.data(), unrotated, in);
    if (!lost) continue;
    const auto out = attention::HeadRows::side_by_side(Matrix(nowhere.data(), rows, width), outputs);
    attention::state_noise_forward(out, memory.means.data(), nullptr, here, in, member.shape.layout, attention_.state);
  }
  if (lost) std::copy(log_sums.begin(), log_sums.end(), memory.log_sums.data());
}

// The state of a layer's noise in front of this step, and gates and shares of its rows, whose inputs are x; all_gates:
// of all positions before them too, which maps take.
attention::StateCall Context::state(int64_t index, const Matrix& x, bool all_gates) {
  const Member& member = model_->layers[static_cast<size_t>(index)].attention;
  StateMemory& memory = states_[static_cast<size_t>(index)];
  const int64_t rank = member.family.state_rank(), outputs = member.shape.outputs(), rows = x.rows;
  const bool own = member.family.has_own_gates(), lost = position_ > 0 && memory.position != position_;
  const int64_t row_stride = own ? outputs * rank : rank, head_stride = own ? rank : 0;
  const int64_t before = all_gates ? position_ : 0;  // rows of gates in front of this step's
  const auto gates =
      static_cast<size_t>(std::max(before + rows, lost ? std::min(position_, kFeedForwardRows) : 0) * row_stride);
  take_.reserve(gates);
  keep_.reserve(gates);
  alpha_.reserve(static_cast<size_t>((own ? rows : 1) * outputs * rank));
  attention::StateCall call;
  call.noise = {rank,
                {take_.data(), row_stride, head_stride},
                {keep_.data(), row_stride, head_stride},
                {alpha_.data(), own ? outputs * rank : 0, rank}};
  call.gates_first = position_ - before;
  call.states = memory.means.data();
  if (position_ == 0) std::fill_n(memory.means.data(), memory.means.size(), 0.0f);
  if (lost || before > 0) read_again(index, call.noise, all_gates);
  // Where the state stands once the means have followed; if a tap throws before, the next step does not begin there.
  memory.position = position_ + rows;
  attention::SignedInputs in;
  in.rows = rows;
  in.first_row = position_;
  const int64_t key_width = member.shape.layout.key_heads * member.shape.head_dim;
  form_gates(member, call.noise.gates_from(before), memory.log_sums.data(), Matrix(content_.data(), rows, key_width),
             in);
  if (!member.family.calibrated)
    member_shares(Matrix(alpha_.data(), own ? rows : outputs, own ? outputs * rank : rank), x, member);
  return call;
}

// h += post_norm(W_O attention(...)).
void Context::attend(int64_t index, const Rows& step, const attention::Taps* taps) {
  const Config& c = model_->config;
  const Layer& layer = model_->layers[static_cast<size_t>(index)];
  const Member& member = layer.attention;
  const int64_t rows = step.hidden.rows, wanted = rows - step.first, outputs = member.shape.outputs();
  // A state must see every row; else only the wanted ones need queries.
  const int64_t first = member.family.has_state() ? 0 : step.first, attended = rows - first;
  // Pass 1: normalise, project, rotate, and put keys and values into the cache.
  const Matrix x = activations(rows, c.width);
  norm(x, step.hidden, layer.attention_norm, index, step.position);
  const Matrix query(query_.data(), attended, member.shape.layout.query_heads * c.head_dim);
  // Few wanted rows of many take f32 inputs, see ops::activation_type().
  Matrix wanted_x = x.row_range(first, attended);
  if (wanted_x.type != ops::activation_type(model_->dtype, attended)) {
    few_.reserve(static_cast<size_t>(attended * c.width));
    const Matrix wide(few_.data(), attended, c.width);
    norm(wide, step.hidden.row_range(first, attended), layer.attention_norm, index, step.position + first);
    wanted_x = wide;
  }
  project(index, step, x, wanted_x, query, first);
  // Pass 2: attention, and its output projection.
  attention::SignedInputs in;
  in.q = attention::HeadRows::side_by_side(query, member.shape.layout.query_heads);
  in.k = cached(index, Part::keys);
  in.v = cached(index, Part::values);
  in.rows = attended;
  in.first_row = step.position + first;
  in.key_rows = capacity_;
  in.extra = member.extra();
  if (member.family.lambda != attention::LambdaRule::none) {
    const Matrix lambda(lambda_.data(), attended, outputs);
    before_gain_.reserve(static_cast<size_t>(attended * outputs));
    member_lambda(lambda, Matrix(before_gain_.data(), attended, outputs), wanted_x, member);
    in.lambda = lambda_.data();
  }
  attention::TapContext tap{taps, static_cast<int>(index)};
  attention::StateCall state_call;
  if (member.family.has_state()) state_call = state(index, wanted_x, tap.active());
  const auto observers_want = [&](bool (attention::Observer::*what)() const) {
    return tap.active() && std::any_of(taps->observers.begin(), taps->observers.end(), [&](const auto* observer) {
             return observer->wants(tap.layer) && (observer->*what)();
           });
  };
  if (observers_want(&attention::Observer::wants_value_norm)) {
    value_norms(index, step.position + rows);
    tap.value_norm = value_norm_.data();
    tap.value_norm_stride = step.position + rows;
  }
  if (observers_want(&attention::Observer::wants_writes)) {
    const int64_t width = member.shape.output_width(), numbers = attended * width;
    parts_.reserve(static_cast<size_t>(2 * numbers));
    tap.positive = Matrix(parts_.data(), attended, width);
    if (in.lambda) tap.noise = Matrix(parts_.data() + numbers, attended, width);
  }
  const attention::StateCall* state_of = member.family.has_state() ? &state_call : nullptr;
  const Matrix mixed = activations(attended, member.shape.output_width());
  if (member.is_plain()) {
    attention::attention_forward(mixed, in, member.kernel, attention_, tap);
  } else {
    const Matrix output(output_.data(), attended, member.shape.output_width());
    attention::attention_forward(output, in, member.kernel, attention_, tap, state_of);
    finish_member(mixed, finish_, output, wanted_x, member);
  }
  show_residual(index, step.hidden.row_range(first, attended), mixed, in.first_row, tap);
  attention::show_outputs(mixed, outputs, in.first_row, tap);
  // Pass 3: into the residual stream.
  write(step.hidden.row_range(step.first, wanted), mixed.row_range(attended - wanted, wanted), layer.output,
        layer.attention_post_norm, index, step.position + step.first);
}

// hidden += post_norm(x Wᵀ).
void Context::write(const Matrix& hidden, const Matrix& x, const ops::Linear& linear, const Vector& post_norm,
                    int64_t index, int64_t position) {
  if (post_norm.empty() && linear.is_packed() && linear.bias == nullptr && x.type == linear.type() &&
      x.rows > static_cast<int64_t>(simd::kMaxVectors)) {
    return ops::gemm(hidden, x, linear.packed, ops::Store::accumulate);
  }
  const Matrix projected(projected_.data(), x.rows, hidden.cols);
  ops::linear_forward(projected, x, linear);
  if (!post_norm.empty()) norm(projected, projected, post_norm, index, position);
  ops::add_rows(hidden, projected);
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
    write(hidden, gated, layer.down, layer.feed_forward_post_norm, index, position);
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
  const int64_t kept = keep < 0 ? rows : keep;
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
    // After the last layer's keys and values only the kept rows matter, but taps see all.
    if (i == c.layer_count() - 1 && taps == nullptr) step.first = rows - kept;
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
  const Matrix kept = hidden(first, count);
  const Config& c = model_->config;
  const Matrix x = activations(count, c.width);
  norm(x, kept, model_->output_norm, c.layer_count(), position_ - kept_ + first);
  return x;
}

Matrix Context::hidden(int64_t first, int64_t count) {
  if (first < 0 || count < 0 || first + count > kept_)
    fail(ErrorCode::usage, "context: rows {} to {} of {} kept ones", first, first + count, kept_);
  const int64_t width = model_->config.width;
  return {hidden_.data() + (first_kept_ + first) * width, count, width};
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
