// Shapes and random inputs of the attention family, for its references and for the kernels held against them.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "attention/layout.h"
#include "ref/layout.h"
#include "ref/prototype_noise.h"
#include "ref/signed_attention.h"
#include "ref/softmax.h"
#include "support/random_values.h"

namespace unchain::test {

// What a reference is told of a layout of the engine; rows begin at position 0, in one document.
inline ref::FamilyShape reference_shape(const attention::Layout& layout, int64_t rows, int64_t head_dim,
                                        int64_t value_dim, int64_t window = 0) {
  ref::FamilyShape s;
  s.rows = rows;
  s.query_heads = layout.query_heads;
  s.key_heads = layout.key_heads;
  s.value_heads = layout.value_heads;
  s.head_dim = head_dim;
  s.value_dim = value_dim;
  s.window = window;
  for (const auto& p : layout.outputs) s.pairs.push_back({p.q1, p.k1, p.q2, p.k2, p.v});
  return s;
}

struct FamilyCase {
  std::string name;
  ref::FamilyShape shape;
};

// The starts of rows at positions first_row … when documents begin at 0 and at these positions.
inline std::vector<int64_t> document_starts(int64_t rows, int64_t first_row, std::initializer_list<int64_t> begins) {
  std::vector<int64_t> start(static_cast<size_t>(rows));
  for (int64_t t = 0; t < rows; ++t) {
    for (const int64_t begin : begins) {
      if (begin <= first_row + t && begin > start[static_cast<size_t>(t)]) start[static_cast<size_t>(t)] = begin;
    }
  }
  return start;
}

inline ref::FamilyShape family_shape(int64_t rows, int64_t query_heads, int64_t key_heads, int64_t value_heads,
                                     int64_t e, int64_t w, std::vector<ref::HeadPair> pairs) {
  ref::FamilyShape s;
  s.rows = rows;
  s.query_heads = query_heads;
  s.key_heads = key_heads;
  s.value_heads = value_heads;
  s.head_dim = e;
  s.value_dim = w;
  s.scale = 1 / std::sqrt(static_cast<double>(e));
  s.pairs = std::move(pairs);
  return s;
}

// Every layout, with widths of its own: keys E, values W (twice that of a plain head where the layout joins them).
inline std::vector<FamilyCase> family_layouts(int64_t rows, int64_t first_row, int64_t window = 0) {
  const auto make = [&](const char* name, int64_t query_heads, int64_t key_heads, int64_t value_heads, int64_t e,
                        int64_t w, std::vector<ref::HeadPair> pairs) {
    ref::FamilyShape s = family_shape(rows, query_heads, key_heads, value_heads, e, w, std::move(pairs));
    s.first_row = first_row;
    s.window = window;
    return FamilyCase{name, s};
  };
  return {make("plain", 4, 2, 2, 3, 2, ref::plain_layout(4, 2)),
          make("halves", 4, 2, 1, 3, 6, ref::halves_layout(4, 2)),
          make("halves, more groups", 8, 4, 2, 2, 3, ref::halves_layout(8, 4)),
          make("neighbours", 4, 4, 2, 3, 4, ref::neighbours_layout(4, 4)),
          make("neighbours, grouped keys", 4, 2, 1, 2, 5, ref::neighbours_layout(4, 2)),
          make("shared keys", 4, 1, 1, 3, 3, ref::shared_keys_layout(2, 1)),
          make("grouped", 8, 3, 2, 2, 3, ref::grouped_layout(6, 2, 3)),
          make("grouped, several noise keys", 12, 6, 4, 2, 1, ref::grouped_layout(8, 4, 2)),
          make("added", 6, 2, 1, 3, 2, ref::added_layout(3, 1))};
}

// λ of both signs and around 1; extra[H] only where asked for.
inline ref::SignedInputs signed_inputs(const ref::FamilyShape& s, uint64_t seed, bool with_extra = false) {
  ref::SignedInputs in{random_doubles(s.q_size(), seed),
                       random_doubles(s.k_size(), seed + 1),
                       random_doubles(s.v_size(), seed + 2),
                       random_doubles(s.row_size(), seed + 3),
                       {}};
  if (with_extra) in.extra = random_doubles(static_cast<size_t>(s.heads()), seed + 4);
  return in;
}

// α sums to 1 over the prototypes, as after its softmax.
inline ref::PrototypeInputs prototype_inputs(const ref::FamilyShape& s, int64_t rank, uint64_t seed) {
  ref::PrototypeInputs in;
  in.rank = rank;
  in.prototypes = random_doubles(static_cast<size_t>(s.heads() * rank * s.head_dim), seed);
  in.keys = random_doubles(s.k_size(), seed + 1);
  in.alpha = ref::softmax(random_doubles(s.row_size() * static_cast<size_t>(rank), seed + 2), s.row_size(),
                          static_cast<size_t>(rank));
  in.v = random_doubles(s.v_size(), seed + 3);
  return in;
}

}  // namespace unchain::test
