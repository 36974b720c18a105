#include "analysis/hessian_model.h"

#include <vector>

#include "base/check.h"

namespace unchain::analysis {
namespace {

// Σ weight over tokens with a target.
double weight_of(std::span<const model::TrainRows> batch) {
  double sum = 0;
  for (const model::TrainRows& rows : batch) {
    if (!rows.weights.empty() && rows.weights.size() != rows.targets.size()) {
      fail(ErrorCode::shape, "hessian: {} targets with {} weights, expected as many or none", rows.targets.size(),
           rows.weights.size());
    }
    for (size_t i = 0; i < rows.targets.size(); ++i) {
      if (rows.targets[i] >= 0) sum += rows.weights.empty() ? 1.0 : static_cast<double>(rows.weights[i]);
    }
  }
  return sum;
}

// The weights of a model as one vector. It puts them back when it goes.
class Weights {
 public:
  explicit Weights(model::Trainable& model) {
    for (const model::Parameter& p : model.parameters()) {
      if (p.frozen) continue;
      parameters_.push_back(&p);
      kept_.insert(kept_.end(), p.value.begin(), p.value.end());
    }
  }
  ~Weights() { set(kept_); }
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  const std::vector<float>& kept() const { return kept_; }

  template <class Numbers>
  void set(const Numbers& theta) const {
    size_t at = 0;
    for (const model::Parameter* p : parameters_) {
      for (float& x : p->value) x = static_cast<float>(theta[at++]);
    }
  }
  void get_gradient(std::span<double> g, double factor) const {
    size_t at = 0;
    for (const model::Parameter* p : parameters_) {
      for (const float x : p->gradient) g[at++] = factor * static_cast<double>(x);
    }
  }

 private:
  std::vector<const model::Parameter*> parameters_;
  std::vector<float> kept_;
};

}  // namespace

HessianSpectrum model_hessian(model::Trainable& model, std::span<const model::TrainRows> batch,
                              const HessianOptions& options) {
  if (model.dtype() != DType::f32) {
    fail(ErrorCode::unsupported,
         "hessian: the model computes in {}, whose rounding hides differences; open it with f32",
         info(model.dtype()).name);
  }
  const double weight = weight_of(batch);
  if (!(weight > 0)) fail(ErrorCode::usage, "hessian: the batch has no token with a target and a positive weight");
  const Weights weights(model);
  if (weights.kept().empty()) fail(ErrorCode::usage, "hessian: every parameter of the model is frozen");
  std::vector<double> nll;
  const Gradient gradient = [&](std::span<double> g, std::span<const double> theta) {
    weights.set(theta);
    model.zero_gradients();
    for (const model::TrainRows& rows : batch) {
      nll.resize(rows.targets.size());
      model.forward_backward(nll, rows);
    }
    weights.get_gradient(g, 1 / weight);
  };
  return hessian_spectrum(gradient, std::vector<double>(weights.kept().begin(), weights.kept().end()), options);
}

}  // namespace unchain::analysis
