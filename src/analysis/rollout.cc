#include "analysis/rollout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "ops/gemm.h"
#include "simd/kernels.h"

namespace unchain::analysis {
namespace {

// row[keys] += P of one head's row, or |P|.
void add_row(float* row, const attention::MapPanel& panel, int head, int64_t r, Flow which) {
  const float* positive = panel.positive_row(head, r);
  const float* noise = panel.noise ? panel.noise_row(head, r) : nullptr;
  const float lambda = noise ? panel.lambda[head * panel.rows + r] : 0;
  bool finite = true;
  for (int64_t j = 0; j < panel.keys; ++j) {
    const float p = noise ? positive[j] - lambda * noise[j] : positive[j];
    row[j] += which == Flow::magnitude ? std::abs(p) : p;
    finite &= std::isfinite(p);
  }
  if (!finite) {
    fail(ErrorCode::numeric, "rollout: layer {}, head {}, row {}: weights are not finite", panel.layer, head,
         panel.first_row + r);
  }
}

// P̄ + I over its Σ|·|, from the sum over heads. A row of zeros, as −1 on the diagonal alone would leave, stays one.
void normalise(float* row, int64_t position, int64_t keys, int heads) {
  simd::scale(row, 1 / static_cast<float>(heads), static_cast<size_t>(keys));
  row[position] += 1;
  double sum = 0;
  for (int64_t j = 0; j < keys; ++j) sum += std::abs(static_cast<double>(row[j]));
  if (sum > 0) simd::scale(row, static_cast<float>(1 / sum), static_cast<size_t>(keys));
}

}  // namespace

Rollout::Rollout(int64_t tokens) : tokens_(tokens) {
  if (tokens < 1) fail(ErrorCode::usage, "rollout: {} tokens, expected 1 at least", tokens);
  const auto numbers = static_cast<size_t>(tokens * tokens);
  for (size_t f = 0; f < kFlows; ++f) {
    before_[f].reserve(numbers);
    after_[f].reserve(numbers);
    std::fill_n(before_[f].data(), numbers, 0.0f);
    std::fill_n(after_[f].data(), numbers, 0.0f);
    for (int64_t i = 0; i < tokens; ++i) before_[f][static_cast<size_t>(i * (tokens + 1))] = 1;
  }
}

void Rollout::on_maps(const attention::MapPanel& panel) {
  if (panel.layer != layers_ || panel.first_row != rows_ || panel.keys > tokens_) {
    fail(ErrorCode::shape, "rollout: layer {}, rows {} to {}; expected layer {}, rows from {} on, {} in all",
         panel.layer, panel.first_row, panel.keys - 1, layers_, rows_, tokens_);
  }
  const auto numbers = static_cast<size_t>(panel.rows * panel.keys);
  mean_.reserve(numbers);
  for (const Flow which : {Flow::signed_map, Flow::magnitude}) {
    const auto f = static_cast<size_t>(which);
    std::fill_n(mean_.data(), numbers, 0.0f);
    const Matrix mean(mean_.data(), panel.rows, panel.keys);
    for (int64_t r = 0; r < panel.rows; ++r) {
      for (int head = 0; head < panel.heads; ++head) add_row(mean.f32(r), panel, head, r, which);
      normalise(mean.f32(r), panel.first_row + r, panel.keys, panel.heads);
    }
    // Rows of R reach no key behind their own position.
    const Matrix from(before_[f].data(), panel.keys, panel.keys, tokens_);
    ops::gemm(Matrix(after_[f].data() + panel.first_row * tokens_, panel.rows, panel.keys, tokens_), mean, from,
              ops::Transpose::no);
  }
  rows_ += panel.rows;
}

void Rollout::end_layer(int layer) {
  if (rows_ != tokens_) fail(ErrorCode::shape, "rollout: layer {} has {} rows, expected {}", layer, rows_, tokens_);
  std::swap(before_, after_);
  rows_ = 0;
  ++layers_;
}

Matrix Rollout::flow(Flow which) {
  return {before_[static_cast<size_t>(which)].data(), tokens_, tokens_};
}

double flow_share(const Matrix& flow, int64_t row, int64_t begin, int64_t end) {
  if (row < 0 || row >= flow.rows || begin < 0 || end < begin || end > flow.cols) {
    fail(ErrorCode::usage, "flow: row {} and keys {} to {} of a map of {} rows and {} keys", row, begin, end, flow.rows,
         flow.cols);
  }
  double part = 0, whole = 0;
  for (int64_t j = 0; j < flow.cols; ++j) {
    const double magnitude = std::abs(static_cast<double>(flow.f32(row)[j]));
    whole += magnitude;
    if (j >= begin && j < end) part += magnitude;
  }
  return whole > 0 ? part / whole : 0;
}

}  // namespace unchain::analysis
