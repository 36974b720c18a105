// The references' hand-derived backward passes against central differences in double.
#include <gtest/gtest.h>

#include "ref/attention.h"
#include "ref/rms_norm.h"
#include "ref/softmax.h"
#include "support/gradient_check.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

using Doubles = std::vector<double>;

TEST(ReferenceBackward, Softmax) {
  const Doubles x = random_doubles(3 * 7, 1), up = random_doubles(3 * 7, 2);
  const Doubles analytic = ref::softmax_backward(up, ref::softmax(x, 3, 7), 3, 7);
  EXPECT_TRUE(
      gradients_agree(analytic, differences(x, [&](const Doubles& at) { return dot(ref::softmax(at, 3, 7), up); })));
}

TEST(ReferenceBackward, RmsNorm) {
  const Doubles x = random_doubles(3 * 5, 1), w = random_doubles(5, 2), up = random_doubles(3 * 5, 3);
  for (const Doubles& weight : {w, Doubles{}}) {
    const auto analytic = ref::rms_norm_backward(up, x, weight, 3, 5, 1e-2);
    const auto by_x = [&](const Doubles& at) { return dot(ref::rms_norm(at, weight, 3, 5, 1e-2), up); };
    EXPECT_TRUE(gradients_agree(analytic.d_x, differences(x, by_x)));
    if (weight.empty()) continue;
    const auto by_weight = [&](const Doubles& at) { return dot(ref::rms_norm(x, at, 3, 5, 1e-2), up); };
    EXPECT_TRUE(gradients_agree(analytic.d_weight, differences(weight, by_weight)));
  }
}

TEST(ReferenceBackward, Attention) {
  // rows, first_row, heads, kv_heads, head_dim, value_dim, scale, window, soft_cap
  const ref::AttentionSizes grid[] = {
      {5, 0, 1, 1, 3, 3, 0.6, 0, 0}, {4, 3, 2, 2, 3, 2, 0.5, 0, 0}, {6, 0, 4, 2, 2, 5, 0.7, 0, 0},
      {6, 2, 2, 1, 3, 3, 0.6, 3, 0}, {5, 1, 2, 1, 3, 2, 0.9, 0, 2}, {7, 0, 6, 3, 2, 3, 0.8, 2, 1.5},
  };
  for (const ref::AttentionSizes& s : grid) {
    SCOPED_TRACE(testing::Message() << s.rows << " rows at " << s.first_row << ", " << s.heads << "/" << s.kv_heads
                                    << " heads, window " << s.window << ", cap " << s.soft_cap);
    const auto count = [](int64_t n) { return static_cast<size_t>(n); };
    const Doubles q = random_doubles(count(s.rows * s.heads * s.head_dim), 1);
    const Doubles k = random_doubles(count(s.kv_heads * s.keys() * s.head_dim), 2);
    const Doubles v = random_doubles(count(s.kv_heads * s.keys() * s.value_dim), 3);
    const Doubles up = random_doubles(count(s.rows * s.heads * s.value_dim), 4);
    const auto g = ref::attention_backward(s, up, ref::attention_forward(s, q, k, v), q, k, v);
    const auto loss = [&](const Doubles& a, const Doubles& b, const Doubles& c) {
      return dot(ref::attention_forward(s, a, b, c).out, up);
    };
    EXPECT_TRUE(gradients_agree(g.d_q, differences(q, [&](const Doubles& at) { return loss(at, k, v); })));
    EXPECT_TRUE(gradients_agree(g.d_k, differences(k, [&](const Doubles& at) { return loss(q, at, v); })));
    EXPECT_TRUE(gradients_agree(g.d_v, differences(v, [&](const Doubles& at) { return loss(q, k, at); })));
  }
}

}  // namespace
}  // namespace unchain::test
