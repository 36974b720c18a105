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

// The version of what the numbers in a result.json mean; others are refused. A further number does not change it: a
// result that lacks what verdicts rest on is made again, and what none rests on may be absent.
inline constexpr int kResultVersion = 1;

// Does what is not done yet, run after run, each in OUT/runs/NAME: a training run (docs/training.md) and result.json.
// Several processes may be at one folder: each takes runs that no other is at, and ends when all are done.
// A run is done if its result.json was made from the same description, text and vocabulary (key "key"); that file is
// all that is needed of a run, here or on another machine. One that was stopped goes on from its newest checkpoint, a
// damaged result.json is made again. A run that fails with NaN or infinity has a result that says so.
// Returns the results of all that are done, in the order of `runs`: fewer than these if `stop` ended the study.
// What stands in a result: docs/study.md, "A result". A failed one has "failed", the message, in place of all that
// follows "pilot". Errors: usage (no validation text, a result of another description or version); those of train::run,
// ask_rungs, measure_model, measure_last_words, measure_hessian.
std::vector<nlohmann::ordered_json> carry_out(const Description& description, const std::vector<PlannedRun>& runs,
                                              const StudyOptions& options);

// The rung of each track that is judged, by name: nearest to half of the answers right over the pilot runs among these
// results, the first where there are none.
std::map<std::string, size_t> judged_rungs(const Description& description,
                                           const std::vector<nlohmann::ordered_json>& results);

}  // namespace unchain::study
