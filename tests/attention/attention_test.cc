// Fused attention against whole maps in double: all paths (few rows, panels, taps), types and threads.
#include "attention/attention.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/thread.h"
#include "support/attention_case.h"
#include "support/compare.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using attention::Taps;

ref::AttentionSizes shape(int64_t rows, int64_t first_row, int64_t window, int variant) {
  ref::AttentionSizes s;
  s.rows = rows;
  s.first_row = first_row;
  s.window = window;
  const int64_t heads[] = {2, 4, 3}, kv_heads[] = {2, 2, 1}, widths[] = {16, 10, 33}, value_widths[] = {16, 24, 5};
  s.heads = heads[variant % 3];
  s.kv_heads = kv_heads[variant % 3];
  s.head_dim = widths[variant % 3];
  s.value_dim = value_widths[variant % 3];
  s.scale = 1 / std::sqrt(static_cast<double>(static_cast<float>(s.head_dim)));
  s.scale = static_cast<double>(static_cast<float>(s.scale));
  s.soft_cap = variant % 2 ? 1.5 : 0;
  return s;
}

std::string describe(const ref::AttentionSizes& s) {
  return (testing::Message() << s.rows << " rows at " << s.first_row << ", heads " << s.heads << "/" << s.kv_heads
                             << ", widths " << s.head_dim << " and " << s.value_dim << ", window " << s.window
                             << ", cap " << s.soft_cap)
      .GetString();
}

TEST(Attention, AgreesWithTheReference) {
  int variant = 0;
  for (const int64_t rows : {1, 2, 3, 4, 5, 65, 127, 128, 129, 200, 300}) {
    for (const int64_t first_row : {0, 7, 70}) {
      for (const int64_t window : {0, 1, 3, 1000}) {
        const ref::AttentionSizes s = shape(rows, first_row, window, ++variant);
        for (const DType type : {DType::f32, DType::bf16}) {
          AttentionCase c(s, type);
          for (const DType out_type : {DType::f32, DType::bf16}) {
            for (const bool tapped : {false, true}) {
              const bool few = rows <= 4 && out_type == DType::f32 && !tapped;
              const auto expected = c.reference(type == DType::bf16 && !few);
              const auto tolerance = c.tolerance(expected, out_type);
              IdleObserver idle;
              const Taps taps{{&idle}, {}};
              for (const int count : {1, 2}) {
                set_threads(count);
                SCOPED_TRACE(testing::Message() << describe(s) << ", " << info(type).name << " to "
                                                << info(out_type).name << ", taps " << tapped << ", threads " << count);
                EXPECT_TRUE(close_each(c.run(out_type, {tapped ? &taps : nullptr}), expected.out, tolerance));
              }
            }
          }
        }
      }
    }
  }
  set_threads(0);
}

TEST(Attention, LargeScoresLeaveNoNaN) {
  // Scores of ±200: all weight on one key, the others underflow to 0 without a NaN.
  ref::AttentionSizes s = shape(70, 0, 0, 0);
  s.scale = 60;
  AttentionCase c(s, DType::f32);
  const auto expected = c.reference(false);
  EXPECT_TRUE(close_each(c.run(), expected.out, c.tolerance(expected, DType::f32)));
}

TEST(Attention, NothingDamagedGoesUnseen) {
  // A NaN or an infinity in one key reaches every later row that sees it, and no earlier one.
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const int64_t rows : {3, 100}) {
        for (const bool tapped : {false, true}) {
          ref::AttentionSizes s = shape(rows, 0, 0, 0);
          AttentionCase c(s, type);
          const int64_t at = rows / 2;
          for (int64_t e = 0; e < s.head_dim; ++e) c.k[s.k_at(0, at, e)] = bad;
          IdleObserver idle;
          const Taps taps{{&idle}, {}};
          const auto out = c.run(DType::f32, {tapped ? &taps : nullptr});
          for (int64_t t = 0; t < rows; ++t) {
            EXPECT_EQ(std::isfinite(out[s.out_at(t, 0, 0)]), t < at) << bad << ", row " << t << ", taps " << tapped;
            EXPECT_TRUE(std::isfinite(out[s.out_at(t, 1, 0)])) << "the other head";
          }
        }
      }
    }
  }
}

TEST(Attention, AWorkspaceServesCallsOfAllSizes) {
  AttentionCase small(shape(3, 2, 0, 1), DType::f32), large(shape(130, 9, 3, 0), DType::bf16),
      middle(shape(65, 0, 0, 2), DType::f32);
  const auto alone = std::vector{small.run(), large.run(), middle.run()};
  for (AttentionCase* c : {&large, &middle, &small}) c->workspace = {};
  attention::AttentionWorkspace shared;
  for (const int order : {0, 1, 2, 1, 0, 2}) {
    AttentionCase& c = *std::vector<AttentionCase*>{&small, &large, &middle}[static_cast<size_t>(order)];
    std::swap(c.workspace, shared);
    EXPECT_TRUE(same_bits(c.run(), alone[static_cast<size_t>(order)]));
    std::swap(c.workspace, shared);
  }
}

TEST(Attention, SizesThatDoNotFit) {
  std::vector<float> x(4096);
  attention::AttentionWorkspace workspace;
  const attention::SignedConfig config{attention::softmax_layout(4, 2)};
  attention::SignedInputs good;
  good.q = attention::HeadRows::side_by_side(Matrix(x.data(), 3, 32), 4);
  good.k = good.v = attention::HeadRows::side_by_side(Matrix(x.data(), 10, 16), 2);
  good.rows = 3;
  good.key_rows = 10;
  const Matrix out(x.data() + 1024, 3, 32);
  const auto with = [&](const Matrix& to, const auto& change) {
    attention::SignedInputs in = good;
    change(in);
    return [&workspace, &config, to, in] { attention_forward(to, in, config, workspace); };
  };
  EXPECT_NO_THROW(with(out, [](auto&) {})());
  expect_error([] { attention::softmax_layout(4, 3); }, ErrorCode::shape, {"4 query heads", "3 key/value heads"});
  expect_error([] { attention::softmax_layout(4, 0); }, ErrorCode::shape, {"0 key/value heads"});
  expect_error(with(out, [](auto& in) { in.first_row = 8; }), ErrorCode::shape, {"at row 8 of 10"});
  expect_error(with(out, [](auto& in) { in.first_row = -1; }), ErrorCode::shape, {"at row -1"});
  expect_error(with(out, [](auto& in) { in.q.width = 7; }), ErrorCode::shape, {"queries 4x7"});
  expect_error(with(out, [](auto& in) { in.k.heads = 3; }), ErrorCode::shape, {"keys 3x8"});
  expect_error(with(Matrix(x.data() + 1024, 2, 32), [](auto&) {}), ErrorCode::shape, {"out [2, 32]"});
  expect_error(with(out, [](auto& in) { in.v.width = 9; }), ErrorCode::shape, {"attention"});
}

}  // namespace
}  // namespace unchain::test
