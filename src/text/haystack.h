// The text around needles: neutral sentences of our own, or a given text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"

namespace unchain::text {

// Sentences that say nothing of cities and numbers, no digits in them.
const std::vector<std::string_view>& neutral_sentences();

// A text cut into units: sentences and lines; what is longer than 200 bytes is cut after a blank too, or, where there
// is none, between characters. Immutable, safe to share between threads. Units keep the blank or line end behind them.
class Haystack {
 public:
  Haystack();  // the neutral sentences
  // Error: format (nothing but blanks; `name` is the file's).
  Haystack(std::string text, const std::string& name);
  Haystack(const Haystack&) = delete;
  Haystack& operator=(const Haystack&) = delete;
  // An endless run of units: shuffled neutral sentences (all of them, then all of them again), or the text from a
  // random unit on, in its order and round and round.
  class Run {
   public:
    Run(const Haystack& haystack, Rng rng);
    std::string_view next();

   private:
    const Haystack& haystack_;
    Rng rng_;
    size_t at_ = 0;
    std::vector<size_t> order_;  // of the neutral sentences
  };

 private:
  std::string text_;
  bool shuffled_ = false;
  std::vector<std::pair<size_t, size_t>> units_;  // first byte, bytes
};

}  // namespace unchain::text
