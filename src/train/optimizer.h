// AdamW over all parameters of a model, the gradient clipped by its global norm.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/trainable.h"
#include "train/config.h"

namespace unchain::train {

struct OptimizerReport {
  double gradient_norm = 0;                     // before clipping
  std::map<std::string, double> group_norms;    // of each Parameter::group
  std::map<std::string, double> update_ratios;  // ‖change‖/‖weights‖ by group, if asked for
};

// Not thread-safe. The parameters are handed in at each call: always the same, in one order.
class Optimizer {
 public:
  Optimizer(std::span<const model::Parameter> parameters, const TrainKeys& keys);

  // Step number `step`, from 1. Errors: numeric (a gradient that is not finite, with the parameter's name).
  OptimizerReport step(std::span<const model::Parameter> parameters, int64_t step, double learning_rate,
                       bool measure_updates = false);

  // Adam's two means of parameter i.
  std::span<float> m(size_t i) { return moments_.at(i).m.span(); }
  std::span<float> v(size_t i) { return moments_.at(i).v.span(); }

 private:
  struct Moments {
    Buffer<float> m, v;
  };
  double beta1_, beta2_, weight_decay_, clip_;
  std::vector<Moments> moments_;
  Buffer<float> before_;  // of one parameter
};

}  // namespace unchain::train
