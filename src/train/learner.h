// What the loop asks of a model: a seam, so that the loop can be tested on models whose gradient is known by hand.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/trainable.h"

namespace unchain::train {

// The functions mean what those of model::Trainable mean.
class Learner {
 public:
  virtual ~Learner() = default;
  virtual std::span<model::Parameter> parameters() = 0;
  virtual void zero_gradients() = 0;
  virtual void forward_backward(std::span<double> nll, const model::TrainRows& rows) = 0;
  virtual void forward(std::span<double> nll, const model::TrainRows& rows) = 0;
  virtual std::vector<double> lambdas() const = 0;
  // The config.json of a folder with these weights.
  virtual std::string config_json() const = 0;
};

// The transformer. Errors: those of model::Trainable.
std::unique_ptr<Learner> make_learner(const model::Config& config, DType dtype, uint64_t seed, bool recompute);

}  // namespace unchain::train
