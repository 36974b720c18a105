// Checkpoints: DIR/checkpoints/step-00000100 is a model folder with optimizer.safetensors (Adam's means "m.NAME",
// "v.NAME") and state.json beside the weights. Each appears under its name when it is complete.
#pragma once

#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/learner.h"
#include "train/optimizer.h"

namespace unchain::train {

// Where a run is: with the configuration, all that its next step depends on besides weights and Adam's means. Rows of
// data follow from the step.
struct RunState {
  int64_t step = 0;  // steps done
  uint64_t seed = 0;
  uint64_t text_hash = 0, vocabulary_hash = 0;  // of the training data
  std::deque<double> losses, gradient_norms;    // of the last steps, for the spike detectors
  double text_loss_nats = 0;                    // of the last step
};

// Of all values, in the order of the parameters.
uint64_t hash_weights(std::span<const model::Parameter> parameters);

// A Hugging Face folder with these weights as f32 and the tokenizer files of the folder `vocabulary`. What has the name
// already is replaced. Errors: io.
void save_model(const std::filesystem::path& folder, Learner& learner, const std::filesystem::path& vocabulary);

// Writes the checkpoint of state.step into the run folder `out`, then removes all but the last `keep`; returns its
// folder. Errors: io.
std::filesystem::path save_checkpoint(const std::filesystem::path& out, Learner& learner, Optimizer& optimizer,
                                      const RunState& state, const std::filesystem::path& vocabulary, int64_t keep);

// All complete checkpoints of a run folder, by their steps, the first one first.
std::vector<std::pair<int64_t, std::filesystem::path>> checkpoints(const std::filesystem::path& out);

// The newest complete checkpoint of a run folder.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& out);

// Fills weights (with their rounded copies), Adam's means, and the state. Errors: io; format (cut, damaged, of another
// version, or of another model).
RunState load_checkpoint(const std::filesystem::path& folder, Learner& learner, Optimizer& optimizer);

// Removes what a run that was killed had not finished.
void remove_leftovers(const std::filesystem::path& out);

}  // namespace unchain::train
