// The references of noise maps that are no softmax of pairs: gradients against central differences, map form against
// recurrence, whole against continued.
#include <gtest/gtest.h>

#include "ref/calibrated_noise.h"
#include "ref/fixed_noise.h"
#include "ref/prototype_noise.h"
#include "ref/prototype_recurrence.h"
#include "support/family_case.h"
#include "support/gradient_check.h"

namespace unchain::test {
namespace {

using Doubles = std::vector<double>;

ref::FamilyShape shape(int64_t rows, int64_t first_row = 0, std::initializer_list<int64_t> documents = {}) {
  ref::FamilyShape s = family_layouts(rows, first_row, 2)[0].shape;  // the window of 2 must not matter
  if (documents.size() > 0) s.start = document_starts(rows, first_row, documents);
  return s;
}

double largest(const Doubles& x) {
  double result = 0;
  for (const double value : x) result = std::max(result, std::abs(value));
  return result;
}

// To 1e-12 of the largest expected number.
testing::AssertionResult same(const Doubles& actual, const Doubles& expected) {
  return close(actual, expected, 1e-12 * largest(expected));
}

ref::FixedInputs fixed_inputs(const ref::FamilyShape& s, uint64_t seed) {
  ref::FixedInputs in;
  in.decays = {0.5, 0.9, 0.99};
  in.logits = random_doubles(static_cast<size_t>(s.heads() * in.rank()), seed);
  in.v = random_doubles(s.v_size(), seed + 1);
  return in;
}

ref::CalibratedBasis calibrated_basis(const ref::FamilyShape& s, int64_t length, uint64_t seed) {
  ref::CalibratedBasis basis;
  basis.length = length;
  basis.rank = 2;
  basis.u = random_doubles(static_cast<size_t>(s.heads() * length * basis.rank), seed);
  basis.v = random_doubles(basis.u.size(), seed + 1);
  return basis;
}

// The rows [from, to) of a shape, at their own positions; inputs of rows are cut alike.
ref::FamilyShape part(const ref::FamilyShape& s, int64_t from, int64_t to) {
  ref::FamilyShape p = s;
  p.first_row = s.first_row + from;
  p.rows = to - from;
  if (!s.start.empty()) p.start.assign(s.start.begin() + from, s.start.begin() + to);
  return p;
}

Doubles cut(const Doubles& x, size_t rows, int64_t from, int64_t to) {
  const int64_t width = static_cast<int64_t>(x.size() / rows);
  return {x.begin() + from * width, x.begin() + to * width};
}

TEST(PrototypeReference, GradientsOfTheMapForm) {
  for (const auto& s : {shape(5), shape(4, 3), shape(7, 0, {2, 3}), shape(5, 2, {4})}) {
    ref::PrototypeInputs in = prototype_inputs(s, 3, 1);
    const Doubles up = random_doubles(s.out_size(), 9);
    const auto g = ref::prototype_backward(s, up, in);
    const auto loss = [&] { return dot(ref::prototype_forward(s, in), up); };
    EXPECT_TRUE(gradient_agrees(g.d_prototypes, in.prototypes, loss));
    EXPECT_TRUE(gradient_agrees(g.d_keys, in.keys, loss));
    EXPECT_TRUE(gradient_agrees(g.d_alpha, in.alpha, loss));
    EXPECT_TRUE(gradient_agrees(g.d_v, in.v, loss));
  }
}

TEST(PrototypeReference, GradientsOfTheRecurrence) {
  for (const auto& s : {shape(6), shape(7, 0, {2, 3})}) {
    ref::PrototypeInputs in = prototype_inputs(s, 2, 1);
    const Doubles up = random_doubles(s.out_size(), 9);
    const auto loss = [&] {
      ref::PrototypeState state(s, in.rank);
      return dot(ref::prototype_recurrence(s, in, state), up);
    };
    ref::PrototypeState state(s, in.rank);
    ref::PrototypeSteps steps;
    ref::prototype_recurrence(s, in, state, &steps);
    const auto g = ref::prototype_recurrence_backward(s, up, steps, in);
    EXPECT_TRUE(gradient_agrees(g.d_prototypes, in.prototypes, loss));
    EXPECT_TRUE(gradient_agrees(g.d_keys, in.keys, loss));
    EXPECT_TRUE(gradient_agrees(g.d_alpha, in.alpha, loss));
    EXPECT_TRUE(gradient_agrees(g.d_v, in.v, loss));
  }
}

// Both forms, forward and backward, and every output finite.
void expect_forms_agree(const ref::FamilyShape& s, const ref::PrototypeInputs& in) {
  ref::PrototypeState state(s, in.rank);
  ref::PrototypeSteps steps;
  EXPECT_TRUE(same(ref::prototype_recurrence(s, in, state, &steps), ref::prototype_forward(s, in)));
  const Doubles up = random_doubles(s.out_size(), 9);
  const auto map = ref::prototype_backward(s, up, in);
  const auto recurrent = ref::prototype_recurrence_backward(s, up, steps, in);
  // The gradient of a score is a difference, R · v − c, of T terms of size |d_noise| |v| W: where one key holds all the
  // weight it is 0, and what remains is their rounding.
  const double rounding = 4 * 0x1p-53 * static_cast<double>(s.rows * s.value_dim) * largest(up) * largest(in.v);
  EXPECT_TRUE(close(recurrent.d_prototypes, map.d_prototypes,
                    1e-12 * largest(map.d_prototypes) + rounding * s.scale * largest(in.keys)));
  EXPECT_TRUE(
      close(recurrent.d_keys, map.d_keys, 1e-12 * largest(map.d_keys) + rounding * s.scale * largest(in.prototypes)));
  EXPECT_TRUE(same(recurrent.d_alpha, map.d_alpha));
  EXPECT_TRUE(same(recurrent.d_v, map.d_v));
}

// Keys whose score under every prototype of a head is about ±size: prototypes keep one sign in the first entry.
ref::PrototypeInputs with_scores(const ref::FamilyShape& s, ref::PrototypeInputs in, double size) {
  for (size_t i = 0; i < in.prototypes.size(); ++i) {
    if (i % static_cast<size_t>(s.head_dim) == 0) in.prototypes[i] = 1;
  }
  for (int64_t j = 0; j < s.keys(); ++j) {
    for (int64_t g = 0; g < s.key_heads; ++g) in.keys[s.k_at(j, g, 0)] = (j % 2 ? size : -size) / s.scale;
  }
  return in;
}

TEST(PrototypeReference, BothFormsAgree) {
  for (const auto& s : {shape(1), shape(2), shape(40), shape(40, 0, {1, 17, 18, 39})}) {
    const ref::PrototypeInputs in = prototype_inputs(s, 4, 1);
    expect_forms_agree(s, in);
    expect_forms_agree(s, with_scores(s, in, 100));
  }
}

TEST(PrototypeReference, BothFormsAgreeAtOneHugeScore) {
  const ref::FamilyShape s = shape(30);
  for (const int64_t at : {0, 15, 28, 29}) {
    for (const double size : {-1000.0, 100.0, 1000.0}) {
      SCOPED_TRACE(testing::Message() << size << " at " << at);
      ref::PrototypeInputs in = with_scores(s, prototype_inputs(s, 4, 1), 1);
      for (int64_t g = 0; g < s.key_heads; ++g) in.keys[s.k_at(at, g, 0)] = size / s.scale;
      expect_forms_agree(s, in);
    }
  }
}

TEST(PrototypeReference, ARowOfItsOwnDocumentSeesNothingBefore) {
  // The huge score of the first document must not reach the second, nor a row whose start lies after it.
  ref::FamilyShape s = shape(8, 0, {4});
  s.start[6] = s.start[7] = 7;
  ref::PrototypeInputs in = prototype_inputs(s, 2, 1);
  for (int64_t g = 0; g < s.key_heads; ++g) in.keys[s.k_at(2, g, 0)] = 500;
  const Doubles out = ref::prototype_forward(s, in);
  for (int64_t o = 0; o < s.heads(); ++o) EXPECT_EQ(out[s.out_at(6, o, 0)], 0);
  for (int64_t o = 0; o < s.heads(); ++o) {
    EXPECT_NEAR(out[s.out_at(4, o, 0)], in.v[s.v_at(4, s.pair(o).v, 0)], 1e-15) << "a first row sees itself alone";
  }
  expect_forms_agree(s, in);
}

TEST(PrototypeReference, AContinuedRecurrenceIsTheWhole) {
  for (const auto& s : {shape(20), shape(20, 0, {6, 7, 13})}) {
    const ref::PrototypeInputs in = prototype_inputs(s, 3, 1);
    const Doubles whole = ref::prototype_forward(s, in);
    ref::PrototypeState state(s, in.rank);
    Doubles joined;
    for (const auto& [from, to] : {std::pair{0, 1}, {1, 7}, {7, 8}, {8, 20}}) {
      const ref::FamilyShape p = part(s, from, to);
      ref::PrototypeInputs rows = in;
      rows.alpha = cut(in.alpha, 20, from, to);
      rows.keys.resize(p.k_size());
      rows.v.resize(p.v_size());
      const Doubles out = ref::prototype_recurrence(p, rows, state);
      EXPECT_TRUE(same(out, ref::prototype_forward(p, rows))) << "the map form of later rows";
      joined.insert(joined.end(), out.begin(), out.end());
    }
    EXPECT_TRUE(same(joined, whole));
  }
}

TEST(FixedReference, RowsAreWhatTheySay) {
  const ref::FamilyShape s = [] {
    ref::FamilyShape one;
    one.rows = 3;
    one.pairs = ref::plain_layout(1, 1);
    return one;
  }();
  // A logit of 50 against 0 leaves 2e-22 for the other kinds.
  const std::vector<Doubles> last_rows{{1, 0, 0}, {1.0 / 3, 1.0 / 3, 1.0 / 3}, {1.0 / 7, 2.0 / 7, 4.0 / 7}};
  for (size_t m = 0; m < 3; ++m) {
    ref::FixedInputs in{{0.5}, Doubles(3), Doubles(3)};
    in.logits[m] = 50;
    EXPECT_TRUE(close(cut(ref::fixed_maps(s, in), 3, 2, 3), last_rows[m], 1e-15));
  }
}

TEST(FixedReference, GradientsAndForms) {
  for (const auto& s : {shape(1), shape(9), shape(12, 0, {1, 5, 11})}) {
    ref::FixedInputs in = fixed_inputs(s, 1);
    const Doubles up = random_doubles(s.out_size(), 9);
    const auto loss = [&] { return dot(ref::fixed_forward(s, in), up); };
    const auto g = ref::fixed_backward(s, up, in);
    if (s.rows > 1) {
      EXPECT_TRUE(gradient_agrees(g.d_logits, in.logits, loss));
    }
    EXPECT_TRUE(gradient_agrees(g.d_v, in.v, loss));
    Doubles state, means;
    EXPECT_TRUE(same(ref::fixed_recurrence(s, in, state, &means), ref::fixed_forward(s, in)));
    const auto recurrent = ref::fixed_recurrence_backward(s, up, means, in);
    EXPECT_TRUE(close(recurrent.d_logits, g.d_logits, 1e-12));
    EXPECT_TRUE(same(recurrent.d_v, g.d_v));
  }
}

TEST(FixedReference, LaterRowsAndContinuedRecurrence) {
  for (const auto& s : {shape(20), shape(20, 0, {6, 7, 13})}) {
    const ref::FixedInputs in = fixed_inputs(s, 1);
    Doubles state, joined;
    for (const auto& [from, to] : {std::pair{0, 1}, {1, 7}, {7, 20}}) {
      const ref::FamilyShape p = part(s, from, to);
      ref::FixedInputs rows = in;
      rows.v.resize(p.v_size());
      const Doubles out = ref::fixed_recurrence(p, rows, state);
      EXPECT_TRUE(same(out, ref::fixed_forward(p, rows)));
      joined.insert(joined.end(), out.begin(), out.end());
    }
    EXPECT_TRUE(same(joined, ref::fixed_forward(s, in)));
  }
}

TEST(CalibratedReference, GradientsAndForms) {
  for (const auto& s : {shape(1), shape(9), shape(12, 0, {1, 5, 11})}) {
    const ref::CalibratedBasis basis = calibrated_basis(s, 12, 1);
    Doubles v = random_doubles(s.v_size(), 3);
    const Doubles up = random_doubles(s.out_size(), 9);
    const Doubles d_v = ref::calibrated_backward(s, up, basis, v);
    EXPECT_TRUE(gradient_agrees(d_v, v, [&] { return dot(ref::mix(s, ref::calibrated_maps(s, basis), v), up); }));
    ref::CalibratedState state;
    EXPECT_TRUE(same(ref::calibrated_recurrence(s, basis, v, state), ref::mix(s, ref::calibrated_maps(s, basis), v)));
    EXPECT_TRUE(same(ref::calibrated_recurrence_backward(s, up, basis), d_v));
  }
}

TEST(CalibratedReference, RowsSumToOneDownToTheFloor) {
  ref::FamilyShape s;
  s.rows = 3;
  s.pairs = ref::plain_layout(1, 1);
  // Row sums of U Vᵀ: 2, 2·0.02 = 0.04 < 0.1, and −1.
  const ref::CalibratedBasis basis{3, 1, {2, 0.02, -0.5}, {1, 1, 0}};
  const Doubles maps = ref::calibrated_maps(s, basis);
  EXPECT_TRUE(close(maps, Doubles{1, 0, 0, 0.2, 0.2, 0, -5, -5, 0}, 1e-14));
}

}  // namespace
}  // namespace unchain::test
