// Negative log-likelihood by vocabulary blocks against whole rows in double.
#include "ops/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/thread.h"
#include "ref/cross_entropy.h"
#include "ref/matmul.h"
#include "support/compare.h"
#include "support/random_values.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

struct Case {
  int64_t rows, vocabulary;
  float cap;
  bool bias;
};

void expect_nll(const Case& c, DType type) {
  SCOPED_TRACE(testing::Message() << c.rows << " rows, vocabulary " << c.vocabulary << ", cap " << c.cap << ", bias "
                                  << c.bias << ", " << info(type).name);
  constexpr int64_t kWidth = 16;
  auto x = random_floats(static_cast<size_t>(c.rows * kWidth), 1);
  auto w = random_floats(static_cast<size_t>(c.vocabulary * kWidth), 2);
  const auto bias = random_floats(static_cast<size_t>(c.vocabulary), 3);
  auto x16 = to_bf16s(x), w16 = to_bf16s(w);
  const bool narrow_x = ops::activation_type(type, c.rows) == DType::bf16, narrow_w = type == DType::bf16;
  if (narrow_x) x = through_bf16(x);
  if (narrow_w) w = through_bf16(w);
  auto logits = ref::matmul(widen(x), widen(w), c.rows, c.vocabulary, kWidth, true);
  std::vector<int32_t> targets;
  std::vector<double> expected;
  double largest = 0;
  for (int64_t t = 0; t < c.rows; ++t) {
    std::vector<double> row;
    for (int64_t i = 0; i < c.vocabulary; ++i) {
      double z = logits[static_cast<size_t>(t * c.vocabulary + i)] +
                 (c.bias ? static_cast<double>(bias[static_cast<size_t>(i)]) : 0);
      if (c.cap > 0) z = static_cast<double>(c.cap) * std::tanh(z / static_cast<double>(c.cap));
      row.push_back(z);
      largest = std::max(largest, std::abs(z));
    }
    // First, last, and the last of a block and the first of the next in turn; one without a target.
    const int64_t places[] = {0, c.vocabulary - 1, 2047, 2048, -1};
    const int64_t target = t % 5 == 4 ? -1 : std::min(places[t % 5], c.vocabulary - 1);
    targets.push_back(static_cast<int32_t>(target));
    expected.push_back(target < 0 ? 0 : ref::nll(row, static_cast<size_t>(target)));
  }
  std::vector<double> nll(static_cast<size_t>(c.rows), -5);
  ops::CrossEntropyWorkspace workspace;
  const ops::Linear head{narrow_w ? Matrix(w16.data(), c.vocabulary, kWidth) : Matrix(w.data(), c.vocabulary, kWidth),
                         c.bias ? bias.data() : nullptr};
  ops::cross_entropy_forward(nll, workspace,
                             narrow_x ? Matrix(x16.data(), c.rows, kWidth) : Matrix(x.data(), c.rows, kWidth), head,
                             targets, c.cap);
  // A logit is off by (K + 2)·ε·Σ|x w| ≤ 18·ε·16·4·4 (tanh by a few ε more); logsumexp moves by at most its logits'
  // error, and its f32 sums by 4e-7 and (2048/8 + 5)·ε relative.
  const double logit_error = (kWidth + 2) * kEpsF32 * kWidth * 16 + 4 * kEpsF32 * largest;
  EXPECT_TRUE(close(nll, expected, 2 * logit_error + 4e-7 + (2048.0 / 8 + 5) * kEpsF32));
}

TEST(CrossEntropy, AcrossBlockBoundaries) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const int64_t vocabulary : {1, 2, 2047, 2048, 2049, 5000}) {
      for (const int64_t rows : {1, 4, 5, 11}) {
        for (const DType type : {DType::f32, DType::bf16}) {
          expect_nll({rows, vocabulary, 0, false}, type);
          expect_nll({rows, vocabulary, 5, true}, type);
        }
      }
    }
  }
  set_threads(0);
}

TEST(CrossEntropy, SurvivesLogitsFarFromZero) {
  // Two pieces in different blocks, ±1e4: naive exponentials would overflow. Row 0 prefers the last, row 1 the first.
  constexpr int64_t kVocabulary = 4100;
  std::vector<float> w(kVocabulary), x = {1, -1};
  w[0] = -1e4f;
  w[kVocabulary - 1] = 1e4f;
  std::vector<double> nll(2);
  const std::vector<int32_t> targets = {kVocabulary - 1, kVocabulary - 1};
  ops::CrossEntropyWorkspace workspace;
  ops::cross_entropy_forward(nll, workspace, Matrix(x.data(), 2, 1), {Matrix(w.data(), kVocabulary, 1)}, targets, 0);
  EXPECT_TRUE(close(nll, std::vector<double>{0, 2e4}, 1e-3));
}

TEST(CrossEntropy, SaysWhichRowIsNotFinite) {
  constexpr int64_t kRows = 6, kWidth = 4, kVocabulary = 3000;
  const auto bad = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  for (const float value : bad) {
    auto x = random_floats(kRows * kWidth, 1), w = random_floats(kVocabulary * kWidth, 2);
    const std::vector<int32_t> targets(kRows, 3);
    std::vector<double> nll(kRows);
    ops::CrossEntropyWorkspace workspace;
    const auto call = [&] {
      ops::cross_entropy_forward(nll, workspace, Matrix(x.data(), kRows, kWidth),
                                 {Matrix(w.data(), kVocabulary, kWidth)}, targets, 0);
    };
    call();
    x[4 * kWidth + 1] = value;
    expect_error(call, ErrorCode::numeric, {"row 4"});
    x[4 * kWidth + 1] = 1;
    x[0] = 1;
    // One damaged weight of one piece, in the second block.
    w[2500 * kWidth] = value;
    expect_error(call, ErrorCode::numeric, {"row 0"});
  }
}

TEST(CrossEntropy, BadArguments) {
  std::vector<float> x(8), w(12);
  std::vector<double> nll(2);
  ops::CrossEntropyWorkspace workspace;
  const auto call = [&](std::vector<int32_t> targets) {
    return [&, targets] {
      ops::cross_entropy_forward(nll, workspace, Matrix(x.data(), 2, 4), {Matrix(w.data(), 3, 4)}, targets, 0);
    };
  };
  expect_error(call({0, 3}), ErrorCode::usage, {"target 3", "vocabulary of 3"});
  expect_error(call({-2, 0}), ErrorCode::usage, {"target -2"});
  expect_error(call({0}), ErrorCode::shape, {"1 targets"});
}

TEST(CrossEntropy, SoftCap) {
  std::vector<float> x = {-1e9f, -3, 0, 0.5f, 100}, kept = x;
  ops::soft_cap(x.data(), 5, 5);
  EXPECT_TRUE(close(x, std::vector<double>{-5, 5 * std::tanh(-0.6), 0, 5 * std::tanh(0.1), 5}, 1e-6));
  ops::soft_cap(kept.data(), 0, 5);
  EXPECT_EQ(kept[0], -1e9f);
}

}  // namespace
}  // namespace unchain::test
