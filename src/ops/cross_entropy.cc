#include "ops/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/thread.h"
#include "simd/kernels.h"

namespace unchain::ops {
namespace {

// 2048 columns of 512 rows are 4 MB: small beside the weights, large enough for products at full speed.
constexpr int64_t kBlock = 2048;

struct Running {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double target = 0;
};

// Adds one block of logits, columns first … first + n − 1, to a row's running log-sum-exp.
void add_block(Running& row, float* logits, int64_t first, int64_t n, int32_t target) {
  if (target >= first && target < first + n) row.target = logits[target - first];
  const auto count = static_cast<size_t>(n);
  const float block_max = simd::max(logits, count);
  const double offset = std::max(row.max, static_cast<double>(block_max));
  if (row.sum > 0) row.sum *= std::exp(row.max - offset);
  row.max = offset;
  row.sum += simd::exp_sum(logits, static_cast<float>(offset), logits, count);
}

}  // namespace

void soft_cap(float* x, float cap, int64_t n) {
  if (cap == 0) return;
  for (int64_t i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

void cross_entropy_forward(std::span<double> nll, CrossEntropyWorkspace& workspace, const Matrix& hidden,
                           const Linear& head, std::span<const int32_t> targets, float cap) {
  const int64_t rows = hidden.rows, vocabulary = head.outputs();
  if (static_cast<int64_t>(nll.size()) != rows || static_cast<int64_t>(targets.size()) != rows) {
    fail(ErrorCode::shape, "cross entropy: {} rows, {} targets, {} results", rows, targets.size(), nll.size());
  }
  for (const int32_t target : targets) {
    if (target < -1 || target >= vocabulary)
      fail(ErrorCode::usage, "cross entropy: target {} is outside the vocabulary of {}", target, vocabulary);
  }
  workspace.block.reserve(static_cast<size_t>(rows * kBlock));
  std::vector<Running> running(static_cast<size_t>(rows));
  for (int64_t first = 0; first < vocabulary; first += kBlock) {
    const int64_t n = std::min(kBlock, vocabulary - first);
    const Matrix logits(workspace.block.data(), rows, n);
    linear_forward(logits, hidden, Linear{head.weight.row_range(first, n), head.bias ? head.bias + first : nullptr});
    parallel_ranges(rows, 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        soft_cap(logits.f32(t), cap, n);
        add_block(running[static_cast<size_t>(t)], logits.f32(t), first, n, targets[static_cast<size_t>(t)]);
      }
    });
  }
  for (size_t t = 0; t < nll.size(); ++t) {
    const double log_sum = running[t].max + std::log(running[t].sum);
    nll[t] = targets[t] < 0 ? 0.0 : log_sum - running[t].target;
    if (!std::isfinite(log_sum)) fail(ErrorCode::numeric, "cross entropy: the logits of row {} are not finite", t);
  }
}

}  // namespace unchain::ops
