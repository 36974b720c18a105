// Laws of softmax attention that hold whatever the numbers are.
#include <gtest/gtest.h>

#include "base/thread.h"
#include "support/attention_case.h"
#include "support/compare.h"

namespace unchain::test {
namespace {

using attention::Taps;

// Few rows, one panel, several panels; with and without keys before the first row; with and without a window; both
// types, with and without taps.
template <class Body>
void everywhere(const Body& body) {
  IdleObserver idle;
  const Taps taps{{&idle}, {}};
  for (const int64_t rows : {1, 4, 30, 64, 150}) {
    for (const int64_t first_row : {0, 21}) {
      for (const int64_t window : {0, 5}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          for (const Taps* used : {static_cast<const Taps*>(nullptr), &taps}) {
            SCOPED_TRACE(testing::Message() << rows << " at " << first_row << ", window " << window << ", "
                                            << info(type).name << ", taps " << (used != nullptr));
            body(grouped_attention(rows, first_row, window), type, attention::TapContext{used});
          }
        }
      }
    }
  }
}

// Two results of one law agree: each lies within its bound of the exact one. The bits need not agree, since a product
// may add up in another order for a head that stands elsewhere in a stack of heads.
testing::AssertionResult agree(const std::vector<float>& actual, const std::vector<float>& expected,
                               const AttentionCase& c) {
  std::vector<double> tolerance = c.tolerance(c.reference(false), DType::f32);
  for (double& each : tolerance) each *= 2;
  return close_each(actual, expected, tolerance);
}

TEST(AttentionLaws, RowsSumToOne) {
  everywhere([](const ref::AttentionSizes& s, DType type, const attention::TapContext& tap) {
    AttentionCase c(s, type);
    c.v.assign(c.v.size(), 1.0f);
    // S weights, their sum and its inverse; with taps, bf16 rounds the quotients: ε₈ each.
    const double tolerance =
        2 * (static_cast<double>(s.keys()) + 5) * kEpsF32 + (type == DType::bf16 && tap.taps ? kEpsBf16 : 0);
    const auto out = c.run(DType::f32, tap);
    EXPECT_TRUE(close(out, std::vector<double>(out.size(), 1), tolerance));
  });
}

TEST(AttentionLaws, TheFutureChangesNothingEarlier) {
  everywhere([](const ref::AttentionSizes& s, DType type, const attention::TapContext& tap) {
    AttentionCase c(s, type);
    const auto before = c.run(DType::f32, tap);
    for (const int64_t row : {s.rows / 3, s.rows - 2}) {
      if (row < 0) continue;
      AttentionCase changed(s, type);
      for (int64_t g = 0; g < s.kv_heads; ++g) {
        for (int64_t j = s.first_row + row + 1; j < s.keys(); ++j) {
          for (int64_t e = 0; e < s.head_dim; ++e) changed.k[s.k_at(g, j, e)] = 50;
          for (int64_t w = 0; w < s.value_dim; ++w) changed.v[s.v_at(g, j, w)] = -1000;
        }
      }
      auto after = changed.run(DType::f32, tap);
      const size_t kept = static_cast<size_t>((row + 1) * s.heads * s.value_dim);
      EXPECT_TRUE(same_bits(std::span<const float>(after).first(kept), std::span<const float>(before).first(kept)));
      if (kept < before.size()) {
        EXPECT_FALSE(same_bits(after, before)) << "the change must show in later rows";
      }
    }
  });
}

TEST(AttentionLaws, KeysBeforeTheWindowDoNotMatter) {
  everywhere([](const ref::AttentionSizes& s, DType type, const attention::TapContext& tap) {
    if (s.window == 0 || s.keys() <= s.window) return;
    // Of the last row: the last key outside its window, and the first one inside.
    const auto last_row_with = [&](int64_t key) {
      AttentionCase c(s, type);
      for (int64_t g = 0; key >= 0 && g < s.kv_heads; ++g) {
        for (int64_t e = 0; e < s.head_dim; ++e) c.k[s.k_at(g, key, e)] = 2;
        for (int64_t w = 0; w < s.value_dim; ++w) c.v[s.v_at(g, key, w)] = -1000;
      }
      auto out = c.run(DType::f32, tap);
      return std::vector<float>(out.end() - s.heads * s.value_dim, out.end());
    };
    const auto before = last_row_with(-1);
    EXPECT_TRUE(same_bits(last_row_with(s.keys() - 1 - s.window), before));
    EXPECT_FALSE(same_bits(last_row_with(s.keys() - s.window), before));
  });
}

TEST(AttentionLaws, PermutingHeadsPermutesOutputs) {
  everywhere([](const ref::AttentionSizes& s, DType type, const attention::TapContext& tap) {
    AttentionCase c(s, type), permuted(s, type);
    // Heads 0 1 | 2 3 become 3 2 | 1 0, so the two groups change places.
    const int64_t order[] = {3, 2, 1, 0};
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t h = 0; h < 4; ++h) {
        for (int64_t e = 0; e < s.head_dim; ++e) permuted.q[s.q_at(t, h, e)] = c.q[s.q_at(t, order[h], e)];
      }
    }
    for (int64_t g = 0; g < 2; ++g) {
      for (int64_t j = 0; j < s.keys(); ++j) {
        for (int64_t e = 0; e < s.head_dim; ++e) permuted.k[s.k_at(g, j, e)] = c.k[s.k_at(1 - g, j, e)];
        for (int64_t w = 0; w < s.value_dim; ++w) permuted.v[s.v_at(g, j, w)] = c.v[s.v_at(1 - g, j, w)];
      }
    }
    const auto out = c.run(DType::f32, tap), other = permuted.run(DType::f32, tap);
    std::vector<float> expected(out.size());
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t h = 0; h < 4; ++h) {
        for (int64_t w = 0; w < s.value_dim; ++w) expected[s.out_at(t, h, w)] = out[s.out_at(t, order[h], w)];
      }
    }
    EXPECT_TRUE(agree(other, expected, permuted));
    EXPECT_FALSE(agree(other, out, permuted)) << "the change must show";
  });
}

