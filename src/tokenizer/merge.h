// Byte pair encoding: the best pair of neighbours becomes one symbol until no pair can. A heap of candidates over a
// linked list: n symbols cost O(n log n), also for hostile texts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace unchain::tokenizer {

struct Symbol {
  int32_t id;              // −1: not a piece
  int32_t previous, next;  // −1: none
  uint32_t begin, length;  // bytes of the text; length 0: merged into a symbol on the left
};

struct Merged {
  double priority;  // the lowest goes first, among equals the leftmost
  int32_t id;       // −1: the two do not merge
};

// The working memory of a merge, kept between words.
class Merger {
 public:
  std::vector<Symbol> symbols;

  void clear() { symbols.clear(); }
  void add(int32_t id, size_t begin, size_t length) {
    const auto index = static_cast<int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({id, index - 1, -1, static_cast<uint32_t>(begin), static_cast<uint32_t>(length)});
  }

  // Merges until nothing merges; the result is the list from symbols[0] along `next`. `find(left, right)` gives the
  // Merged of two neighbours.
  template <class Find>
  void run(const Find& find) {
    heap_.clear();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<int32_t>(i), find);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Candidate best = heap_.back();
      heap_.pop_back();
      Symbol& left = symbols[static_cast<size_t>(best.left)];
      if (left.length == 0 || left.next < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      // What starts at a symbol only grows, so an equal length means that neither has changed since.
      if (left.length + right.length != best.length) continue;
      left.id = best.id;
      left.length = best.length;
      left.next = right.next;
      right.length = 0;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.left;
      consider(left.previous, find);
      consider(best.left, find);
    }
  }

 private:
  struct Candidate {
    double priority;
    int32_t left;
    uint32_t length;
    int32_t id;
  };
  static bool later(const Candidate& a, const Candidate& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.left > b.left;
  }
  template <class Find>
  void consider(int32_t index, const Find& find) {
    if (index < 0) return;
    const Symbol& left = symbols[static_cast<size_t>(index)];
    if (left.next < 0) return;
    const Symbol& right = symbols[static_cast<size_t>(left.next)];
    const Merged merged = find(left, right);
    if (merged.id < 0) return;
    heap_.push_back({merged.priority, index, left.length + right.length, merged.id});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  std::vector<Candidate> heap_;
};

}  // namespace unchain::tokenizer
