// The learning rate over a run.
#pragma once

#include "train/config.h"

namespace unchain::train {

// Of step 0 … steps − 1. With w = round(warmup·steps) it rises over the first w steps, learning_rate·(step + 1)/w, then
// falls to min_learning_rate, which the last step has: along half a cosine, or straight; `constant` stays.
double learning_rate(const TrainKeys& keys, int64_t step);

}  // namespace unchain::train
