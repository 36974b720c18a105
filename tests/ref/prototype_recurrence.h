// Prototype noise in double as a recurrence over tokens: state (L, u) of each head and prototype,
//   L_t = logaddexp(L_{t−1}, s_t),   u_t = e^{L_{t−1} − L_t} u_{t−1} + e^{s_t − L_t} v_t,   (A2 V)_t = Σ_m α_tm u_tm,
// with its recurrent backward. docs/math/lowrank_diff.md. The map form, prototype_noise.h, is written apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ref/prototype_noise.h"

namespace unchain::ref {

// L [H, R] and u [H, R, W]; before the first token −∞ and 0.
struct PrototypeState {
  std::vector<double> log_sum, mean;

  PrototypeState(const FamilyShape& s, int64_t rank)
      : log_sum(static_cast<size_t>(s.heads() * rank), -INFINITY),
        mean(static_cast<size_t>(s.heads() * rank * s.value_dim)) {}
};

// What backward needs: how much of the old state each step kept, e^{L_{t−1} − L_t}, how much of the new value it took,
// e^{s_t − L_t}, both [T, H, R], and the states u [T, H, R, W] after it. Keys of the step: position first_row + t.
struct PrototypeSteps {
  std::vector<double> keep, take, mean;
};

inline double log_add_exp(double a, double b) {
  const double larger = std::max(a, b);
  return larger == -INFINITY ? -INFINITY : larger + std::log1p(std::exp(std::min(a, b) - larger));
}

// A2 V [T, H, W] of the rows, going on from `state`, which must hold the positions before first_row, and leaves as it
// is after the last row. Each row adds the key at its own position; a row at or before its document's start forgets all
// before, a row before it sees no key.
inline std::vector<double> prototype_recurrence(const FamilyShape& s, const PrototypeInputs& in, PrototypeState& state,
                                                PrototypeSteps* steps = nullptr) {
  std::vector<double> out(s.out_size());
  if (steps) {
    const size_t count = in.alpha.size();
    *steps = {std::vector<double>(count), std::vector<double>(count),
              std::vector<double>(count * static_cast<size_t>(s.value_dim))};
  }
  for (int64_t t = 0; t < s.rows; ++t) {
    const int64_t position = s.first_row + t;
    for (int64_t o = 0; o < s.heads(); ++o) {
      for (int64_t m = 0; m < in.rank; ++m) {
        double& log_sum = state.log_sum[static_cast<size_t>(o * in.rank + m)];
        double* mean = &state.mean[static_cast<size_t>((o * in.rank + m) * s.value_dim)];
        if (s.start_of(t) >= position) log_sum = -INFINITY;
        double score = s.start_of(t) > position ? -INFINITY : 0;
        for (int64_t e = 0; e < s.head_dim; ++e) {
          score += s.scale * in.prototypes[in.prototype_at(o, m, e, s.head_dim)] *
                   in.keys[s.k_at(position, s.pair(o).k1, e)];
        }
        const double before = log_sum;
        log_sum = log_add_exp(before, score);
        const double keep = before == -INFINITY ? 0 : std::exp(before - log_sum);
        const double take = score == -INFINITY ? 0 : std::exp(score - log_sum);
        const size_t step = in.alpha_at(t, o, m, s.heads());
        for (int64_t w = 0; w < s.value_dim; ++w) {
          mean[w] = keep * mean[w] + take * in.v[s.v_at(position, s.pair(o).v, w)];
          out[s.out_at(t, o, w)] += in.alpha[step] * mean[w];
          if (steps) steps->mean[step * static_cast<size_t>(s.value_dim) + static_cast<size_t>(w)] = mean[w];
        }
        if (steps) steps->keep[step] = keep, steps->take[step] = take;
      }
    }
  }
  return out;
}

// From the last token to the first, with g_t = α_t d_noise_t:
//   R_t = g_t + keep_{t+1} R_{t+1},   c_t = g_t · u_t + keep_{t+1} c_{t+1},
//   d_v_t = take_t R_t,   d_s_t = take_t (R_t · v_t − c_t),   d_α_t = d_noise_t · u_t.
// For rows from position 0 on: the gradient of an earlier state is not asked for.
inline PrototypeGradients prototype_recurrence_backward(const FamilyShape& s, const std::vector<double>& d_noise,
                                                        const PrototypeSteps& steps, const PrototypeInputs& in) {
  PrototypeGradients g{std::vector<double>(in.prototypes.size()), std::vector<double>(in.keys.size()),
                       std::vector<double>(in.alpha.size()), std::vector<double>(in.v.size())};
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t m = 0; m < in.rank; ++m) {
      std::vector<double> later(static_cast<size_t>(s.value_dim));  // keep_{t+1} R_{t+1}
      double later_inner = 0;                                       // keep_{t+1} c_{t+1}
      for (int64_t t = s.rows - 1; t >= 0; --t) {
        const size_t step = in.alpha_at(t, o, m, s.heads());
        const double* mean = &steps.mean[step * static_cast<size_t>(s.value_dim)];
        double inner = later_inner, value_part = 0;
        for (int64_t w = 0; w < s.value_dim; ++w) {
          double& r = later[static_cast<size_t>(w)];
          const double up = d_noise[s.out_at(t, o, w)];
          const size_t v = s.v_at(t, s.pair(o).v, w);
          r += in.alpha[step] * up;
          inner += in.alpha[step] * up * mean[w];
          value_part += r * in.v[v];
          g.d_alpha[step] += up * mean[w];
          g.d_v[v] += steps.take[step] * r;
          r *= steps.keep[step];
        }
        later_inner = steps.keep[step] * inner;
        const double d_score = steps.take[step] * (value_part - inner);
        for (int64_t e = 0; e < s.head_dim; ++e) {
          const size_t p = in.prototype_at(o, m, e, s.head_dim), k = s.k_at(t, s.pair(o).k1, e);
          g.d_prototypes[p] += s.scale * d_score * in.keys[k];
          g.d_keys[k] += s.scale * d_score * in.prototypes[p];
        }
      }
    }
  }
  return g;
}

}  // namespace unchain::ref
