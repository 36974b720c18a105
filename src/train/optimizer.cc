#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"
#include "ops/adamw.h"

namespace unchain::train {
namespace {

// before ← value − before
void subtract_from(std::span<const float> value, std::span<float> before) {
  parallel_ranges(static_cast<int64_t>(value.size()), 1 << 14, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) before[i] = value[i] - before[i];
  });
}

}  // namespace

Optimizer::Optimizer(std::span<const model::Parameter> parameters, const TrainKeys& keys)
    : beta1_(keys.betas.at(0)), beta2_(keys.betas.at(1)), weight_decay_(keys.weight_decay), clip_(keys.clip) {
  for (const model::Parameter& parameter : parameters) {
    Moments moments{Buffer<float>(parameter.value.size()), Buffer<float>(parameter.value.size())};
    std::ranges::fill(moments.m.span(), 0.0f);
    std::ranges::fill(moments.v.span(), 0.0f);
    moments_.push_back(std::move(moments));
  }
}

OptimizerReport Optimizer::step(std::span<const model::Parameter> parameters, int64_t step, double learning_rate,
                                bool measure_updates) {
  OptimizerReport report;
  double total = 0;
  for (const model::Parameter& parameter : parameters) {
    const double squares = ops::sum_squares(parameter.gradient);
    if (!std::isfinite(squares))
      fail(ErrorCode::numeric, "the gradient of {} is not finite; try a smaller train.learning_rate", parameter.name);
    report.group_norms[parameter.group] += squares;
    total += squares;
  }
  for (auto& [group, norm] : report.group_norms) norm = std::sqrt(norm);
  report.gradient_norm = std::sqrt(total);
  const double scale = clip_ > 0 && report.gradient_norm > clip_ ? clip_ / report.gradient_norm : 1;

  std::map<std::string, double> weights, changes;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const model::Parameter& parameter = parameters[i];
    const ops::AdamW options = {.learning_rate = learning_rate,
                                .beta1 = beta1_,
                                .beta2 = beta2_,
                                .weight_decay = parameter.decays ? weight_decay_ : 0};
    if (measure_updates) {
      weights[parameter.group] += ops::sum_squares(parameter.value);
      before_.reserve(parameter.value.size());
      std::ranges::copy(parameter.value, before_.data());
    }
    ops::adamw_step({parameter.value, m(i), v(i), parameter.narrow}, parameter.gradient, step, scale, options);
    if (measure_updates) {
      const std::span<float> before = before_.span().first(parameter.value.size());
      subtract_from(parameter.value, before);
      changes[parameter.group] += ops::sum_squares(before);
    }
  }
  for (const auto& [group, change] : changes)
    report.update_ratios[group] = weights[group] > 0 ? std::sqrt(change / weights[group]) : 0;
  return report;
}

}  // namespace unchain::train
