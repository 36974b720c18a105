// One run of a study from its first step to its figures.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/choice.h"
#include "study/description.h"
#include "study/measure.h"
#include "study/study.h"

namespace unchain::study {

// Keeps what runs have in common: texts as tokens, questions. Not thread-safe.
class Runner {
 public:
  Runner(const Description& description, const StudyOptions& options);

  // Trains the run in its folder, or goes on with it, asks these rungs of needles, and measures. The entries of its
  // result that follow "pilot" (carry_out()); null if it was stopped. on_step(step) after each step of training.
  // Errors: as carry_out().
  nlohmann::ordered_json carry_out(const PlannedRun& run, const std::vector<eval::NeedleOptions>& needle,
                                   const std::filesystem::path& folder,
                                   const std::function<void(int64_t step)>& on_step);

 private:
  struct Trained;
  const std::vector<int32_t>& text_of(const std::string& file, const tokenizer::Tokenizer& tokenizer);
  const eval::ChoiceSet& last_words_of(const std::string& file);
  nlohmann::ordered_json measure(const PlannedRun& run, Trained& trained, Measures& measures);

  const Description& description_;
  const StudyOptions& options_;
  std::map<std::string, std::vector<int32_t>> texts_;
  std::map<std::string, eval::ChoiceSet> last_words_;
};

}  // namespace unchain::study
