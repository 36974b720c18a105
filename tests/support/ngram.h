// The plainest model of a text, to hold trained ones against: how often a piece followed the pieces before it, with
// interpolated absolute discounting. c counts what was added, h' is h without its first piece:
//   p(w | h) = max(c(h w) − D, 0)/c(h) + D·|{w: c(h w) > 0}|/c(h) · p(w | h'),   p(w | h') alone where c(h) = 0;
// below the empty history all pieces are equally likely. Histories hold at most order − 1 pieces.
// Source: Chen and Goodman, "An empirical study of smoothing techniques for language modeling", 1999, section 2.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace unchain::test {

class NGram {
 public:
  // Pieces are 0 … vocabulary − 1, fewer than 2²¹; order 1 to 3.
  explicit NGram(int64_t vocabulary, size_t order = 3, double discount = 0.75);

  // The first token of a document (BOS) is history alone and never predicted; histories do not reach back beyond it.
  void add(std::span<const int32_t> document);
  // Of `next` after this history, of which no more than is used.
  double probability(std::span<const int32_t> history, int32_t next) const;
  // −Σ ln p of all tokens of a document but the first.
  double nats(std::span<const int32_t> document) const;

 private:
  struct Followers {
    int64_t tokens = 0, kinds = 0;
  };

  double vocabulary_, discount_;
  std::vector<std::unordered_map<uint64_t, Followers>> histories_;  // [pieces of the history]
  std::vector<std::unordered_map<uint64_t, int64_t>> counts_;       // the same, and the piece that follows
};

}  // namespace unchain::test
