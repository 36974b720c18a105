// Forward and backward of signed softmax maps, every layout, against whole maps in double.
// ε = 2⁻²⁴, ε₈ = 2⁻⁸. With unit scale and scores bounded by X = max Σ|q k|:
//   a weight is off by a factor 1 + w, w = 2(E + 3)εX + 8e-7 + (S/8 + 5)ε, as derived in support/attention_case.h;
//   dP, a sum of W products bounded by Y = max Σ|dO v|, by p = (W + 3)εY; bf16 rounds P, dO and dS: ε₈ each, so w and p
//   grow by 2ε₈ and 2ε₈Y;
//   dS = A(dP − ΣA dP) by A·(2p + 4wY); sums over S keys or T rows add (S + 3)ε of their terms.
// An output entry: Σ|P|·V·(w + (S + 3)ε) ≤ (1 + |λ|)·V·(…), V = max|v|; each gradient likewise, with the column sums of
// the maps where the sum runs over rows.
#include "attention/signed_softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/thread.h"
#include "ref/layout.h"
#include "ref/signed_attention.h"
#include "support/compare.h"
#include "support/family_case.h"
#include "support/random_values.h"
#include "support/simd_targets.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using attention::HeadRows;
using attention::Layout;

struct Variant {
  std::string name;
  Layout layout;
  bool extra = false;
};

std::vector<Variant> variants() {
  return {{"softmax", attention::softmax_layout(4, 2)},
          {"softmax of one group", attention::softmax_layout(6, 1)},
          {"off_by_one or sink", attention::softmax_layout(3, 3), true},
          {"diff_v1 halves", attention::halves_layout(4, 2)},
          {"diff_v1 halves, grouped", attention::halves_layout(8, 4)},
          {"diff_v1 neighbours", attention::neighbours_layout(4, 4)},
          {"diff_v1 added", attention::added_layout(3, 1)},
          {"diff_v2", attention::shared_key_layout(4, 2)},
          {"grouped_diff", attention::grouped_layout(6, 2, 3)},
          {"grouped_diff, every head its keys", attention::grouped_layout(4, 4, 4)}};
}

struct Sizes {
  int64_t rows = 1, window = 0, head_dim = 10, value_dim = 7;
  float query = 1;  // the largest number in a query
};

// A problem of several texts, as the kernel takes it, and each text as the reference does.
struct Problem {
  Layout layout;
  int64_t sequences, rows, window, head_dim, value_dim;
  DType type;
  std::vector<float> q, k, v, lambda, extra, d_out;
  std::vector<int32_t> starts;

  Problem(const Variant& variant, int64_t texts, const Sizes& sizes, DType dtype, bool documents)
      : layout(variant.layout),
        sequences(texts),
        rows(sizes.rows),
        window(sizes.window),
        head_dim(sizes.head_dim),
        value_dim(sizes.value_dim),
        type(dtype) {
    const auto numbers = [&](int64_t each, uint64_t seed) {
      return random_floats(static_cast<size_t>(sequences * rows * each), seed);
    };
    q = numbers(layout.query_heads * head_dim, 1);
    for (float& value : q) value *= sizes.query;
    k = numbers(layout.key_heads * head_dim, 2);
    v = numbers(layout.value_heads * value_dim, 3);
    lambda = numbers(layout.output_heads(), 4);
    d_out = numbers(layout.output_heads() * value_dim, 5);
    if (type == DType::bf16) {
      for (auto* x : {&q, &k, &v}) *x = through_bf16(*x);
    }
    if (variant.extra) extra = random_floats(static_cast<size_t>(layout.output_heads()), 6);
    for (int64_t t = 0; documents && t < sequences * rows; ++t) {
      const int64_t row = t % rows;
      starts.push_back(static_cast<int32_t>(row < rows / 3 ? 0 : row < rows / 2 ? rows / 3 : rows / 2));
    }
  }

