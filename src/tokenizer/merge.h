// Byte pair encoding: the best pair of neighbours becomes one symbol until no pair can. A heap of candidates over a
// linked list: n symbols cost O(n log n), also for hostile texts.
#pragma once

#include <algorithm>
#include <bit>
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

// Which pairs of ids merge, into what, and at which rank: a hash table in one block of memory, since the search for
// pairs is most of the work of a merge.
class PairTable {
 public:
  explicit PairTable(size_t pairs) : slots_(std::bit_ceil(2 * pairs + 2)) {}

  // At most as many as the constructor was told, of ids that are not negative; false if the pair is there already.
  bool add(int32_t left, int32_t right, int32_t rank, int32_t merged) {
    Slot& slot = slots_[place(left, right)];
    if (slot.merged >= 0) return false;
    slot = {left, right, rank, merged};
    return true;
  }
  Merged find(int32_t left, int32_t right) const {
    const Slot& slot = slots_[place(left, right)];
    return {static_cast<double>(slot.rank), slot.merged};
  }

 private:
  struct Slot {
    int32_t left = -1, right = -1, rank = 0, merged = -1;
  };
  // The slot of the pair, or the empty one where it would go.
  size_t place(int32_t left, int32_t right) const {
    uint64_t hash = (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) ^ static_cast<uint32_t>(right);
    hash *= 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: spreads neighbouring ids
    size_t at = (hash ^ hash >> 32) & (slots_.size() - 1);
    while (slots_[at].merged >= 0 && (slots_[at].left != left || slots_[at].right != right)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }
  std::vector<Slot> slots_;
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
