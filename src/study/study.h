// A study: trains every planned run, asks each model for needles, and keeps what came of it as one small file a run.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "study/description.h"

namespace unchain::study {

struct StudyProgress {
  double work = 0, total_work = 0;  // tokens of training × parameters, over all runs
  size_t runs_done = 0, runs = 0;
  std::string what;  // the run at hand
};

struct StudyOptions {
  std::filesystem::path out;
  nlohmann::ordered_json machine = nlohmann::ordered_json::object();  // for run.json
  std::function<bool()> stop;                                         // asked after each step: true saves and ends
  std::function<void(const std::string& note)> on_note;               // for the user
  std::function<void(const StudyProgress&)> progress;                 // after each step, and each run
};

// Makes the folder with a vocabulary of so many pieces out of these texts, unless it is there; processes that are at
// it together wait for the first. Errors: those of
// text::read_documents, text::train_vocabulary, text::write_vocabulary.
void make_vocabulary(const std::filesystem::path& folder, int32_t pieces, const std::vector<std::string>& texts);

// The version of what stands in a result.json; older ones are refused.
inline constexpr int kResultVersion = 1;

// Does what is not done yet, run after run, each in OUT/runs/NAME: a training run (docs/training.md) and result.json.
// Several processes may be at one folder: each takes runs that no other is at, and ends when all are done.
// A run is done if its result.json was made from the same description, text and vocabulary (key "key"); that file is
// all that is needed of a run, here or on another machine. One that was stopped goes on from its newest checkpoint, a
// damaged result.json is made again. A run that fails with NaN or infinity has a result that says so.
// Returns the results of all that are done, in the order of `runs`: fewer than these if `stop` ended the study.
// A result: {"version", "key", "track", "size", "member", "seed", "pilot", "parameters",
// "parameters_without_embeddings", "tokens", "tokens_per_s", "loss_nats", "perplexity", "bits_per_byte", "needle":
// [{"right", "asked", "accuracy", "low", "high", "chance", "attention_on_answer", "cells": [{"length", "depth",
// "right", "asked"}]} of each rung asked], "measures": {NAME: {"value", "windows"}}, "layers": {"gain_nats",
// "sensitivity_nats", "a1_rank", "a2_rank"}, "curves": {"loss_nats", "rank_of_a1": [{"fixed", "rank", "loss_nats"}],
// "rank_of_a2", "lambda": {"m", "loss_nats", "best_m", "best_loss_nats"}, "lambda_by_layer"} (RunCurves), "curve":
// [{"tokens", "text_loss_nats", "answer_loss_nats", "gradient_norm", "lambda" by layer}], "ending": {"loss_spikes",
// "slope_nats", "error_nats", "flat"} (analysis::Ending), and where the track asks for it "hessian": [{"step",
// "negative_share": {"mean", "error"}, "zero_share", "negative_weight", "zero_band", "step_error", "lowest": [{"value",
// "residual"}], "highest"}]}; loss and perplexity are those of the validation text. A failed one has "failed", the
// message, in place of all that follows "pilot". Errors: usage (no validation text, a result of another description or
// version); those of train::run, eval::plan_needles, eval::ask_needles, measure_predictions, measure_maps.
std::vector<nlohmann::ordered_json> carry_out(const Description& description, const std::vector<PlannedRun>& runs,
                                              const StudyOptions& options);

// The rung of each track that is judged, by name: nearest to half of the answers right over the pilot runs among these
// results, the first where there are none.
std::map<std::string, size_t> judged_rungs(const Description& description,
                                           const std::vector<nlohmann::ordered_json>& results);

}  // namespace unchain::study
