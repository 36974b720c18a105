#include "train/learner.h"

#include "model/save_config.h"

namespace unchain::train {
namespace {

class TransformerLearner : public Learner {
 public:
  TransformerLearner(const model::Config& config, DType dtype, uint64_t seed, bool recompute)
      : model_(config, dtype, seed) {
    model_.set_recompute(recompute);
  }
  std::span<model::Parameter> parameters() override { return model_.parameters(); }
  void zero_gradients() override { model_.zero_gradients(); }
  void forward_backward(std::span<double> nll, const model::TrainRows& rows) override {
    model_.forward_backward(nll, rows);
  }
  void forward(std::span<double> nll, const model::TrainRows& rows) override { model_.forward(nll, rows); }
  std::vector<double> lambdas() const override { return model_.lambdas(); }
  std::string config_json() const override { return model::config_json(model_.config()); }

 private:
  model::Trainable model_;
};

}  // namespace

std::unique_ptr<Learner> make_learner(const model::Config& config, DType dtype, uint64_t seed, bool recompute) {
  return std::make_unique<TransformerLearner>(config, dtype, seed, recompute);
}

}  // namespace unchain::train
