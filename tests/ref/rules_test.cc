// λ rules, projections and gates in double: values at known points, backward against central differences.
#include <gtest/gtest.h>

#include "ref/lambda_rules.h"
#include "ref/matmul.h"
#include "ref/projection.h"
#include "support/gradient_check.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

using Doubles = std::vector<double>;

TEST(LambdaReference, ScheduleCountsLayersFromOne) {
  EXPECT_DOUBLE_EQ(ref::lambda_init(1), 0.2);
  EXPECT_NEAR(ref::lambda_init(2), 0.8 - 0.6 * 0.7408182206817179, 1e-15);
  EXPECT_NEAR(ref::lambda_init(100), 0.8, 1e-12);
}

TEST(LambdaReference, Depth) {
  ref::DepthVectors v{random_doubles(5, 1, 0.5), random_doubles(5, 2, 0.5), random_doubles(5, 3, 0.5),
                      random_doubles(5, 4, 0.5)};
  EXPECT_DOUBLE_EQ(ref::depth_lambda({{0}, {0}, {0}, {0}}, 0.35), 0.35);
  EXPECT_DOUBLE_EQ(ref::depth_lambda({{1}, {2}, {0}, {0}}, 0.35), std::exp(2.0) - 1 + 0.35);
  const auto g = ref::depth_lambda_backward(1.7, v);
  const auto loss = [&] { return 1.7 * ref::depth_lambda(v, 0.3); };
  EXPECT_TRUE(gradient_agrees(g.q1, v.q1, loss));
  EXPECT_TRUE(gradient_agrees(g.k1, v.k1, loss));
  EXPECT_TRUE(gradient_agrees(g.q2, v.q2, loss));
  EXPECT_TRUE(gradient_agrees(g.k2, v.k2, loss));
}

TEST(LambdaReference, Head) {
  Doubles logits = random_doubles(3, 1);
  const Doubles up = random_doubles(4 * 3, 2);
  EXPECT_EQ(ref::head_lambda({0, 0}, 2), Doubles(4, 0.5));
  EXPECT_TRUE(gradient_agrees(ref::head_lambda_backward(up, logits), logits,
                              [&] { return dot(ref::head_lambda(logits, 4), up); }));
}

TEST(ProjectionReference, LinearSigmoidAndSoftmax) {
  constexpr int64_t kRows = 3, kOut = 6, kIn = 4;
  Doubles x = random_doubles(kRows * kIn, 1), w = random_doubles(kOut * kIn, 2);
  const Doubles up = random_doubles(kRows * kOut, 3);

  const auto linear = ref::project_backward(up, x, w, kRows, kOut, kIn);
  const auto linear_loss = [&] { return dot(ref::project(x, w, kRows, kOut, kIn), up); };
  EXPECT_TRUE(gradient_agrees(linear.d_x, x, linear_loss));
  EXPECT_TRUE(gradient_agrees(linear.d_weight, w, linear_loss));

  const Doubles y = ref::sigmoid_project(x, w, kRows, kOut, kIn);
  const auto sigmoid = ref::sigmoid_project_backward(up, y, x, w, kRows, kOut, kIn);
  const auto sigmoid_loss = [&] { return dot(ref::sigmoid_project(x, w, kRows, kOut, kIn), up); };
  EXPECT_TRUE(gradient_agrees(sigmoid.d_x, x, sigmoid_loss));
  EXPECT_TRUE(gradient_agrees(sigmoid.d_weight, w, sigmoid_loss));

  // Two heads of three.
  const Doubles alpha = ref::softmax_project(x, w, kRows, 2, 3, kIn);
  for (size_t i = 0; i < alpha.size(); i += 3) EXPECT_NEAR(alpha[i] + alpha[i + 1] + alpha[i + 2], 1, 1e-15);
  const auto softmax = ref::softmax_project_backward(up, alpha, x, w, kRows, 2, 3, kIn);
  const auto softmax_loss = [&] { return dot(ref::softmax_project(x, w, kRows, 2, 3, kIn), up); };
  EXPECT_TRUE(gradient_agrees(softmax.d_x, x, softmax_loss));
  EXPECT_TRUE(gradient_agrees(softmax.d_weight, w, softmax_loss));
}

TEST(ProjectionReference, BaseWithLowRankUpdate) {
  constexpr int64_t kRows = 3, kOut = 5, kIn = 4, kRank = 2;
  Doubles x = random_doubles(kRows * kIn, 1);
  ref::UpdatedWeight w{random_doubles(kOut * kIn, 2), random_doubles(kRank * kIn, 3), random_doubles(kOut * kRank, 4)};
  // The same as one layer with weight W + up · down.
  Doubles merged = w.weight;
  const Doubles update = ref::matmul(w.up, w.down, kOut, kIn, kRank, false);
  for (size_t i = 0; i < merged.size(); ++i) merged[i] += update[i];
  EXPECT_TRUE(
      close(ref::updated_project(x, w, kRows, kOut, kIn, kRank), ref::project(x, merged, kRows, kOut, kIn), 1e-14));

  const Doubles up = random_doubles(kRows * kOut, 5);
  const auto g = ref::updated_project_backward(up, x, w, kRows, kOut, kIn, kRank);
  const auto loss = [&] { return dot(ref::updated_project(x, w, kRows, kOut, kIn, kRank), up); };
  EXPECT_TRUE(gradient_agrees(g.d_x, x, loss));
  EXPECT_TRUE(gradient_agrees(g.d_weight, w.weight, loss));
  EXPECT_TRUE(gradient_agrees(g.d_down, w.down, loss));
  EXPECT_TRUE(gradient_agrees(g.d_up, w.up, loss));
}

TEST(GateReference, OneAHeadAndOneAnEntry) {
  Doubles o = random_doubles(2 * 3 * 4, 1);
  const Doubles up = random_doubles(o.size(), 2);
  for (const size_t gates : {o.size() / 4, o.size()}) {
    Doubles gate = random_doubles(gates, 3);
    const auto g = ref::apply_gate_backward(up, o, gate);
    const auto loss = [&] { return dot(ref::apply_gate(o, gate), up); };
    EXPECT_TRUE(gradient_agrees(g.d_o, o, loss));
    EXPECT_TRUE(gradient_agrees(g.d_gate, gate, loss));
  }
  EXPECT_EQ(ref::apply_gate({1, 2, 3, 4}, {2, -1}), (Doubles{2, 4, -3, -4}));
}

TEST(SubtractReference, NoiseTimesLambda) {
  Doubles positive = random_doubles(2 * 3 * 4, 1), noise = random_doubles(2 * 3 * 4, 2), lambda = random_doubles(6, 3);
  const Doubles up = random_doubles(positive.size(), 4);
  const auto g = ref::subtract_noise_backward(up, lambda, noise);
  const auto loss = [&] { return dot(ref::subtract_noise(positive, lambda, noise), up); };
  EXPECT_TRUE(gradient_agrees(up, positive, loss));
  EXPECT_TRUE(gradient_agrees(g.d_lambda, lambda, loss));
  EXPECT_TRUE(gradient_agrees(g.d_noise, noise, loss));
  EXPECT_EQ(ref::subtract_noise({1, 2, 3, 4}, {2, -1}, {1, 1, 1, 1}), (Doubles{-1, 0, 4, 5}));
}

}  // namespace
}  // namespace unchain::test
