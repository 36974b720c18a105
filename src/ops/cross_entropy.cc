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
// With gradients: as many logits as the last cache level of a small machine holds, in rows of the whole vocabulary up
// to kWhole pieces; more rows than kMostRows make the products no faster.
constexpr int64_t kLogits = int64_t{1} << 21, kWhole = 16384, kMostRows = 1024;

struct Running {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double target = 0;
};

// Adds one block of logits, columns first … first + n − 1, to a row's running log-sum-exp; leaves their exponentials,
// less the maximum so far, in their place.
void add_block(Running& row, float* logits, int64_t first, int64_t n, int32_t target) {
  if (target >= first && target < first + n) row.target = logits[target - first];
  const auto count = static_cast<size_t>(n);
  const float block_max = simd::max(logits, count);
  const double offset = std::max(row.max, static_cast<double>(block_max));
  if (row.sum > 0) row.sum *= std::exp(row.max - offset);
  row.max = offset;
  row.sum += simd::exp_sum(logits, static_cast<float>(offset), logits, count);
}

void check(std::span<const double> nll, const Matrix& hidden, const Linear& head, std::span<const int32_t> targets) {
  const int64_t rows = hidden.rows, vocabulary = head.outputs();
  if (static_cast<int64_t>(nll.size()) != rows || static_cast<int64_t>(targets.size()) != rows) {
    fail(ErrorCode::shape, "cross entropy: {} rows, {} targets, {} results", rows, targets.size(), nll.size());
  }
  for (const int32_t target : targets) {
    if (target < -1 || target >= vocabulary)
      fail(ErrorCode::usage, "cross entropy: target {} is outside the vocabulary of {}", target, vocabulary);
  }
}

// Columns first … first + n − 1 of the logits.
Linear columns(const Linear& head, int64_t first, int64_t n) {
  return {head.weight.row_range(first, n), head.bias ? head.bias + first : nullptr};
}

// A row's result; `row` is its number, for the message.
double finish(const Running& running, int32_t target, size_t row) {
  const double log_sum = running.max + std::log(running.sum);
  if (!std::isfinite(log_sum)) fail(ErrorCode::numeric, "cross entropy: the logits of row {} are not finite", row);
  return target < 0 ? 0.0 : log_sum - running.target;
}

// Logits into their soft-capped form; slope gets the cap's derivative 1 − tanh².
void soft_cap_with_slope(float* x, float* slope, float cap, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float t = std::tanh(x[i] / cap);
    x[i] = cap * t;
    slope[i] = (1 - t) * (1 + t);
  }
}

// What one call works on, and the block of rows that it has reached.
struct Call {
  const Matrix& hidden;
  const Linear& head;
  std::span<const int32_t> targets;
  std::span<const float> weights;
  float cap;
  CrossEntropyWorkspace& workspace;
  std::span<Running> running;  // of the block's rows
  int64_t first_row, rows;

  Matrix block_hidden() const { return hidden.row_range(first_row, rows); }
  int32_t target(int64_t t) const { return targets[static_cast<size_t>(first_row + t)]; }
};

Matrix logits_of(const Call& call, int64_t first, int64_t n) {
  const Matrix logits(call.workspace.block.data(), call.rows, n);
  linear_forward(logits, call.block_hidden(), columns(call.head, first, n));
  if (call.cap == 0) return logits;
  parallel_ranges(call.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      soft_cap_with_slope(logits.f32(t), call.workspace.slope.data() + t * n, call.cap, n);
    }
  });
  return logits;
}

void add_logits(const Call& call, const Matrix& logits, int64_t first) {
  parallel_ranges(call.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      add_block(call.running[static_cast<size_t>(t)], logits.f32(t), first, logits.cols, call.target(t));
    }
  });
}

// d_z = weight·(e/sum − [target])·slope from the row's exponentials e, less the row's maximum.
template <class Out>
void logit_gradients(Out* out, float* e, const float* slope, const Running& row, float weight, int64_t target,
                     int64_t n) {
  const auto count = static_cast<size_t>(n);
  if (target >= 0 && target < n) e[target] = static_cast<float>(static_cast<double>(e[target]) - row.sum);
  const auto factor = static_cast<float>(static_cast<double>(weight) / row.sum);
  slope == nullptr ? simd::scaled(e, factor, out, count) : simd::scaled_by(e, factor, slope, out, count);
}

