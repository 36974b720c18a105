// The Hessian's spectrum of a model's loss (analysis/hessian.h) at its weights.
#pragma once

#include <span>

#include "analysis/hessian.h"
#include "model/trainable.h"

namespace unchain::analysis {

// The spectrum for θ = all parameters of the model that are not frozen, in their order, and f = the mean loss (nats) of
// the tokens with a target, over all of `batch`: parts of one fixed batch, computed one after another. Weights of
// tokens count: f = Σ weight·nll/Σ weight. θ is rounded to f32 where f is taken, which moves H v by some 2.4e-5 of ‖H‖.
// Afterwards, an error or not, the weights have the bits that they had; the gradients are lost.
// Errors: unsupported (bf16 products: their rounding hides the differences); usage (no token with a target, nothing to
// train); as hessian_spectrum(); the model's.
HessianSpectrum model_hessian(model::Trainable& model, std::span<const model::TrainRows> batch,
                              const HessianOptions& options = {});

}  // namespace unchain::analysis
