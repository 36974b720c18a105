// Signed attention's reference: backward against central differences, and against the reference of one softmax map.
#include "ref/signed_attention.h"

#include <gtest/gtest.h>

#include "ref/attention.h"
#include "support/family_case.h"
#include "support/gradient_check.h"

namespace unchain::test {
namespace {

using Doubles = std::vector<double>;

void check_gradients(const ref::FamilyShape& s, ref::SignedInputs in) {
  const Doubles up = random_doubles(s.out_size(), 9);
  const auto g = ref::signed_backward(s, up, ref::signed_forward(s, in), in);
  const auto loss = [&] { return dot(ref::signed_forward(s, in).out, up); };
  EXPECT_TRUE(gradient_agrees(g.d_q, in.q, loss));
  EXPECT_TRUE(gradient_agrees(g.d_k, in.k, loss));
  EXPECT_TRUE(gradient_agrees(g.d_v, in.v, loss));
  if (s.pair(0).q2 >= 0) {
    EXPECT_TRUE(gradient_agrees(g.d_lambda, in.lambda, loss));
  }
  if (!in.extra.empty()) {
    EXPECT_TRUE(gradient_agrees(g.d_extra, in.extra, loss));
  }
}

TEST(SignedReference, GradientsOfEveryLayout) {
  for (const int64_t first_row : {0, 3}) {
    for (const int64_t window : {0, 2}) {
      for (const bool with_extra : {false, true}) {
        for (const FamilyCase& c : family_layouts(4, first_row, window)) {
          SCOPED_TRACE(testing::Message()
                       << c.name << ", first row " << first_row << ", window " << window << ", extra " << with_extra);
          check_gradients(c.shape, signed_inputs(c.shape, 1, with_extra));
        }
      }
    }
  }
}

TEST(SignedReference, GradientsOfPackedDocumentsAndOfRowsWithoutKeys) {
  for (FamilyCase& c : family_layouts(6, 2)) {
    SCOPED_TRACE(c.name);
    c.shape.start = document_starts(6, 2, {4, 7});
    check_gradients(c.shape, signed_inputs(c.shape, 1, true));
    c.shape.start[3] = 6;  // the row is at position 5
    check_gradients(c.shape, signed_inputs(c.shape, 1, true));
  }
}

TEST(SignedReference, OneMapIsThePlainReference) {
  ref::AttentionSizes plain;
  plain.rows = 5;
  plain.first_row = 2;
  plain.heads = 4;
  plain.kv_heads = 2;
  plain.head_dim = 3;
  plain.value_dim = 2;
  plain.window = 3;
  const FamilyCase c = family_layouts(5, 2, 3)[0];
  plain.scale = c.shape.scale;
  ref::SignedInputs in = signed_inputs(c.shape, 1);
  // [S, G, E] to [G, S, E].
  Doubles k(in.k.size()), v(in.v.size());
  for (int64_t g = 0; g < 2; ++g) {
    for (int64_t j = 0; j < 7; ++j) {
      for (int64_t e = 0; e < 3; ++e) k[plain.k_at(g, j, e)] = in.k[c.shape.k_at(j, g, e)];
      for (int64_t w = 0; w < 2; ++w) v[plain.v_at(g, j, w)] = in.v[c.shape.v_at(j, g, w)];
    }
  }
  const auto expected = ref::attention_forward(plain, in.q, k, v);
  const auto actual = ref::signed_forward(c.shape, in);
  EXPECT_TRUE(close(actual.out, expected.out, 1e-14));
  EXPECT_TRUE(close(actual.positive, expected.maps, 1e-14));
  const Doubles up = random_doubles(c.shape.out_size(), 9);
  EXPECT_TRUE(close(ref::signed_backward(c.shape, up, actual, in).d_q,
                    ref::attention_backward(plain, up, expected, in.q, k, v).d_q, 1e-14));
}

TEST(SignedReference, AnExtraEntryTakesItsShare) {
  // One query, two keys with scores ln 2 and ln 3: weights 2 and 3 beside e^s.
  ref::FamilyShape s;
  s.first_row = 1;
  s.pairs = ref::plain_layout(1, 1);
  const ref::SignedInputs in{{1}, {std::log(2.0), std::log(3.0)}, {1, 1}, {0}, {std::log(5.0)}};
  EXPECT_TRUE(close(ref::signed_forward(s, in).positive, Doubles{0.2, 0.3}, 1e-15));
  ref::SignedInputs off_by_one = in;
  off_by_one.extra = {0};
  EXPECT_TRUE(close(ref::signed_forward(s, off_by_one).positive, Doubles{2.0 / 6, 3.0 / 6}, 1e-15));
  // Scores far below the extra entry, and far above it: no overflow in either.
  off_by_one.k = {-1000, -2000};
  EXPECT_TRUE(close(ref::signed_forward(s, off_by_one).positive, Doubles{0, 0}, 0));
  off_by_one.k = {1000, 999};
  EXPECT_TRUE(close(ref::signed_forward(s, off_by_one).positive, Doubles{1 / (1 + std::exp(-1)), 1 / (1 + std::exp(1))},
                    1e-15));
}

}  // namespace
}  // namespace unchain::test
