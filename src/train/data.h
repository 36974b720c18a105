// The data of a run: tokens to train on and to validate with, opened by all ranks, written to the cache by the first.
#pragma once

#include <memory>
#include <optional>

#include "dist/comm.h"
#include "text/batches.h"
#include "tokenizer/tokenizer.h"
#include "train/config.h"
#include "train/learner.h"

namespace unchain::train {

struct ValidLoss {
  double loss_nats = 0, perplexity = 0, bits_per_byte = 0;
  int64_t tokens = 0;  // scored
};

// The validation text, cut into rows of the context side by side; all tokens but the first and what is left at the end
// are scored once.
class Validation {
 public:
  Validation(const text::TokenFile& tokens, const tokenizer::Tokenizer& tokenizer, const RunConfig& config);
  // The same for any number of ranks, to rounding. Uses nothing of the training step but memory.
  ValidLoss measure(Learner& learner, dist::Comm& comm) const;
  // The first tokens of the text, at most a row: a prompt for samples.
  std::vector<int32_t> beginning(int64_t count) const;

 private:
  text::Batches batches_;
  int64_t context_, micro_;
  int64_t bytes_ = 0;  // of the text that is scored
};

struct RunData {
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::unique_ptr<text::Batches> batches;
  std::optional<Validation> validation;  // absent without data.valid
  uint64_t text_hash = 0, vocabulary_hash = 0;
};

// The tokenizer of the folder data.vocabulary. Errors: those of tokenizer::from_folder.
std::shared_ptr<const tokenizer::Tokenizer> open_vocabulary(const RunConfig& config);

// Reads and tokenises all files; `cache` is a folder for token files. Errors: those of text::cached_tokens and
// text::Batches.
RunData open_data(const RunConfig& config, std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                  const std::filesystem::path& cache, dist::Comm& comm);

}  // namespace unchain::train
