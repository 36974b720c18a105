// Training documents that ask to look back: needles in filler, every one of them asked at the end, with loss on the
// answers alone, all that a model has to write when it is asked: the digits and the ';'. Each needle is asked once, and
// as many questions again are about any of them: were each asked just once, a model that gives any number not given
// before would do half as well as one that looks the name up, and training gets no further than that.
//
//   filler … Kamark42; … filler … Daport17; … filler
//   Daport17;
//   Kamark42;
//   Daport17;
//   Daport17;
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "text/haystack.h"
#include "text/needle_text.h"

namespace unchain::text {

struct NeedleDocumentOptions {
  NeedleForm form = NeedleForm::pair;
  int64_t count = 4;       // needles in a document, in the end
  double rise = 0.1;       // the part of the run over which their number rises: 1, 2, 4 … count
  int64_t filler = 0;      // most tokens of filler in a document; 0: as many as the context holds
  double filler_rise = 0;  // the part of the run over which this limit rises from 0; 0: it holds from the start
  uint64_t seed = 0;
};

// Rows of a batch, each filled with such documents one after the other. What is left at a row's end and too short for
// one more is filler without loss. No city comes twice in a row as long as there are names. Immutable, safe to share
// between threads.
class NeedleDocuments {
 public:
  // `text`: filler for half of the documents, the neutral sentences of the program for the others; null: those for all.
  // Errors: usage (options out of range, `count` needles do not fit into `context` tokens).
  NeedleDocuments(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const NeedleDocumentOptions& options,
                  int64_t context, std::shared_ptr<const Haystack> text = nullptr);

  // Row `index` of all, as it is at `progress` in [0, 1] of the run; a pure function of these and the seed. inputs,
  // targets, document_starts [context]: the tokens; the token after each where it counts, else −1; the place in the row
  // where the document of each begins.
  void fill_row(uint64_t index, double progress, std::span<int32_t> inputs, std::span<int32_t> targets,
                std::span<int32_t> document_starts) const;

  int64_t context() const { return context_; }
  int64_t needles_at(double progress) const;
  int64_t filler_at(double progress) const;

 private:
  struct Document {
    std::vector<int32_t> ids;   // BOS in front where there is one
    std::vector<bool> answers;  // whether the token is part of an answer
  };
  // Of at most `room` tokens; empty if even without filler it is longer.
  Document document(size_t needles, int64_t filler, int64_t room, NeedleDrawer& drawer, Rng& rng) const;
  Document compose(std::string_view filler, const std::vector<Needle>& needles, const std::vector<double>& places,
                   const std::vector<size_t>& asked) const;
  double tokens_per_byte(const Haystack& haystack) const;

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  NeedleDocumentOptions options_;
  int64_t context_;
  Haystack neutral_;
  std::shared_ptr<const Haystack> text_;
  double neutral_rate_ = 0, text_rate_ = 0;  // tokens a byte of filler, about
};

}  // namespace unchain::text
