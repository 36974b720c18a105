// One training step: rows, gradients over micro batches and ranks, one move of the optimizer.
#pragma once

#include <span>

#include "dist/comm.h"
#include "text/batches.h"
#include "train/learner.h"
#include "train/optimizer.h"

namespace unchain::train {

struct StepLoss {
  double loss_nats = 0;         // what is minimised: (1 − share)·text + share·answers
  double text_loss_nats = 0;    // mean over the step's text tokens; NaN without any
  double answer_loss_nats = 0;  // mean over its answer tokens; NaN without any
};

// Adds up the gradient of the loss of step number `step` (from 0) over all its rows, on all ranks: every rank ends with
// the same loss and gradient. Means are over the whole step: the weight of a token does not depend on how rows fall to
// micro batches and ranks. `share` is of the answers; micro_rows the most rows that a rank computes at once.
// Errors: numeric, usage: as the model's.
StepLoss accumulate(Learner& learner, text::Batches& batches, int64_t step, int64_t rows, int64_t micro_rows,
                    double share, dist::Comm& comm);
// The same for rows that are read already: the micro batches of this rank, perhaps none.
StepLoss accumulate(Learner& learner, std::span<const text::Batch> mine, double share, dist::Comm& comm);

}  // namespace unchain::train
