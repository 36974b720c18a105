// One layer of a model that learns: forward, which keeps what backward needs, and backward. Internal to trainable.cc.
//   n = norm(h);  h += W_O attention(n);  m = norm(h);  h += W_down (activation(W_gate m) ⊙ W_up m)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/member.h"
#include "model/trainable.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace unchain::model {

// A parameter as an operand: absent where the member has no such tensor.
struct Weight {
  Parameter* parameter = nullptr;

  explicit operator bool() const { return parameter != nullptr; }
  Matrix matrix() const;    // as products want it: rounded under bf16
  Matrix gradient() const;  // f32
  const float* value() const { return parameter ? parameter->value.data() : nullptr; }
  float* d_value() const { return parameter ? parameter->gradient.data() : nullptr; }
  ops::Linear linear() const { return parameter ? ops::Linear{matrix(), nullptr, {}} : ops::Linear{}; }
};

// What forward leaves to backward, of one layer. N rows in all.
struct LayerState {
  Buffer<float> input, middle;               // the residual stream before attention and feed-forward [N, D]
  Buffer<float> rms1, rms2;                  // inverse_rms of the norms [N]
  TypedBuffer x1, x2, mixed;                 // normalised inputs [N, D]; inputs of W_O [N, O·W]
  Buffer<float> query, content;              // [N, Q·E] rotated; keys before rotary [N, K·E] (prototypes)
  TypedBuffer key, value;                    // [N, K·E] rotated, [N, V·W]
  TypedBuffer query_inner[2], key_inner[2];  // of low-rank changes: x A [N, rank]
  Buffer<float> lambda, before_gain;         // λ, the same before the gain [N, O]
  Buffer<float> take, keep, alpha, states;   // of a state [N, O, R]; at chunk starts
  Buffer<float> log_sums, output;            // [2, N, O]; the kernels' output [N, O·W]
  FinishSaved finish;
  Buffer<float> feed_gate, feed_up;  // [N, F]
};

// Memory that layers share.
struct LayerScratch {
  Buffer<float> written, d_gated, d_x, d_mixed, d_output, d_query, key, d_value, d_low_rank;
  Buffer<float> d_lambda, d_alpha, d_scores, d_content, d_gate_logit;
  TypedBuffer gated, d_gate, d_up, rounded;
  MemberScratch member;
  attention::SignedWorkspace kernel;
  attention::StateWorkspace state;
  attention::AttentionWorkspace shown;  // of observed gradients
  ops::RmsNormWorkspace norm;
};

// Rows of a step and where they stand.
struct StepRows {
  int64_t sequences = 0, context = 0;
  const int32_t* starts = nullptr;

  int64_t count() const { return sequences * context; }
};

class TrainLayer {
 public:
  // `find` gives the parameter of a name behind "model.layers.I.".
  TrainLayer(const Config& config, int64_t layer, DType dtype,
             const std::function<Parameter*(const std::string&)>& find);

  // hidden[N, D] is changed in place. Error: numeric, with layer and row.
  void forward(const Matrix& hidden, LayerState& state, const StepRows& rows, const ops::RopeTable& rope,
               LayerScratch& scratch) const;
  // d_hidden[N, D]: the gradient behind the layer becomes the one before it. An observer needs f32 and one text.
  void backward(const Matrix& d_hidden, LayerState& state, const StepRows& rows, const ops::RopeTable& rope,
                LayerScratch& scratch, attention::GradientObserver* observer) const;
  // λ averaged over heads and rows; NaN without one.
  double mean_lambda(const LayerState& state, const StepRows& rows) const;

 private:
  // The tensors of `member_`, with their gradients.
  using Attention = AttentionTensors<Weight, Weight>;

  void norm(const Matrix& out, Buffer<float>& inverse_rms, const Matrix& x, const Weight& weight,
            const StepRows& rows) const;
  void linear_back(const Matrix& d_x, ops::Store store, const Matrix& d_y, const Matrix& x, const Weight& weight,
                   TypedBuffer& typed) const;
  // train_attention.cc
  void attend(const Matrix& x, LayerState& s, const StepRows& rows, const ops::RopeTable& rope,
              LayerScratch& scratch) const;
  void attend_backward(const Matrix& d_x, const Matrix& d_mixed, LayerState& s, const StepRows& rows,
                       const ops::RopeTable& rope, LayerScratch& scratch, attention::GradientObserver* observer) const;
  void show_gates(attention::GradientObserver& observer, const Matrix& d_mixed, LayerState& s) const;
  void make_state(const Matrix& x, LayerState& s, const attention::SignedInputs& in) const;
  void heads_backward(const Matrix& d_x, const Matrix& d_out, const Matrix& x, const Weight& weight,
                      const Weight& noise, const LowRankChange<Weight>* change, TypedBuffer* inner,
                      LayerScratch& scratch) const;
  void lambda_backward(const Matrix& d_x, const Matrix& x, LayerState& s, LayerScratch& scratch) const;
  void state_backward(const Matrix& d_x, const Matrix& x, LayerState& s, const Matrix& d_content,
                      LayerScratch& scratch) const;
  void finish_backward(const Matrix& d_x, const Matrix& d_mixed, const Matrix& x, LayerState& s,
                       LayerScratch& scratch) const;
  attention::SignedInputs inputs(LayerState& s, const StepRows& rows) const;
  attention::StateNoise noise_of(LayerState& s) const;

  const Config* config_;
  int64_t layer_;
  DType dtype_;
  Member member_;
  Weight attention_norm_, feed_forward_norm_, output_, gate_, up_, down_;
  Attention attention_;
};

}  // namespace unchain::model
