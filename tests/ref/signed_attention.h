// Signed attention in double, whole maps, plain loops: out = (A1 − λ A2) v with one or two softmax maps, forward and
// backward. docs/math/diff_v1.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ref/family_shape.h"

namespace unchain::ref {

struct SignedInputs {
  std::vector<double> q, k, v;
  std::vector<double> lambda;  // [T, H]; unused where a pair has no second map
  std::vector<double> extra;   // [H], the log weight of one more entry in A1's normaliser, or empty: none
};

struct SignedResult {
  std::vector<double> out;              // [T, H, W]
  std::vector<double> positive, noise;  // A1 and A2 [H, T, S]; 0 where a row does not see the key
};

// Row t of softmax(scale · q kᵀ) into map[S]. `extra`: the log weight of an entry that takes part and is thrown away.
inline void softmax_row(const FamilyShape& s, const SignedInputs& in, int64_t t, int64_t q_head, int64_t k_head,
                        const double* extra, double* map) {
  double largest = extra ? *extra : -INFINITY;
  for (int64_t j = 0; j < s.keys(); ++j) {
    if (!s.sees(t, j)) continue;
    double score = 0;
    for (int64_t e = 0; e < s.head_dim; ++e) score += in.q[s.q_at(t, q_head, e)] * in.k[s.k_at(j, k_head, e)];
    map[j] = s.scale * score;
    if (map[j] > largest) largest = map[j];
  }
  double sum = extra ? std::exp(*extra - largest) : 0;
  for (int64_t j = 0; j < s.keys(); ++j) {
    map[j] = s.sees(t, j) ? std::exp(map[j] - largest) : 0;
    sum += map[j];
  }
  for (int64_t j = 0; j < s.keys() && sum > 0; ++j) map[j] /= sum;
}

// P = A1 − λ A2 [H, T, S].
inline std::vector<double> signed_maps(const FamilyShape& s, const SignedResult& maps,
                                       const std::vector<double>& lambda) {
  std::vector<double> p = maps.positive;
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t j = 0; j < s.keys() && s.pair(o).q2 >= 0; ++j) {
        p[s.map_at(o, t, j)] -= lambda[s.row_at(t, o)] * maps.noise[s.map_at(o, t, j)];
      }
    }
  }
  return p;
}

inline SignedResult signed_forward(const FamilyShape& s, const SignedInputs& in) {
  SignedResult result;
  result.positive.resize(s.map_size());
  result.noise.resize(s.map_size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    const HeadPair& pair = s.pair(o);
    const double* extra = in.extra.empty() ? nullptr : &in.extra[static_cast<size_t>(o)];
    for (int64_t t = 0; t < s.rows; ++t) {
      softmax_row(s, in, t, pair.q1, pair.k1, extra, &result.positive[s.map_at(o, t, 0)]);
      if (pair.q2 >= 0) softmax_row(s, in, t, pair.q2, pair.k2, nullptr, &result.noise[s.map_at(o, t, 0)]);
    }
  }
  result.out = mix(s, signed_maps(s, result, in.lambda), in.v);
  return result;
}

struct SignedGradients {
  std::vector<double> d_q, d_k, d_v, d_lambda, d_extra;
};

inline SignedGradients signed_backward(const FamilyShape& s, const std::vector<double>& d_out,
                                       const SignedResult& saved, const SignedInputs& in) {
  const MixGradients mixed = mix_backward(s, d_out, signed_maps(s, saved, in.lambda), in.v);
  SignedGradients g{std::vector<double>(in.q.size()), std::vector<double>(in.k.size()), mixed.d_v,
                    std::vector<double>(in.lambda.size()), std::vector<double>(in.extra.size())};
  // d_scores = factor · A (dP − Σ A dP) of one row, and on to q and k. Returns Σ A dP.
  const auto through_map = [&](int64_t o, int64_t t, const std::vector<double>& map, double factor, int64_t q_head,
                               int64_t k_head) {
    double inner = 0;
    for (int64_t j = 0; j < s.keys(); ++j) inner += map[s.map_at(o, t, j)] * mixed.d_maps[s.map_at(o, t, j)];
    for (int64_t j = 0; j < s.keys(); ++j) {
      const double d_score = factor * map[s.map_at(o, t, j)] * (mixed.d_maps[s.map_at(o, t, j)] - inner);
      for (int64_t e = 0; e < s.head_dim; ++e) {
        g.d_q[s.q_at(t, q_head, e)] += s.scale * d_score * in.k[s.k_at(j, k_head, e)];
        g.d_k[s.k_at(j, k_head, e)] += s.scale * d_score * in.q[s.q_at(t, q_head, e)];
      }
    }
    return inner;
  };
  for (int64_t o = 0; o < s.heads(); ++o) {
    const HeadPair& pair = s.pair(o);
    for (int64_t t = 0; t < s.rows; ++t) {
      const double inner = through_map(o, t, saved.positive, 1, pair.q1, pair.k1);
      if (!in.extra.empty()) {
        double extra_weight = 1;
        for (int64_t j = 0; j < s.keys(); ++j) extra_weight -= saved.positive[s.map_at(o, t, j)];
        g.d_extra[static_cast<size_t>(o)] -= extra_weight * inner;
      }
      if (pair.q2 < 0) continue;
      const double lambda = in.lambda[s.row_at(t, o)];
      g.d_lambda[s.row_at(t, o)] = -through_map(o, t, saved.noise, -lambda, pair.q2, pair.k2);
    }
  }
  return g;
}

}  // namespace unchain::ref
