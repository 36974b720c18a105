// A training run from its first step to its last, in a folder of its own: run.json, metrics.jsonl, checkpoints/,
// model/.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "dist/comm.h"
#include "train/config.h"
#include "train/data.h"
#include "train/learner.h"

namespace unchain::train {

// Two runs of one configuration, data and thread count have the same bits, stopped and resumed or not.
struct RunOptions {
  std::filesystem::path out;
  bool resume = false;  // go on from the newest checkpoint; without one, begin
  nlohmann::ordered_json machine = nlohmann::ordered_json::object();  // for run.json
  std::filesystem::path cache;                                        // for token files; empty: out/tokens
  bool samples = false;        // at checkpoints with a validation loss: what the model writes, to samples.jsonl
  std::function<bool()> stop;  // asked after each step: true saves and ends
  // The metrics of each step, as they go to metrics.jsonl; on the first rank.
  std::function<void(const nlohmann::ordered_json& metrics)> on_step;
  std::function<void(const std::string& note)> on_note;  // for the user: resumed, spikes
  std::function<void(const model::Config&)> on_start;    // before the first step
};

struct RunResult {
  int64_t step = 0, steps = 0;
  bool stopped = false;  // before the end, on demand
  double loss_nats = 0;  // of the validation text; without one, of the last step's text
  double perplexity = 0;
  double bits_per_byte = 0;  // NaN without a validation text
  double tokens_per_s = 0;   // of the steps of this call, without evaluation and saving; 0 without any
  int64_t tokens = 0;        // of the whole run so far
  int64_t spikes = 0;        // of this call
};

using MakeLearner =
    std::function<std::unique_ptr<Learner>(const model::Config& config, DType dtype, uint64_t seed, bool recompute)>;

// The model's configuration: the section `model`, with vocab_size from the vocabulary, max_position_embeddings from the
// context, and model_type where they are absent. Writes what it adds into the section. Errors: format, unsupported,
// usage (fewer rows than pieces).
model::Config model_config(RunConfig& config, int64_t pieces);

// Trains. Every rank calls it; the first alone writes. Errors: usage (the folder holds something else, a resumed run
// differs: names the key); io, format (data, checkpoints); numeric (NaN or infinity, with step and place; unequal
// weights on two ranks).
RunResult run(RunConfig config, const RunOptions& options, dist::Comm& comm, const MakeLearner& make = make_learner);

// The most memory that this process has held so far, in bytes.
int64_t peak_memory_bytes();

}  // namespace unchain::train
