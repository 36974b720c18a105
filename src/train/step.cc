#include "train/step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace unchain::train {
namespace {

// The rows of this rank, as micro batches.
std::vector<text::Batch> read_rows(text::Batches& batches, int64_t step, int64_t rows, int64_t micro_rows,
                                   const dist::Comm& comm) {
  // With few rows every rank gets some, not the first ones all of them.
  const int64_t micro = std::min(micro_rows, (rows + comm.ranks() - 1) / comm.ranks());
  std::vector<text::Batch> result;
  for (int64_t i = 0; i * micro * comm.ranks() < rows; ++i) {
    const text::RowRange range = text::rows_of(rows, micro, i, comm.rank(), comm.ranks());
    if (range.count > 0) result.push_back(batches.read(step, range));
  }
  return result;
}

}  // namespace

StepLoss accumulate(Learner& learner, text::Batches& batches, int64_t step, int64_t rows, int64_t micro_rows,
                    double share, dist::Comm& comm) {
  return accumulate(learner, read_rows(batches, step, rows, micro_rows, comm), share, comm);
}

StepLoss accumulate(Learner& learner, std::span<const text::Batch> mine, double share, dist::Comm& comm) {
  double counts[] = {0, 0};  // text tokens, answer tokens
  for (const text::Batch& batch : mine) {
    counts[0] += static_cast<double>(batch.text_targets);
    counts[1] += static_cast<double>(batch.answer_targets);
  }
  comm.sum(std::span<double>(counts));
  // Where one of the two kinds is missing, the other is all of the loss.
  const double parts[] = {counts[1] > 0 ? 1 - share : 1, counts[0] > 0 ? share : 1};
  double weight[2];
  for (int kind = 0; kind < 2; ++kind) weight[kind] = counts[kind] > 0 ? parts[kind] / counts[kind] : 0;

  learner.zero_gradients();
  double sums[] = {0, 0};  // nats of both kinds
  std::vector<double> nll;
  std::vector<float> weights;
  for (const text::Batch& batch : mine) {
    const auto context = static_cast<size_t>(batch.context);
    nll.assign(batch.inputs.size(), 0);
    weights.resize(batch.inputs.size());
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] = static_cast<float>(weight[batch.needles[i / context] ? 1 : 0]);
    learner.forward_backward(nll,
                             {batch.rows, batch.context, batch.inputs, batch.targets, batch.document_starts, weights});
    for (size_t i = 0; i < nll.size(); ++i) sums[batch.needles[i / context] ? 1 : 0] += nll[i];
  }
  comm.sum(std::span<double>(sums));
  if (comm.ranks() > 1) {
    for (const model::Parameter& parameter : learner.parameters()) comm.sum(parameter.gradient);
  }
  const auto mean = [&](int kind) {
    return counts[kind] > 0 ? sums[kind] / counts[kind] : std::numeric_limits<double>::quiet_NaN();
  };
  return {weight[0] * sums[0] + weight[1] * sums[1], mean(0), mean(1)};
}

}  // namespace unchain::train
