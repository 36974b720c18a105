// One sequence that a model reads: its keys and values so far, and the memory for the next step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "attention/maps.h"
#include "model/transformer.h"
#include "ops/cross_entropy.h"
#include "tensor/tensor.h"

namespace unchain::model {

// Not thread-safe; several contexts may share a model. All of a context's memory is got when it is made or when a
// longer step than ever before is taken; steps of known length allocate nothing.
class Context {
 public:
  // Room for `capacity` positions. Errors: usage (capacity < 1); io (no memory).
  Context(std::shared_ptr<const Transformer> model, int64_t capacity);

  const Transformer& model() const { return *model_; }
  int64_t position() const { return position_; }  // tokens read so far
  int64_t capacity() const { return capacity_; }

  // Reads tokens at positions position() …; the last `keep` of them (default all) can be asked for logits and hidden
  // states afterwards. With taps, observers and editors see every layer, and all rows of the last one are computed too.
  // Errors: usage (id outside the vocabulary, more tokens than capacity, keep out of range); numeric (NaN or infinity,
  // with layer and position); whatever a tap throws.
  void extend(std::span<const int32_t> ids, int64_t keep = -1, const attention::Taps* taps = nullptr);

  // Forgets all positions from `position` on; reading goes on from there as if they had never been. Noise that is a
  // state cannot go back: the next step forms it again from the cache, in memory that it gives back, and in bf16 from
  // keys that are rounded. Error: usage (position below 0 or above position()).
  void truncate(int64_t position);

  // Bytes that the context holds of the tokens read: of keys and values, which grow with the capacity, and of noise
  // that is a state, which do not.
  int64_t cache_bytes() const { return cache_bytes_; }
  int64_t state_bytes() const;

  // Of the kept rows of the last extend(): row 0 is the first of them.
  int64_t kept() const { return kept_; }
  // logits[count, V] of rows first … first + count − 1.
  void logits(const Matrix& logits, int64_t first, int64_t count);
  // nll[i] (nats) of targets[i] as the token after kept row i; a target of −1 gives 0.
  void nll(std::span<double> nll, std::span<const int32_t> targets);
  // The residual stream behind the last layer, before the output norm: [count, D] of rows first … first + count − 1.
  // Valid until the next step.
  Matrix hidden(int64_t first, int64_t count);

 private:
  struct Rows;
  // All that noise which is a state keeps of the tokens before `position`.
  struct StateMemory {
    Buffer<float> means;      // [O, R, W]
    Buffer<double> log_sums;  // [O, R], of prototypes
    int64_t position = 0;
  };
  void reserve(int64_t rows);
  void reserve_activations(int64_t rows);
  void attend(int64_t index, const Rows& step, const attention::Taps* taps);
  void feed_forward(int64_t index, const Rows& step);
  void write(const Matrix& hidden, const Matrix& x, const ops::Linear& linear, const Vector& post_norm, int64_t index,
             int64_t position);
  void project(int64_t index, const Rows& step, const Matrix& x, const Matrix& wanted_x, const Matrix& query,
               int64_t first);
  void store_keys_and_values(int64_t index, const Matrix& key, const Matrix& value, const Matrix& content);
  void rotate(int64_t index, const Matrix& heads, const Vector& head_norm, int64_t first_position,
              const Matrix& content);
  attention::StateCall state(int64_t index, const Matrix& x, bool all_gates);
  void form_gates(const Member& member, const attention::StateNoise& noise, double* log_sums, const Matrix& content,
                  const attention::SignedInputs& in);
  void read_again(int64_t index, const attention::StateNoise& noise, bool all_gates);
  void value_norms(int64_t index, int64_t keys);
  void show_residual(int64_t index, const Matrix& x, const Matrix& mixed, int64_t position,
                     const attention::TapContext& tap);
  void norm(const Matrix& out, const Matrix& x, const Vector& weight, int64_t layer, int64_t first_position);
  enum class Part { keys, values };
  attention::HeadRows cached(int64_t layer, Part part);  // head-major: [heads, capacity, width]
  Matrix activations(int64_t rows, int64_t cols);
  Matrix normalised(int64_t first, int64_t count);

  std::shared_ptr<const Transformer> model_;
  int64_t capacity_ = 0, position_ = 0, cache_bytes_ = 0;
  int64_t kept_ = 0, first_kept_ = 0;  // rows of hidden_ that logits may be asked of
  std::shared_ptr<std::byte> cache_;   // keys and values of all layers
  std::vector<int64_t> cache_offset_;  // of each layer's keys, then values behind them, in numbers
  std::vector<StateMemory> states_;    // of layers whose noise is a state
  std::vector<ops::RopeTable> ropes_;
  Buffer<float> hidden_, query_, key_, value_, content_, projected_, gate_up_, value_norm_, parts_, writes_;
  Buffer<float> lambda_, before_gain_, take_, keep_, alpha_, output_, few_;
  MemberScratch member_;
  FinishSaved finish_;
  Buffer<float> activation_f32_;
  Buffer<bf16> activation_bf16_;
  attention::AttentionWorkspace attention_;
  ops::CrossEntropyWorkspace cross_entropy_;
};

}  // namespace unchain::model