TEST(AttentionLaws, SharedKeysEqualRepeatedOnes) {
  everywhere([](const ref::AttentionSizes& s, DType type, const attention::TapContext& tap) {
    AttentionCase c(s, type);
    ref::AttentionSizes full = s;
    full.kv_heads = full.heads;
    AttentionCase repeated(full, type);
    repeated.q = c.q;
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t j = 0; j < s.keys(); ++j) {
        for (int64_t e = 0; e < s.head_dim; ++e) repeated.k[full.k_at(h, j, e)] = c.k[s.k_at(h / 2, j, e)];
        for (int64_t w = 0; w < s.value_dim; ++w) repeated.v[full.v_at(h, j, w)] = c.v[s.v_at(h / 2, j, w)];
      }
    }
    EXPECT_TRUE(agree(repeated.run(DType::f32, tap), c.run(DType::f32, tap), c));
  });
}

TEST(AttentionLaws, AWindowLongerThanTheTextIsNone) {
  everywhere([](const ref::AttentionSizes& s, DType type, const attention::TapContext& tap) {
    if (s.window != 0) return;
    ref::AttentionSizes wide = s;
    wide.window = s.keys();
    EXPECT_TRUE(same_bits(AttentionCase(wide, type).run(DType::f32, tap), AttentionCase(s, type).run(DType::f32, tap)));
  });
}

TEST(AttentionLaws, TwiceTheSameBits) {
  for (const int count : {1, 2}) {
    set_threads(count);
    everywhere([](const ref::AttentionSizes& s, DType type, const attention::TapContext& tap) {
      EXPECT_TRUE(same_bits(AttentionCase(s, type).run(DType::f32, tap), AttentionCase(s, type).run(DType::f32, tap)));
    });
  }
  set_threads(0);
}

}  // namespace
}  // namespace unchain::test
