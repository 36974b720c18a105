// Each member of the family put together from the references, gradients of all its parameters against central
// differences: that the pieces fit, and what flows from where to where.
#include <gtest/gtest.h>

#include <numeric>

#include "ref/fixed_noise.h"
#include "ref/lambda_rules.h"
#include "ref/prototype_noise.h"
#include "ref/rms_norm.h"
#include "support/family_case.h"
#include "support/gradient_check.h"

namespace unchain::test {
namespace {

using Doubles = std::vector<double>;

constexpr int64_t kRows = 4, kWidth = 5;  // T and D
constexpr double kEps = 1e-5;

ref::FamilyShape shape(int64_t query_heads, int64_t key_heads, int64_t value_heads, int64_t e, int64_t w,
                       std::vector<ref::HeadPair> pairs) {
  return family_shape(kRows, query_heads, key_heads, value_heads, e, w, std::move(pairs));
}

double total(const Doubles& x) {
  return std::accumulate(x.begin(), x.end(), 0.0);
}

Doubles weights(int64_t rows, int64_t columns, uint64_t seed) {
  return random_doubles(static_cast<size_t>(rows * columns), seed, 0.7);
}

// λ by depth and a norm of heads: diff_v1 in both layouts, grouped_diff.
void check_depth_member(const ref::FamilyShape& s, const Doubles& norm_weight) {
  ref::SignedInputs in = signed_inputs(s, 1);
  const auto vector = [&](uint64_t seed) { return random_doubles(static_cast<size_t>(s.head_dim), seed, 0.3); };
  ref::DepthVectors depth{vector(11), vector(12), vector(13), vector(14)};
  Doubles weight = norm_weight;
  const size_t width = static_cast<size_t>(s.value_dim);
  const double init = ref::lambda_init(3);
  const auto attention = [&] {
    in.lambda.assign(s.row_size(), ref::depth_lambda(depth, init));
    return ref::signed_forward(s, in);
  };
  const Doubles up = random_doubles(s.out_size(), 9);
  const auto loss = [&] { return dot(ref::head_norm(attention().out, weight, width, kEps, init), up); };

  const auto saved = attention();
  const auto norm = ref::head_norm_backward(up, saved.out, weight, width, kEps, init);
  const auto g = ref::signed_backward(s, norm.d_x, saved, in);
  const auto d_depth = ref::depth_lambda_backward(total(g.d_lambda), depth);
  EXPECT_TRUE(gradient_agrees(g.d_q, in.q, loss));
  EXPECT_TRUE(gradient_agrees(g.d_k, in.k, loss));
  EXPECT_TRUE(gradient_agrees(g.d_v, in.v, loss));
  EXPECT_TRUE(gradient_agrees(d_depth.q1, depth.q1, loss));
  EXPECT_TRUE(gradient_agrees(d_depth.k1, depth.k1, loss));
  EXPECT_TRUE(gradient_agrees(d_depth.q2, depth.q2, loss));
  EXPECT_TRUE(gradient_agrees(d_depth.k2, depth.k2, loss));
  if (weight.empty()) return;
  EXPECT_TRUE(gradient_agrees(norm.d_weight, weight, loss));
}

TEST(MemberReference, DiffV1AndGroupedDiff) {
  check_depth_member(shape(4, 2, 1, 3, 6, ref::halves_layout(4, 2)), {});
  check_depth_member(shape(4, 4, 2, 2, 4, ref::neighbours_layout(4, 4)), random_doubles(4, 7));
  check_depth_member(shape(8, 3, 2, 3, 3, ref::grouped_layout(6, 2, 3)), {});
}

TEST(MemberReference, DiffV2) {
  const ref::FamilyShape s = shape(4, 1, 1, 3, 3, ref::shared_keys_layout(2, 1));
  ref::SignedInputs in = signed_inputs(s, 1);
  Doubles x = weights(kRows, kWidth, 5), w = weights(s.heads(), kWidth, 6);
  const auto attention = [&] {
    in.lambda = ref::sigmoid_project(x, w, kRows, s.heads(), kWidth);
    return ref::signed_forward(s, in);
  };
  const Doubles up = random_doubles(s.out_size(), 9);
  const auto saved = attention();
  const auto g = ref::signed_backward(s, up, saved, in);
  const auto rule = ref::sigmoid_project_backward(g.d_lambda, in.lambda, x, w, kRows, s.heads(), kWidth);
  const auto loss = [&] { return dot(attention().out, up); };
  EXPECT_TRUE(gradient_agrees(rule.d_x, x, loss));
  EXPECT_TRUE(gradient_agrees(rule.d_weight, w, loss));
  EXPECT_TRUE(gradient_agrees(g.d_q, in.q, loss));
}

// [T, first + second] side by side, and the two parts of such rows.
Doubles beside(const Doubles& a, const Doubles& b) {
  Doubles rows;
  const int64_t first = static_cast<int64_t>(a.size()) / kRows, second = static_cast<int64_t>(b.size()) / kRows;
  for (int64_t t = 0; t < kRows; ++t) {
    rows.insert(rows.end(), a.begin() + t * first, a.begin() + (t + 1) * first);
    rows.insert(rows.end(), b.begin() + t * second, b.begin() + (t + 1) * second);
  }
  return rows;
}

Doubles half_of(const Doubles& x, int64_t which) {
  const int64_t width = static_cast<int64_t>(x.size()) / kRows;
  Doubles rows;
  for (int64_t t = 0; t < kRows; ++t) {
    const auto begin = x.begin() + t * width + which * (width / 2);
    rows.insert(rows.end(), begin, begin + width / 2);
  }
  return rows;
}

TEST(MemberReference, SharedDiff) {
  // Two outputs of h = 4, one key head a map of g = 2; both maps from one W and an update of rank 2 each.
  const ref::FamilyShape s = shape(4, 2, 1, 3, 6, ref::halves_layout(4, 2));
  ref::SignedInputs in = signed_inputs(s, 1);
  Doubles x = weights(kRows, kWidth, 5);
  struct Shared {
    int64_t out;
    Doubles weight, down[2], up[2];
    ref::UpdatedWeight of(int i) const { return {weight, down[i], up[i]}; }
    Doubles rows(const Doubles& from) const {
      return beside(ref::updated_project(from, of(0), kRows, out, kWidth, 2),
                    ref::updated_project(from, of(1), kRows, out, kWidth, 2));
    }
  };
  const auto shared = [](int64_t out, uint64_t seed) {
    return Shared{out,
                  weights(out, kWidth, seed),
                  {weights(2, kWidth, seed + 1), weights(2, kWidth, seed + 2)},
                  {weights(out, 2, seed + 3), weights(out, 2, seed + 4)}};
  };
  Shared q = shared(2 * 3, 20), k = shared(1 * 3, 30);
  const auto attention = [&] {
    in.q = q.rows(x);
    in.k = k.rows(x);
    return ref::signed_forward(s, in);
  };
  const Doubles up = random_doubles(s.out_size(), 9);
  const auto loss = [&] { return dot(attention().out, up); };
  const auto saved = attention();
  const auto g = ref::signed_backward(s, up, saved, in);
  Doubles d_x(x.size());
  const auto check = [&](Shared& p, const Doubles& d_rows) {
    Doubles d_weight(p.weight.size());
    for (int i = 0; i < 2; ++i) {
      const auto part = ref::updated_project_backward(half_of(d_rows, i), x, p.of(i), kRows, p.out, kWidth, 2);
      for (size_t j = 0; j < d_x.size(); ++j) d_x[j] += part.d_x[j];
      for (size_t j = 0; j < d_weight.size(); ++j) d_weight[j] += part.d_weight[j];
      EXPECT_TRUE(gradient_agrees(part.d_down, p.down[i], loss));
      EXPECT_TRUE(gradient_agrees(part.d_up, p.up[i], loss));
    }
    EXPECT_TRUE(gradient_agrees(d_weight, p.weight, loss));
  };
  check(q, g.d_q);
  check(k, g.d_k);
  EXPECT_TRUE(gradient_agrees(d_x, x, loss));
}

TEST(MemberReference, LowrankDiff) {
  const ref::FamilyShape s = shape(4, 2, 2, 3, 2, ref::plain_layout(4, 2));
  ref::SignedInputs in = signed_inputs(s, 1);
  ref::PrototypeInputs noise = prototype_inputs(s, 3, 5);
  Doubles x = weights(kRows, kWidth, 5), w_lambda = weights(4, kWidth, 6), w_alpha = weights(4 * 3, kWidth, 7), lambda;
  const auto parts = [&] {
    noise.alpha = ref::softmax_project(x, w_alpha, kRows, 4, 3, kWidth);
    noise.v = in.v;
    lambda = ref::sigmoid_project(x, w_lambda, kRows, 4, kWidth);
    return std::pair{ref::signed_forward(s, in), ref::prototype_forward(s, noise)};
  };
  const Doubles up = random_doubles(s.out_size(), 9);
  const auto loss = [&] {
    const auto [positive, taken] = parts();
    return dot(ref::subtract_noise(positive.out, lambda, taken), up);
  };
  const auto [positive, taken] = parts();
  const auto g1 = ref::signed_backward(s, up, positive, in);
  const auto minus = ref::subtract_noise_backward(up, lambda, taken);
  const auto g2 = ref::prototype_backward(s, minus.d_noise, noise);
  const auto by_lambda = ref::sigmoid_project_backward(minus.d_lambda, lambda, x, w_lambda, kRows, 4, kWidth);
  const auto by_alpha = ref::softmax_project_backward(g2.d_alpha, noise.alpha, x, w_alpha, kRows, 4, 3, kWidth);
  Doubles d_v = g1.d_v, d_x = by_lambda.d_x;
  for (size_t i = 0; i < d_v.size(); ++i) d_v[i] += g2.d_v[i];
  for (size_t i = 0; i < d_x.size(); ++i) d_x[i] += by_alpha.d_x[i];
  EXPECT_TRUE(gradient_agrees(g1.d_q, in.q, loss));
  EXPECT_TRUE(gradient_agrees(d_v, in.v, loss));
  EXPECT_TRUE(gradient_agrees(d_x, x, loss));
  EXPECT_TRUE(gradient_agrees(g2.d_prototypes, noise.prototypes, loss));
  EXPECT_TRUE(gradient_agrees(g2.d_keys, noise.keys, loss));
  EXPECT_TRUE(gradient_agrees(by_lambda.d_weight, w_lambda, loss));
  EXPECT_TRUE(gradient_agrees(by_alpha.d_weight, w_alpha, loss));
}

TEST(MemberReference, FixedDiff) {
  const ref::FamilyShape s = shape(4, 2, 2, 3, 2, ref::plain_layout(4, 2));
  ref::SignedInputs in = signed_inputs(s, 1);
  ref::FixedInputs noise{{0.5, 0.9}, weights(4, 4, 5), {}};
  Doubles logits = weights(4, 1, 6), lambda;
  const auto parts = [&] {
    noise.v = in.v;
    lambda = ref::head_lambda(logits, kRows);
    return std::pair{ref::signed_forward(s, in), ref::fixed_forward(s, noise)};
  };
  const Doubles up = random_doubles(s.out_size(), 9);
  const auto loss = [&] {
    const auto [positive, taken] = parts();
    return dot(ref::subtract_noise(positive.out, lambda, taken), up);
  };
  const auto [positive, taken] = parts();
  const auto g1 = ref::signed_backward(s, up, positive, in);
  const auto minus = ref::subtract_noise_backward(up, lambda, taken);
  const auto g2 = ref::fixed_backward(s, minus.d_noise, noise);
  Doubles d_v = g1.d_v;
  for (size_t i = 0; i < d_v.size(); ++i) d_v[i] += g2.d_v[i];
  EXPECT_TRUE(gradient_agrees(d_v, in.v, loss));
  EXPECT_TRUE(gradient_agrees(g2.d_logits, noise.logits, loss));
  EXPECT_TRUE(gradient_agrees(ref::head_lambda_backward(minus.d_lambda, logits), logits, loss));
}

TEST(MemberReference, GatedWithASink) {
  // Both controls at once: an extra entry in the normaliser, then a gate on each output head, or on each number.
  const ref::FamilyShape s = shape(4, 2, 2, 3, 2, ref::plain_layout(4, 2));
  for (const int64_t gates : {s.heads(), s.heads() * s.value_dim}) {
    ref::SignedInputs in = signed_inputs(s, 1, true);
    Doubles x = weights(kRows, kWidth, 5), w = weights(gates, kWidth, 6);
    const auto gate = [&] { return ref::sigmoid_project(x, w, kRows, gates, kWidth); };
    const Doubles up = random_doubles(s.out_size(), 9);
    const auto loss = [&] { return dot(ref::apply_gate(ref::signed_forward(s, in).out, gate()), up); };
    const auto saved = ref::signed_forward(s, in);
    const auto outer = ref::apply_gate_backward(up, saved.out, gate());
    const auto rule = ref::sigmoid_project_backward(outer.d_gate, gate(), x, w, kRows, gates, kWidth);
    const auto g = ref::signed_backward(s, outer.d_o, saved, in);
    EXPECT_TRUE(gradient_agrees(g.d_extra, in.extra, loss));
    EXPECT_TRUE(gradient_agrees(g.d_k, in.k, loss));
    EXPECT_TRUE(gradient_agrees(rule.d_x, x, loss));
    EXPECT_TRUE(gradient_agrees(rule.d_weight, w, loss));
  }
}

}  // namespace
}  // namespace unchain::test
