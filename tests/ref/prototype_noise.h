// Prototype noise in double as a map: A2_t = Σ_m α_tm softmax_j(p_m · k̃_j · scale), forward and backward.
// docs/math/lowrank_diff.md. prototype_recurrence.h is the same as a recurrence, written apart.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ref/family_shape.h"

namespace unchain::ref {

// Output head o reads the key head k1 of its pair. A document's start holds, the window of the shape does not.
struct PrototypeInputs {
  int64_t rank = 1;
  std::vector<double> prototypes;  // [H, R, E]
  std::vector<double> keys;        // k̃ [S, G, E], before rotary
  std::vector<double> alpha;       // [T, H, R]
  std::vector<double> v;           // [S, V, W]

  size_t prototype_at(int64_t o, int64_t m, int64_t e, int64_t width) const {
    return static_cast<size_t>((o * rank + m) * width + e);
  }
  size_t alpha_at(int64_t t, int64_t o, int64_t m, int64_t heads) const {
    return static_cast<size_t>((t * heads + o) * rank + m);
  }
};

// Row t of softmax(scale · p_m k̃ᵀ) over the keys of the row's document: [S].
inline std::vector<double> prototype_row(const FamilyShape& s, const PrototypeInputs& in, int64_t o, int64_t m,
                                         int64_t t) {
  std::vector<double> row(static_cast<size_t>(s.keys()));
  double largest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < s.keys(); ++j) {
    double& score = row[static_cast<size_t>(j)];
    for (int64_t e = 0; e < s.head_dim; ++e) {
      score += s.scale * in.prototypes[in.prototype_at(o, m, e, s.head_dim)] * in.keys[s.k_at(j, s.pair(o).k1, e)];
    }
    if (s.in_document(t, j) && score > largest) largest = score;
  }
  for (int64_t j = 0; j < s.keys(); ++j) {
    double& weight = row[static_cast<size_t>(j)];
    weight = s.in_document(t, j) ? std::exp(weight - largest) : 0;
    sum += weight;
  }
  for (double& weight : row) weight = sum > 0 ? weight / sum : 0;
  return row;
}

// A2 [H, T, S].
inline std::vector<double> prototype_maps(const FamilyShape& s, const PrototypeInputs& in) {
  std::vector<double> maps(s.map_size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t m = 0; m < in.rank; ++m) {
        const std::vector<double> row = prototype_row(s, in, o, m, t);
        for (int64_t j = 0; j < s.keys(); ++j) {
          maps[s.map_at(o, t, j)] += in.alpha[in.alpha_at(t, o, m, s.heads())] * row[static_cast<size_t>(j)];
        }
      }
    }
  }
  return maps;
}

// A2 V [T, H, W].
inline std::vector<double> prototype_forward(const FamilyShape& s, const PrototypeInputs& in) {
  return mix(s, prototype_maps(s, in), in.v);
}

struct PrototypeGradients {
  std::vector<double> d_prototypes, d_keys, d_alpha, d_v;
};

// d_noise [T, H, W] is the gradient of A2 V.
inline PrototypeGradients prototype_backward(const FamilyShape& s, const std::vector<double>& d_noise,
                                             const PrototypeInputs& in) {
  const MixGradients mixed = mix_backward(s, d_noise, prototype_maps(s, in), in.v);
  PrototypeGradients g{std::vector<double>(in.prototypes.size()), std::vector<double>(in.keys.size()),
                       std::vector<double>(in.alpha.size()), mixed.d_v};
  for (int64_t o = 0; o < s.heads(); ++o) {
    const int64_t key_head = s.pair(o).k1;
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t m = 0; m < in.rank; ++m) {
        const std::vector<double> row = prototype_row(s, in, o, m, t);
        const double alpha = in.alpha[in.alpha_at(t, o, m, s.heads())];
        double inner = 0;
        for (int64_t j = 0; j < s.keys(); ++j) inner += row[static_cast<size_t>(j)] * mixed.d_maps[s.map_at(o, t, j)];
        g.d_alpha[in.alpha_at(t, o, m, s.heads())] = inner;
        for (int64_t j = 0; j < s.keys(); ++j) {
          const double d_score = alpha * row[static_cast<size_t>(j)] * (mixed.d_maps[s.map_at(o, t, j)] - inner);
          for (int64_t e = 0; e < s.head_dim; ++e) {
            const size_t p = in.prototype_at(o, m, e, s.head_dim), k = s.k_at(j, key_head, e);
            g.d_prototypes[p] += s.scale * d_score * in.keys[k];
            g.d_keys[k] += s.scale * d_score * in.prototypes[p];
          }
        }
      }
    }
  }
  return g;
}

}  // namespace unchain::ref
