// What a member of the attention family does around the kernels, forward: heads from inputs, λ, the state's gates and
// shares, head norm and gates. Decoding (context.cc) and training (train_attention.cc) share it. Formulas: docs/math.
#pragma once

#include <vector>

#include "attention/attention.h"
#include "attention/family.h"
#include "model/config.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace unchain::model {

// The buffer as rows[rows, cols]; it grows, and the contents are lost when it does.
Matrix as_matrix(Buffer<float>& buffer, int64_t rows, int64_t cols);

// f32 or bf16 numbers, as products of the model want them.
struct TypedBuffer {
  Buffer<float> wide;
  Buffer<bf16> narrow;

  Matrix get(DType type, int64_t rows, int64_t cols);  // grows; the contents are lost when it does
};

// x W + (x A) B of one of two maps, whose W they share.
template <class Product>
struct LowRankChange {
  Product down, up;
};

// The tensors of a layer's attention beside W_O, as operands of products and as numbers; those that a member lacks are
// empty. In a file their names stand behind "self_attn.".
template <class Product, class Numbers>
struct AttentionTensors {
  Product query, key, value, noise_query, noise_key, lambda_proj, alpha, gate;
  LowRankChange<Product> query_change[2], key_change[2];
  Numbers lambda_q1{}, lambda_k1{}, lambda_q2{}, lambda_k2{};  // [E]
  Numbers lambda_logit{}, lambda_gain{}, sinks{};              // [O]
  Numbers head_norm{}, prototypes{}, basis{};                  // [W], [O, R, E], [O, R]
  Numbers basis_u{}, basis_v{};                                // [O, positions, R]

  // visit(name, tensor) for each of them.
  template <class Tensors, class Visit>
  static void for_each(Tensors& t, const Visit& visit) {
    visit("q_proj.weight", t.query);
    visit("k_proj.weight", t.key);
    visit("v_proj.weight", t.value);
    visit("noise_q_proj.weight", t.noise_query);
    visit("noise_k_proj.weight", t.noise_key);
    visit("lambda_proj.weight", t.lambda_proj);
    visit("alpha_proj.weight", t.alpha);
    visit("gate_proj.weight", t.gate);
    visit("q_down1.weight", t.query_change[0].down);
    visit("q_up1.weight", t.query_change[0].up);
    visit("q_down2.weight", t.query_change[1].down);
    visit("q_up2.weight", t.query_change[1].up);
    visit("k_down1.weight", t.key_change[0].down);
    visit("k_up1.weight", t.key_change[0].up);
    visit("k_down2.weight", t.key_change[1].down);
    visit("k_up2.weight", t.key_change[1].up);
    visit("lambda_q1", t.lambda_q1);
    visit("lambda_k1", t.lambda_k1);
    visit("lambda_q2", t.lambda_q2);
    visit("lambda_k2", t.lambda_k2);
    visit("lambda_logit", t.lambda_logit);
    visit("lambda_gain", t.lambda_gain);
    visit("sinks", t.sinks);
    visit("groupnorm.weight", t.head_norm);
    visit("prototypes", t.prototypes);
    visit("basis_logits", t.basis);
    visit("basis_u", t.basis_u);
    visit("basis_v", t.basis_v);
  }
};
using LowRank = LowRankChange<ops::Linear>;
using MemberWeights = AttentionTensors<ops::Linear, const float*>;

inline bool present(const ops::Linear& linear) {
  return linear.is_packed() || linear.weight.data != nullptr;
}

// One layer's attention. Immutable after it is made.
struct Member {
  attention::AttentionConfig family;
  attention::AttentionShape shape;
  attention::SignedConfig kernel;
  MemberWeights weights;
  int64_t layer = 0;
  int64_t positions = 0;        // rows of a calibrated map
  float norm_eps = 1e-5f;       // of the head norm
  std::vector<float> no_extra;  // off_by_one's log weight: 0 for each output

  // Whether the kernel's output goes to W_O as it is.
  bool is_plain() const { return !family.has_state() && !family.head_norm && !present(weights.gate); }
  const float* extra() const { return weights.sinks ? weights.sinks : (no_extra.empty() ? nullptr : no_extra.data()); }
  attention::CalibratedMap calibrated_map() const {
    return {weights.basis_u, weights.basis_v, positions, family.state_rank()};
  }
  // (1 − λ_init) and the norm's own weight [W].
  std::vector<float> head_norm_weight() const;
};

// The description of a layer without its weights. Errors: as shape_of().
Member make_member(const Config& config, int64_t layer);
// The tensors that the layer has beside q_proj, k_proj, v_proj and o_proj.
std::vector<attention::ExtraTensor> extra_tensors(const Config& config, int64_t layer);

struct MemberScratch {
  Buffer<float> low_rank, written, values;
  TypedBuffer inner[2];
};

// out[T, heads·E] = x W, the heads of the noise behind; with low-rank changes both halves are x W + (x A) B of their
// own, and x A stays in inner[map] (nullptr: in the scratch).
void member_heads(const Matrix& out, const Matrix& x, const ops::Linear& own, const ops::Linear& noise,
                  const LowRank* change, TypedBuffer* inner, MemberScratch& scratch);

// out[T, V·W] = x W_V with the blocks of heads in the order of the layout; out is of the type of products.
void member_values(const Matrix& out, const Matrix& x, const Member& member, MemberScratch& scratch);

// lambda[T, O]; before_gain[T, O] too where there is a gain.
void member_lambda(const Matrix& lambda, const Matrix& before_gain, const Matrix& x, const Member& member);

// scores[T, O·R] = scale · prototypes · content keys [T, K·E] (after their norm, before rotary).
void member_scores(const Matrix& scores, const Matrix& content, const Member& member);
// alpha[T, O·R] of prototypes, or [O, R] of fixed rows (x does not count): softmax over the R means.
void member_shares(const Matrix& alpha, const Matrix& x, const Member& member);

// out[T, O·W] = γ x, f32 or bf16, from x[T, O·W] f32 (may be out) and gate[T, O], or [T, O·W]: one for each number.
void apply_gates(const Matrix& out, const Matrix& x, const Matrix& gate);

// What finish_member() leaves to backward; buffers grow.
struct FinishSaved {
  Buffer<float> head_rms, normed, gate;  // [T·O]; [T, O·W]; [T, O] or [T, O·W]
};
// mixed[T, O·W], inputs of W_O, from the kernels' output[T, O·W] f32: head norm, gates (from x), rounding.
void finish_member(const Matrix& mixed, FinishSaved& saved, const Matrix& output, const Matrix& x,
                   const Member& member);

// part[T, O·W] f32, one of the terms whose sum was `output`, × the factors that finish_member() left for that sum.
void finish_part(const Matrix& part, const FinishSaved& saved, const Member& member);

// Softmax of each of `rows` rows of m numbers in place.
void softmax_rows(float* y, int64_t rows, int64_t m);

}  // namespace unchain::model
