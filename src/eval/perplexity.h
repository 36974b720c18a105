// How well a model predicts a text: exp of the mean negative log-likelihood of its tokens.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "eval/windows.h"
#include "model/transformer.h"
#include "tokenizer/tokenizer.h"

namespace unchain::eval {

struct PerplexityResult {
  double nll_nats = 0;       // mean over the scored tokens
  double perplexity = 0;     // e^nll_nats
  double bits_per_byte = 0;  // Σ NLL/(ln 2 · UTF-8 bytes of the scored tokens); NaN without a tokenizer
  int64_t tokens_scored = 0;
  double seconds = 0;                   // of the forward passes
  int64_t tokens_read = 0;              // by the forward passes, those that are not scored among them
  std::vector<double> window_nll_nats;  // mean of each window
};

// Scores each window from an empty context. `tokenizer` may be nullptr. `progress(done, total)` after each window.
// Errors: those of Context::extend.
PerplexityResult perplexity(const std::shared_ptr<const model::Transformer>& model,
                            const tokenizer::Tokenizer* tokenizer, const std::vector<Window>& windows,
                            const std::function<void(size_t, size_t)>& progress = {});

}  // namespace unchain::eval
