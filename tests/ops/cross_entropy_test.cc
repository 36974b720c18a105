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

struct Gradients {
  double loss;
  std::vector<double> nll;
  std::vector<float> d_hidden, d_head, d_bias;
};

template <class T>
Gradients backward(const ref::CrossEntropyCase& c, std::vector<T> hidden, std::vector<T> head,
                   const std::vector<float>& bias) {
  const auto rows = static_cast<int64_t>(c.rows), width = static_cast<int64_t>(c.width),
             vocabulary = static_cast<int64_t>(c.vocabulary);
  Gradients g{0, std::vector<double>(c.rows, -5), std::vector<float>(hidden.size(), NAN),
              std::vector<float>(head.size(), 0.5f), std::vector<float>(c.vocabulary, 0.25f)};
  const std::vector<float> weights(c.weights.begin(), c.weights.end());
  ops::CrossEntropyWorkspace workspace;
  g.loss = ops::cross_entropy_forward_backward(
      g.nll, Matrix(g.d_hidden.data(), rows, width), {Matrix(g.d_head.data(), vocabulary, width), g.d_bias.data()},
      workspace, Matrix(hidden.data(), rows, width), {Matrix(head.data(), vocabulary, width), bias.data()}, c.targets,
      weights, static_cast<float>(c.cap));
  return g;
}

ref::CrossEntropyCase backward_case(size_t rows, size_t width, size_t vocabulary, double cap) {
  ref::CrossEntropyCase c{rows, width, vocabulary, cap, {}, {}};
  const size_t places[] = {0, vocabulary - 1, 2047, 2048, 0};
  for (size_t t = 0; t < rows; ++t) {
    c.targets.push_back(t % 5 == 4 ? -1 : static_cast<int32_t>(std::min(places[t % 5], vocabulary - 1)));
    c.weights.push_back(t % 3 == 2 ? 0 : 0.5 + static_cast<double>(t % 4) / 4);
  }
  return c;
}

template <class T>
void expect_gradients(const ref::CrossEntropyCase& c, const std::vector<T>& hidden, const std::vector<T>& head,
                      const std::vector<float>& bias) {
  const auto expected = ref::cross_entropy_backward(c, widen(hidden), widen(head), widen(bias));
  const Gradients g = backward(c, hidden, head, bias);
  // A logit is off by δ = (D + 2)·ε·Σ|h w| (and a few ε of itself by the cap), which moves p by 2δ of itself; e^x adds
  // 4e-7, the sum (2048/8 + 5)·ε, and d_z three roundings, one of them of the whole 1 where p − 1 is taken, and under
  // bf16 one to bf16.
  double largest_h = 0, largest_w = 0;
  for (const double x : widen(hidden)) largest_h = std::max(largest_h, std::abs(x));
  for (const double x : widen(head)) largest_w = std::max(largest_w, std::abs(x));
  const double width = static_cast<double>(c.width);
  const double delta = (width + 8) * kEpsF32 * (width * largest_h * largest_w + 4) + 4e-7 +
                       (static_cast<double>(c.vocabulary) / 8 + 5) * kEpsF32;
  const double narrow = sizeof(T) == 2 ? kEpsBf16 : 0;
  std::vector<double> error_z(c.rows * c.vocabulary), error_h(hidden.size()), error_w(head.size(), 0),
      error_b(c.vocabulary, 0);
  double loss = 0;
  for (size_t t = 0; t < c.rows; ++t) {
    const bool skipped = c.targets[t] < 0;
    const double nll = skipped ? 0
                               : ref::nll(ref::logits_row(c, widen(hidden), widen(head), widen(bias), t),
                                          static_cast<size_t>(c.targets[t]));
    EXPECT_NEAR(g.nll[t], nll, 2 * delta);
    loss += skipped ? 0 : c.weights[t] * nll;
    for (size_t v = 0; v < c.vocabulary; ++v) {
      const double z = expected.d_logits[t * c.vocabulary + v];
      const bool hit = !skipped && v == static_cast<size_t>(c.targets[t]);
      const double error = skipped ? 0 : (2 * delta + narrow) * std::abs(z) + (hit ? 2 * delta * c.weights[t] : 1e-30);
      error_b[v] += error + (std::abs(z) + error) * 66 * kEpsF32;
      for (size_t i = 0; i < c.width; ++i) {
        // Sums over the vocabulary and over the rows, in any order: as many roundings as terms.
        const double h = std::abs(to_double(hidden[t * c.width + i])), w = std::abs(to_double(head[v * c.width + i]));
        error_h[t * c.width + i] += w * (error + static_cast<double>(c.vocabulary) * kEpsF32 * (std::abs(z) + error));
        error_w[v * c.width + i] += h * (error + static_cast<double>(c.rows + 1) * kEpsF32 * (std::abs(z) + error));
      }
    }
  }
  EXPECT_NEAR(g.loss, loss, 2 * delta * static_cast<double>(c.rows));
  std::vector<double> d_head = expected.d_head, d_bias = expected.d_bias;
  for (size_t i = 0; i < d_head.size(); ++i) {
    d_head[i] += 0.5;  // gradients of weights are added to what is there
    error_w[i] += static_cast<double>(c.rows + 1) * kEpsF32;
  }
  for (size_t i = 0; i < d_bias.size(); ++i) {
    d_bias[i] += 0.25;
    error_b[i] += static_cast<double>(c.rows + 1) * kEpsF32;
  }
  EXPECT_TRUE(close_each(g.d_hidden, expected.d_hidden, error_h));
  EXPECT_TRUE(close_each(g.d_head, d_head, error_w));
  EXPECT_TRUE(close_each(g.d_bias, d_bias, error_b));
  EXPECT_TRUE(same_bits(backward(c, hidden, head, bias).d_head, g.d_head)) << "the second time";
}

