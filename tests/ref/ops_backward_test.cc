// The backward passes of the operations' references against central differences in double.
#include <gtest/gtest.h>

#include "ref/cross_entropy.h"
#include "ref/embedding.h"
#include "ref/gated.h"
#include "ref/linear.h"
#include "ref/rope.h"
#include "support/gradient_check.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

using Doubles = std::vector<double>;

TEST(ReferenceBackward, Linear) {
  constexpr size_t kRows = 4, kIn = 3, kOut = 5;
  const Doubles x = random_doubles(kRows * kIn, 1), w = random_doubles(kOut * kIn, 2), b = random_doubles(kOut, 3),
                up = random_doubles(kRows * kOut, 4);
  const auto g = ref::linear_backward(up, x, w, kRows, kIn, kOut);
  const auto loss = [&](const Doubles& a, const Doubles& m, const Doubles& c) {
    return dot(ref::linear(a, m, c, kRows, kIn), up);
  };
  EXPECT_TRUE(gradients_agree(g.d_x, differences(x, [&](const Doubles& at) { return loss(at, w, b); })));
  EXPECT_TRUE(gradients_agree(g.d_weight, differences(w, [&](const Doubles& at) { return loss(x, at, b); })));
  EXPECT_TRUE(gradients_agree(g.d_bias, differences(b, [&](const Doubles& at) { return loss(x, w, at); })));
}

TEST(ReferenceBackward, Rope) {
  const Doubles x = random_doubles(10, 1), up = random_doubles(10, 2);
  for (const bool neighbours : {false, true}) {
    EXPECT_TRUE(gradients_agree(ref::rope_backward(up, 7, 100, neighbours), differences(x, [&](const Doubles& at) {
                                  return dot(ref::rope(at, 7, 100, neighbours), up);
                                })));
  }
}

TEST(ReferenceBackward, GatedActivations) {
  const Doubles x = random_doubles(40, 1, 2);
  Doubles silu, gelu;
  for (const double v : x) {
    silu.push_back(ref::silu_slope(v));
    gelu.push_back(ref::gelu_tanh_slope(v));
  }
  const auto sum = [](const Doubles& at, double (*f)(double)) {
    double total = 0;
    for (const double v : at) total += f(v);
    return total;
  };
  EXPECT_TRUE(gradients_agree(silu, differences(x, [&](const Doubles& at) { return sum(at, ref::silu); })));
  EXPECT_TRUE(gradients_agree(gelu, differences(x, [&](const Doubles& at) { return sum(at, ref::gelu_tanh); })));
}

TEST(ReferenceBackward, CrossEntropy) {
  for (const double cap : {0.0, 2.0}) {
    const ref::CrossEntropyCase c{4, 3, 6, cap, {2, -1, 0, 5}, {0.5, 7, 1.5, 0.25}};
    const Doubles hidden = random_doubles(c.rows * c.width, 1), head = random_doubles(c.vocabulary * c.width, 2),
                  bias = random_doubles(c.vocabulary, 3);
    const auto g = ref::cross_entropy_backward(c, hidden, head, bias);
    EXPECT_TRUE(gradients_agree(
        g.d_hidden, differences(hidden, [&](const Doubles& at) { return ref::weighted_nll(c, at, head, bias); })));
    EXPECT_TRUE(gradients_agree(
        g.d_head, differences(head, [&](const Doubles& at) { return ref::weighted_nll(c, hidden, at, bias); })));
    EXPECT_TRUE(gradients_agree(
        g.d_bias, differences(bias, [&](const Doubles& at) { return ref::weighted_nll(c, hidden, head, at); })));
  }
}

TEST(ReferenceBackward, Embedding) {
  const Doubles table = random_doubles(5 * 3, 1), up = random_doubles(4 * 3, 2);
  const std::vector<int32_t> ids = {4, 0, 4, 2};
  EXPECT_TRUE(gradients_agree(ref::embedding_backward(up, ids, 5, 3, 1.5), differences(table, [&](const Doubles& at) {
                                return dot(ref::embedding(at, ids, 3, 1.5), up);
                              })));
}

}  // namespace
}  // namespace unchain::test
