// A model that learns: the same transformer as model/transformer.h with f32 master weights, gradients, and under bf16 a
// rounded copy of each matrix for the products.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/maps.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace unchain::model {

class ModelFile;

// One tensor that is trained. Spans point into memory of the model; all f32 ones have the same length.
struct Parameter {
  std::string name;   // as in a checkpoint: "model.layers.0.self_attn.q_proj.weight"
  std::string group;  // for gradient norms: embedding, attention, lambda, feed_forward, norm
  Shape shape;
  bool decays = false;        // weight decay applies: matrices, not norms, λ or biases
  std::span<float> value;     // master weights
  std::span<float> gradient;  // Σ of what forward_backward() added
  std::span<bf16> narrow;  // value rounded, under bf16; empty in f32 and for vectors. Whoever changes value renews it
  bool frozen = false;     // no gradient: it stays as it is
};

// Rows of equal length; row r's token t is number r·context + t. Positions count 0 … context − 1 in every row.
struct TrainRows {
  int64_t rows = 0, context = 0;
  std::span<const int32_t> inputs;
  std::span<const int32_t> targets;  // −1: no loss
  std::span<const int32_t> starts;   // first position that each token may see; empty: 0
  std::span<const float> weights;    // of each token's loss; empty: 1
};

// Not thread-safe; uses all threads itself. Memory is got at the first step and when a larger one comes.
class Trainable {
 public:
  // New weights from the seed (config.initializer_range; norms 1), the same for any number of threads and, tensor by
  // tensor of equal name and shape, for every member of the family. Errors: usage, shape (sizes that no layout fits).
  Trainable(const Config& config, DType dtype, uint64_t seed);
  // The weights of a file, as f32. Errors: as load().
  Trainable(const ModelFile& file, DType dtype);
  ~Trainable();
  Trainable(Trainable&&) noexcept;

  const Config& config() const;
  DType dtype() const;
  std::span<Parameter> parameters();
  int64_t parameter_count() const;  // the tied embedding once

  // Keep only the residual stream between layers and compute the rest of a layer again in backward.
  void set_recompute(bool recompute);

  void zero_gradients();
  // nll[rows·context] (nats, 0 where the target is −1); adds the gradient of Σ weight·nll to every parameter's.
  // An observer is shown the gradients of maps and gates on the way; without one nothing is computed for it. Errors:
  // usage (ids outside the vocabulary; an observer with more than one row or with starts); unsupported (an observer
  // under bf16); numeric (NaN or infinity, with layer and row); whatever the observer throws.
  void forward_backward(std::span<double> nll, const TrainRows& rows, attention::GradientObserver* observer = nullptr);
  // nll alone.
  void forward(std::span<double> nll, const TrainRows& rows);

  // λ of each layer, averaged over heads and the rows of the last step; NaN for layers without one.
  std::vector<double> lambdas() const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// Numbers that a model of this configuration trains, the tied embedding once. Errors: as Trainable.
int64_t parameter_count(const Config& config);

}  // namespace unchain::model