TEST(CrossEntropy, Gradients) {
  struct Size {
    size_t rows, width, vocabulary;
  };
  // Above 16384 pieces vocabulary blocks are computed twice, at or below rows go in blocks of fewer.
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const Size& s : {Size{1, 3, 1},
                          {5, 7, 2},
                          {11, 5, 33},
                          {40, 16, 2049},
                          {1030, 2, 3},
                          {133, 1, 16384},
                          {7, 3, 16385},
                          {6, 4, 18500}}) {
      for (const double cap : {0.0, 5.0}) {
        SCOPED_TRACE(testing::Message() << s.rows << " rows of " << s.width << ", vocabulary " << s.vocabulary
                                        << ", cap " << cap);
        const auto c = backward_case(s.rows, s.width, s.vocabulary, cap);
        const auto hidden = random_floats(s.rows * s.width, 1), head = random_floats(s.vocabulary * s.width, 2, 2);
        const auto bias = random_floats(s.vocabulary, 3);
        expect_gradients(c, hidden, head, bias);
        expect_gradients(c, to_bf16s(hidden), to_bf16s(head), bias);
      }
    }
  }
  set_threads(0);
}

TEST(CrossEntropy, GradientsOfLogitsFarFromZero) {
  // Row 0 is sure of its target, row 1 of another piece: d_z is 0 there, and ±1 here.
  for (const size_t vocabulary : {size_t{100}, size_t{17000}}) {
    std::vector<float> head(vocabulary), bias(vocabulary);
    head.front() = -1e4f;
    head.back() = 1e4f;
    const auto last = static_cast<int32_t>(vocabulary - 1);
    const ref::CrossEntropyCase c{2, 1, vocabulary, 0, {last, last}, {1, 2}};
    const Gradients g = backward<float>(c, {1, -1}, head, bias);
    EXPECT_EQ(g.d_hidden[0], 0);
    EXPECT_EQ(g.d_hidden[1], -4e4f);  // 2·(1·(−1e4) + (−1)·1e4)
    EXPECT_EQ(g.d_head.front(), 0.5f - 2);
    EXPECT_EQ(g.d_head.back(), 0.5f + 2);
    EXPECT_EQ(g.loss, 4e4);
  }
}

TEST(CrossEntropy, GradientsBadArguments) {
  std::vector<float> x(8), w(12);
  std::vector<double> nll(2);
  std::vector<bf16> narrow(12);
  ops::CrossEntropyWorkspace workspace;
  const auto call = [&](const Matrix& hidden, const Matrix& head, std::vector<float> weights) {
    return [&, hidden, head, weights] {
      const std::vector<int32_t> targets = {0, 2};
      ops::cross_entropy_forward_backward(nll, Matrix(), {}, workspace, hidden, {head}, targets, weights, 0);
    };
  };
  const Matrix hidden(x.data(), 2, 4), head(w.data(), 3, 4);
  call(hidden, head, {1, 1})();
  expect_error(call(hidden, head, {1}), ErrorCode::shape, {"1 weights for 2 targets"});
  expect_error(call(hidden, Matrix(narrow.data(), 3, 4), {1, 1}), ErrorCode::shape, {"bf16"});
  expect_error(call(hidden, Matrix(w.data(), 4, 3), {1, 1}), ErrorCode::shape, {"[4, 3]"});
  expect_error(call(hidden, Matrix(w.data(), 2, 4), {1, 1}), ErrorCode::usage, {"target 2"});
  w[0] = NAN;
  expect_error(call(hidden, head, {1, 1}), ErrorCode::numeric, {"row 0"});
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
