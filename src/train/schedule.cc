#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace unchain::train {

double learning_rate(const TrainKeys& keys, int64_t step) {
  const int64_t steps = keys.steps(), warm = std::llround(keys.warmup * static_cast<double>(steps));
  const double peak = keys.learning_rate, least = keys.min_learning_rate;
  if (step < warm) return peak * static_cast<double>(step + 1) / static_cast<double>(warm);
  if (keys.schedule == "constant") return peak;
  const double done = static_cast<double>(step - warm) / static_cast<double>(std::max<int64_t>(1, steps - 1 - warm));
  const double left = 1 - std::min(1.0, done);
  if (keys.schedule == "linear") return least + (peak - least) * left;
  return least + (peak - least) * (1 - std::cos(std::numbers::pi * left)) / 2;
}

}  // namespace unchain::train
