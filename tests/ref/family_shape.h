// What all references of the attention family share: sizes, which heads an output reads, which keys a row sees,
// offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unchain::ref {

// What output head o reads: query and key heads of both maps, and a value head. q2 = −1: no second map.
struct HeadPair {
  int64_t q1 = 0, k1 = 0, q2 = -1, k2 = -1, v = 0;

  bool operator==(const HeadPair&) const = default;
};

// q[T, Q, E], k[S, K, E], v[S, V, W], out[T, H, W], lambda[T, H], maps[H, T, S]; S = first_row + T, H = pairs.size().
struct FamilyShape {
  int64_t rows = 1, first_row = 0, query_heads = 1, key_heads = 1, value_heads = 1, head_dim = 1, value_dim = 1;
  double scale = 1;
  int64_t window = 0;           // 0: none; it limits the softmax maps, not a noise map of prototypes or fixed rows
  std::vector<HeadPair> pairs;  // one an output head
  std::vector<int64_t> start;   // [T], the first key that a row may see, or empty: all 0

  int64_t keys() const { return first_row + rows; }
  int64_t heads() const { return static_cast<int64_t>(pairs.size()); }
  const HeadPair& pair(int64_t o) const { return pairs[static_cast<size_t>(o)]; }
  int64_t start_of(int64_t t) const { return start.empty() ? 0 : start[static_cast<size_t>(t)]; }
  bool in_document(int64_t t, int64_t j) const { return j <= first_row + t && j >= start_of(t); }
  bool sees(int64_t t, int64_t j) const { return in_document(t, j) && (window <= 0 || j > first_row + t - window); }

  static size_t at(int64_t a, int64_t b, int64_t sizes_b, int64_t c, int64_t sizes_c) {
    return static_cast<size_t>((a * sizes_b + b) * sizes_c + c);
  }
  size_t q_at(int64_t t, int64_t head, int64_t e) const { return at(t, head, query_heads, e, head_dim); }
  size_t k_at(int64_t j, int64_t head, int64_t e) const { return at(j, head, key_heads, e, head_dim); }
  size_t v_at(int64_t j, int64_t head, int64_t w) const { return at(j, head, value_heads, w, value_dim); }
  size_t out_at(int64_t t, int64_t o, int64_t w) const { return at(t, o, heads(), w, value_dim); }
  size_t row_at(int64_t t, int64_t o) const { return static_cast<size_t>(t * heads() + o); }
  size_t map_at(int64_t o, int64_t t, int64_t j) const { return at(o, t, rows, j, keys()); }

  size_t q_size() const { return static_cast<size_t>(rows * query_heads * head_dim); }
  size_t k_size() const { return static_cast<size_t>(keys() * key_heads * head_dim); }
  size_t v_size() const { return static_cast<size_t>(keys() * value_heads * value_dim); }
  size_t out_size() const { return static_cast<size_t>(rows * heads() * value_dim); }
  size_t row_size() const { return static_cast<size_t>(rows * heads()); }
  size_t map_size() const { return static_cast<size_t>(heads() * rows * keys()); }
};

// out[T, H, W] = Σ_j map_tj v_j for maps[H, T, S].
inline std::vector<double> mix(const FamilyShape& s, const std::vector<double>& maps, const std::vector<double>& v) {
  std::vector<double> out(s.out_size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t j = 0; j < s.keys(); ++j) {
        for (int64_t w = 0; w < s.value_dim; ++w) {
          out[s.out_at(t, o, w)] += maps[s.map_at(o, t, j)] * v[s.v_at(j, s.pair(o).v, w)];
        }
      }
    }
  }
  return out;
}

// Of mix: the gradient of the values, and d_out_t · v_j, the gradient of every entry of the maps.
struct MixGradients {
  std::vector<double> d_v, d_maps;
};

inline MixGradients mix_backward(const FamilyShape& s, const std::vector<double>& d_out,
                                 const std::vector<double>& maps, const std::vector<double>& v) {
  MixGradients g{std::vector<double>(s.v_size()), std::vector<double>(s.map_size())};
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t j = 0; j < s.keys(); ++j) {
        for (int64_t w = 0; w < s.value_dim; ++w) {
          g.d_v[s.v_at(j, s.pair(o).v, w)] += maps[s.map_at(o, t, j)] * d_out[s.out_at(t, o, w)];
          g.d_maps[s.map_at(o, t, j)] += d_out[s.out_at(t, o, w)] * v[s.v_at(j, s.pair(o).v, w)];
        }
      }
    }
  }
  return g;
}

}  // namespace unchain::ref
