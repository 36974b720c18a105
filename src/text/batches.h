// What a training step reads. Everything is a pure function of the place in the run — step, row — so that a resumed run
// goes on with the same rows, and any number of ranks shares the same rows of a step.
//
// The token stream is cut into samples of context + 1 tokens that share one token, so that each token but the first is
// a target once an epoch (what is left at the end, less than a sample, is not used). An epoch visits the samples in the
// order of a permutation of its own, made from the seed; the next begins where it ends, within a step if need be.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text/needle_documents.h"
#include "text/token_file.h"

namespace unchain::text {

struct BatchOptions {
  int64_t context = 256;
  int64_t rows = 1;          // of a step, over all ranks and micro steps
  int64_t steps = 1;         // of the run: how far the needles have risen
  double needle_share = 0;   // the part of a step's rows that are needle documents, to the nearest row
  int64_t needle_steps = 0;  // that many first steps are needle documents alone
  bool separate_documents = false;
  uint64_t seed = 0;
};

// Rows of a step. Positions of tokens (for the rotary embedding) go on through a row, 0 … context − 1, whatever
// documents it holds: scores depend on differences of positions alone.
struct Batch {
  int64_t rows = 0, context = 0;
  std::vector<int32_t> inputs;   // [rows, context]
  std::vector<int32_t> targets;  // [rows, context], −1: no loss
  std::vector<int32_t>
      document_starts;        // [rows, context]: the first position that the token may see; 0 unless separate
  std::vector<bool> needles;  // [rows]: whether the row is needle documents
  int64_t text_targets = 0, answer_targets = 0;
};

// Rows first … first + count − 1 of a step.
struct RowRange {
  int64_t first = 0, count = 0;
};

// Of `micro_rows` rows for each rank in each micro step, those of this one; the last ones of a step may be fewer, or 0.
RowRange rows_of(int64_t rows, int64_t micro_rows, int64_t micro_step, int64_t rank, int64_t ranks);

// Not thread-safe (it keeps the order of the epoch it is in).
class Batches {
 public:
  // `needles` may be null where needle_share is 0. Errors: usage (sizes out of range, a share without needles); format
  // (the data is shorter than one sample).
  Batches(TokenFile data, const BatchOptions& options, std::shared_ptr<const NeedleDocuments> needles = nullptr);

  int64_t samples() const { return samples_; }  // of an epoch
  int64_t needle_rows_at(int64_t step) const { return step < options_.needle_steps ? options_.rows : needle_rows_; }
  // These rows of a step, all within 0 … options.rows − 1.
  Batch read(int64_t step, RowRange range);
  // These samples in the order of the text, without needles: for evaluation.
  Batch in_order(RowRange range) const;

 private:
  void read_sample(int64_t sample, int64_t row, Batch& batch) const;
  int64_t sample_at(int64_t number);  // of all samples of the run, epoch after epoch

  TokenFile data_;
  BatchOptions options_;
  std::shared_ptr<const NeedleDocuments> needles_;
  int64_t samples_;
  int64_t needle_rows_;  // of a step that has text too
  int64_t epoch_ = -1;
  std::vector<uint32_t> order_;
};

}  // namespace unchain::text