  ref::FamilyShape shape(int64_t text) const {
    ref::FamilyShape s = reference_shape(layout, rows, head_dim, value_dim, window);
    for (int64_t t = 0; t < rows && !starts.empty(); ++t)
      s.start.push_back(starts[static_cast<size_t>(text * rows + t)]);
    return s;
  }
  std::vector<double> part(const std::vector<float>& all, int64_t text) const {
    const auto each = static_cast<std::ptrdiff_t>(all.size()) / sequences;
    return widen(std::vector<float>(all.begin() + text * each, all.begin() + (text + 1) * each));
  }
  ref::SignedInputs inputs(int64_t text) const {
    return {part(q, text), part(k, text), part(v, text), part(lambda, text), widen(extra)};
  }
};

struct Result {
  std::vector<float> out, d_q, d_k, d_v, d_lambda, d_extra;
};

Result run(Problem p) {
  const auto rows = p.sequences * p.rows;
  const auto heads = [&](std::vector<float>& x, int64_t count) {
    return HeadRows::side_by_side(Matrix(x.data(), rows, static_cast<int64_t>(x.size()) / rows), count);
  };
  auto k16 = to_bf16s(p.k), v16 = to_bf16s(p.v);
  const auto narrow = [&](std::vector<bf16>& x, int64_t count) {
    return HeadRows::side_by_side(Matrix(x.data(), rows, static_cast<int64_t>(x.size()) / rows), count);
  };
  attention::SignedInputs in;
  in.q = heads(p.q, p.layout.query_heads);
  in.k = p.type == DType::bf16 ? narrow(k16, p.layout.key_heads) : heads(p.k, p.layout.key_heads);
  in.v = p.type == DType::bf16 ? narrow(v16, p.layout.value_heads) : heads(p.v, p.layout.value_heads);
  in.sequences = p.sequences;
  in.rows = in.key_rows = p.rows;
  in.lambda = p.lambda.data();
  in.extra = p.extra.empty() ? nullptr : p.extra.data();
  in.starts = p.starts.empty() ? nullptr : p.starts.data();
  const attention::SignedConfig config{p.layout, 1, p.window, 0};
  attention::SignedWorkspace workspace;
  Result r;
  r.out.assign(p.d_out.size(), -77);
  std::vector<float> log_sums(2 * p.lambda.size());
  const attention::SignedSaved saved{log_sums.data()};
  signed_softmax_forward(heads(r.out, p.layout.output_heads()), saved, in, config, workspace);
  r.d_q.assign(p.q.size(), -77);
  r.d_k.assign(p.k.size(), -77);
  r.d_v.assign(p.v.size(), -77);
  r.d_lambda.assign(p.lambda.size(), 0);
  r.d_extra.assign(p.extra.size(), 0);
  attention::SignedGradients g;
  g.d_q = heads(r.d_q, p.layout.query_heads);
  g.d_k = heads(r.d_k, p.layout.key_heads);
  g.d_v = heads(r.d_v, p.layout.value_heads);
  g.d_lambda = r.d_lambda.data();
  g.d_extra = p.extra.empty() ? nullptr : r.d_extra.data();
  signed_softmax_backward(g, heads(p.d_out, p.layout.output_heads()), saved, in, config, workspace);
  return r;
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

// Bounds as derived at the top of this file; |q|, |k|, |v|, |dO|, |λ| by their largest.
struct Bounds {
  double out, d_q, d_k, d_v, d_lambda, d_extra;
};

Bounds bounds(const Problem& p, const ref::FamilyShape& s, const ref::SignedInputs& in, const ref::SignedResult& maps,
              const std::vector<double>& d_out) {
  const double e = static_cast<double>(p.head_dim), wide = static_cast<double>(p.value_dim),
               n = static_cast<double>(p.rows), value = largest(in.v), key = largest(in.k), query = largest(in.q);
  const double both = 1 + (p.layout.has_second_map() ? largest(in.lambda) : 0),
               rounding = p.type == DType::bf16 ? 2 * kEpsBf16 : 0;
  const double w = 2 * (e + 3) * kEpsF32 * e * query * key + 8e-7 + (n / 8 + 5) * kEpsF32 + rounding;
  const double y = wide * largest(d_out) * value, d = (wide + 3) * kEpsF32 * y + rounding * y;
  const double d_score = both * (2 * d + 4 * w * y + 2 * y * ((n + 3) * kEpsF32 + rounding));
  // A query or key head serves several outputs; a key's weights in all rows of them add up to `column`.
  double column = 0;
  for (int64_t j = 0; j < s.rows; ++j) {
    double sum = 0;
    for (int64_t o = 0; o < s.heads(); ++o) {
      for (int64_t t = 0; t < s.rows; ++t)
        sum += std::max(maps.positive[s.map_at(o, t, j)], maps.noise[s.map_at(o, t, j)]);
    }
    column = std::max(column, sum);
  }
  const double outputs = static_cast<double>(s.heads());
  return {both * value * (w + (n + 3) * kEpsF32 + rounding),
          outputs * key * d_score,
          column * query * d_score,
          both * column * largest(d_out) * (w + rounding + (n + 3) * kEpsF32),
          d + w * y + (n + 3) * kEpsF32 * y,
          n * (d + 2 * w * y + (n + 3) * kEpsF32 * y)};
}

// Of the first query and key head.
double largest_score(const Problem& p) {
  double most = 0;
  const auto row = [&](const std::vector<float>& all, int64_t heads, int64_t t) {
    return all.data() + t * heads * p.head_dim;
  };
  for (int64_t t = 0; t < p.rows; ++t) {
    for (int64_t j = 0; j <= t; ++j) {
      const float* key = row(p.k, p.layout.key_heads, j);
      most =
          std::max(most, std::abs(std::inner_product(key, key + p.head_dim, row(p.q, p.layout.query_heads, t), 0.0)));
    }
  }
  return most;
}

// Outputs and gradients of all texts are those of the reference, each within its bound.
void expect_agrees(const Problem& p) {
  const Result found = run(p);
  std::vector<double> d_extra(p.extra.size());
  double d_extra_bound = 0;
  for (int64_t text = 0; text < p.sequences; ++text) {
    const auto s = p.shape(text);
    const auto in = p.inputs(text);
    const auto expected = ref::signed_forward(s, in);
    const auto d_out = p.part(p.d_out, text);
    const auto g = ref::signed_backward(s, d_out, expected, in);
    const Bounds b = bounds(p, s, in, expected, d_out);
    const auto own = [&](const std::vector<float>& all) {
      const auto each = static_cast<std::ptrdiff_t>(all.size()) / p.sequences;
      return std::vector<float>(all.begin() + text * each, all.begin() + (text + 1) * each);
    };
    EXPECT_TRUE(close(own(found.out), expected.out, b.out)) << "out";
    EXPECT_TRUE(close(own(found.d_q), g.d_q, b.d_q)) << "d_q";
    EXPECT_TRUE(close(own(found.d_k), g.d_k, b.d_k)) << "d_k";
    EXPECT_TRUE(close(own(found.d_v), g.d_v, b.d_v)) << "d_v";
    if (p.layout.has_second_map()) {
      EXPECT_TRUE(close(own(found.d_lambda), g.d_lambda, b.d_lambda)) << "d_lambda";
    }
    for (size_t i = 0; i < d_extra.size(); ++i) d_extra[i] += g.d_extra[i];
    d_extra_bound += b.d_extra;
  }
  EXPECT_TRUE(close(found.d_extra, d_extra, d_extra_bound)) << "d_extra";
}

TEST(SignedSoftmax, AgreesWithTheReferenceForwardAndBackward) {
  for (const Variant& variant : variants()) {
    for (const int64_t rows : {1, 3, 65, 128, 129, 150}) {
      for (const int64_t window : {0, 20}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          for (const bool documents : {false, true}) {
            SCOPED_TRACE(testing::Message() << variant.name << ", rows " << rows << ", window " << window << ", "
                                            << info(type).name << ", documents " << documents);
            expect_agrees(Problem(variant, 2, {.rows = rows, .window = window}, type, documents));
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
}

// Widths around whole vectors, on every instruction set.
TEST(SignedSoftmax, AgreesAtEveryWidth) {
  on_every_target([] {
    for (const Variant& variant : variants()) {
      for (const auto& [head_dim, value_dim] : {std::pair{1, 1}, {7, 3}, {15, 17}, {16, 32}, {50, 33}, {64, 128}}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          SCOPED_TRACE(testing::Message()
                       << variant.name << ", widths " << head_dim << " and " << value_dim << ", " << info(type).name);
          const Sizes sizes = {.rows = 35, .head_dim = head_dim, .value_dim = value_dim};
          expect_agrees(Problem(variant, 2, sizes, type, true));
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  });
}

// Scores beyond ±100: most weights are 0 or 1, and nothing may overflow or become a NaN. The bounds grow with the
// scores, those of gradients by the rows that share a key: they are far above what is found here.
TEST(SignedSoftmax, AgreesAtScoresOfAHundred) {
  for (const Variant& variant : variants()) {
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << variant.name << ", " << info(type).name);
      const Problem p(variant, 2, {.rows = 150, .query = 64}, type, true);
      EXPECT_GT(largest_score(p), 100);
      expect_agrees(p);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SignedSoftmax, TheSameBitsForAnyNumberOfThreads) {
  for (const Variant& variant : variants()) {
    const Problem p(variant, 3, {.rows = 130}, DType::f32, true);
    set_threads(1);
    const Result one = run(p);
    set_threads(2);
    const Result two = run(p);
    set_threads(0);
    for (const auto part :
         {&Result::out, &Result::d_q, &Result::d_k, &Result::d_v, &Result::d_lambda, &Result::d_extra})
      EXPECT_TRUE(same_bits(one.*part, two.*part)) << variant.name;
  }
}

TEST(SignedSoftmax, LayoutsAreThoseOfTheReference) {
  const auto equal = [](const Layout& layout, const std::vector<ref::HeadPair>& pairs) {
    if (layout.outputs.size() != pairs.size()) return false;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto& p = layout.outputs[i];
      if (!(ref::HeadPair{p.q1, p.k1, p.q2, p.k2, p.v} == pairs[i])) return false;
    }
    return true;
  };
  for (const auto& [h, g] : std::vector<std::pair<int64_t, int64_t>>{{4, 2}, {8, 4}, {8, 2}, {12, 4}, {6, 6}}) {
    EXPECT_TRUE(equal(attention::softmax_layout(h, g), ref::plain_layout(h, g)));
    EXPECT_TRUE(equal(attention::halves_layout(h, g), ref::halves_layout(h, g)));
    EXPECT_TRUE(equal(attention::neighbours_layout(h, g), ref::neighbours_layout(h, g)));
    EXPECT_TRUE(equal(attention::added_layout(h, g), ref::added_layout(h, g)));
    EXPECT_TRUE(equal(attention::shared_key_layout(h, g), ref::shared_keys_layout(h, g)));
    for (const int64_t ratio : {2, 4}) {
      if (h % ratio == 0) {
        EXPECT_TRUE(equal(attention::grouped_layout(h, g, ratio), ref::grouped_layout(h, g, ratio)));
      }
    }
  }
  expect_error([] { attention::halves_layout(9, 3); }, ErrorCode::shape, {"9 query", "3 key/value", "even"});
  expect_error([] { attention::neighbours_layout(6, 3); }, ErrorCode::shape, {"6 query", "3 key/value", "even"});
  expect_error([] { attention::grouped_layout(8, 2, 3); }, ErrorCode::shape, {"8 heads", "groups of 3"});
}

}  // namespace
}  // namespace unchain::test