// Exponentials of columns first … first + exponentials.cols − 1 into gradients of their logits, and those into the
// gradients of their inputs.
void add_gradients(const Call& call, const Matrix& d_hidden, const LinearGradients& d_head, const Matrix& exponentials,
                   int64_t first) {
  const int64_t n = exponentials.cols;
  const bool narrow = call.head.weight.type == DType::bf16;
  const Matrix d_logits = narrow ? Matrix(call.workspace.narrow.data(), call.rows, n) : exponentials;
  parallel_ranges(call.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* slope = call.cap == 0 ? nullptr : call.workspace.slope.data() + t * n;
      const Running& row = call.running[static_cast<size_t>(t)];
      const float weight = call.target(t) < 0 ? 0 : call.weights[static_cast<size_t>(call.first_row + t)];
      float* e = exponentials.f32(t);
      narrow ? logit_gradients(d_logits.bf16s(t), e, slope, row, weight, call.target(t) - first, n)
             : logit_gradients(d_logits.f32(t), e, slope, row, weight, call.target(t) - first, n);
    }
  });
  const bool with_hidden = d_hidden.data != nullptr, with_weight = d_head.d_weight.data != nullptr;
  linear_backward(
      with_hidden ? d_hidden.row_range(call.first_row, call.rows) : Matrix(),
      first == 0 ? Store::overwrite : Store::accumulate,
      {with_weight ? d_head.d_weight.row_range(first, n) : Matrix(), d_head.d_bias ? d_head.d_bias + first : nullptr},
      d_logits, call.block_hidden(), call.head.weight.row_range(first, n));
}

}  // namespace

void soft_cap(float* x, float cap, int64_t n) {
  if (cap == 0) return;
  for (int64_t i = 0; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

void cross_entropy_forward(std::span<double> nll, CrossEntropyWorkspace& workspace, const Matrix& hidden,
                           const Linear& head, std::span<const int32_t> targets, float cap) {
  check(nll, hidden, head, targets);
  const int64_t rows = hidden.rows, vocabulary = head.outputs();
  workspace.block.reserve(static_cast<size_t>(rows * kBlock));
  std::vector<Running> running(static_cast<size_t>(rows));
  for (int64_t first = 0; first < vocabulary; first += kBlock) {
    const int64_t n = std::min(kBlock, vocabulary - first);
    const Matrix logits(workspace.block.data(), rows, n);
    linear_forward(logits, hidden, columns(head, first, n));
    parallel_ranges(rows, 4, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        soft_cap(logits.f32(t), cap, n);
        add_block(running[static_cast<size_t>(t)], logits.f32(t), first, n, targets[static_cast<size_t>(t)]);
      }
    });
  }
  for (size_t t = 0; t < nll.size(); ++t) nll[t] = finish(running[t], targets[t], t);
}

double cross_entropy_forward_backward(std::span<double> nll, const Matrix& d_hidden, const LinearGradients& d_head,
                                      CrossEntropyWorkspace& workspace, const Matrix& hidden, const Linear& head,
                                      std::span<const int32_t> targets, std::span<const float> weights, float cap) {
  check(nll, hidden, head, targets);
  if (weights.size() != targets.size() || head.is_packed() || hidden.type != head.type() ||
      hidden.cols != head.inputs()) {
    fail(ErrorCode::shape, "cross entropy: {} weights for {} targets, hidden [{}, {}] {}, head [{}, {}] {}{}",
         weights.size(), targets.size(), hidden.rows, hidden.cols, info(hidden.type).name, head.outputs(),
         head.inputs(), info(head.type()).name, head.is_packed() ? " (packed)" : "");
  }
  const int64_t vocabulary = head.outputs(), columns = vocabulary <= kWhole ? vocabulary : kBlock;
  const int64_t most = std::clamp<int64_t>(kLogits / std::max<int64_t>(columns, 1), 1, kMostRows);
  const auto size = static_cast<size_t>(std::min(most, hidden.rows) * columns);
  workspace.block.reserve(size);
  if (cap != 0) workspace.slope.reserve(size);
  if (hidden.type == DType::bf16) workspace.narrow.reserve(size);
  Running running[kMostRows];
  double loss = 0;
  for (int64_t first_row = 0; first_row < hidden.rows; first_row += most) {
    const int64_t rows = std::min(most, hidden.rows - first_row);
    std::fill_n(running, rows, Running());
    const Call call{hidden,    head, targets, weights, cap, workspace, {running, static_cast<size_t>(rows)},
                    first_row, rows};
    // Pass 1: each row's maximum, sum and target, over all vocabulary blocks.
    Matrix block;
    for (int64_t first = 0; first < vocabulary; first += columns) {
      block = logits_of(call, first, std::min(columns, vocabulary - first));
      add_logits(call, block, first);
    }
    for (int64_t t = 0; t < rows; ++t) {
      const auto row = static_cast<size_t>(first_row + t);
      nll[row] = finish(running[t], targets[row], row);
      loss += static_cast<double>(targets[row] < 0 ? 0 : weights[row]) * nll[row];
    }
    // Pass 2: gradients, of the exponentials that pass 1 left or of those computed again.
    if (columns == vocabulary) {
      add_gradients(call, d_hidden, d_head, block, 0);
      continue;
    }
    for (int64_t first = 0; first < vocabulary; first += columns) {
      block = logits_of(call, first, std::min(columns, vocabulary - first));
      parallel_ranges(rows, 4, [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          simd::exp_sum(block.f32(t), static_cast<float>(running[t].max), block.f32(t),
                        static_cast<size_t>(block.cols));
        }
      });
      add_gradients(call, d_hidden, d_head, block, first);
    }
  }
  return loss;
}

}  // namespace unchain::ops
