// Content-free noise in double: rows (first token, uniform, decays) mixed by softmax(w), and the calibrated basis; as
// maps and as recurrences, forward and backward. docs/math/fixed_diff.md.
// A row counts its position from its document's start; the window of the shape does not apply.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ref/family_shape.h"
#include "ref/softmax.h"

namespace unchain::ref {

struct FixedInputs {
  std::vector<double> decays;  // γ; rank = 2 + their number
  std::vector<double> logits;  // w [H, R]: first token, uniform, decays in order
  std::vector<double> v;       // [S, V, W]

  int64_t rank() const { return 2 + static_cast<int64_t>(decays.size()); }
  std::vector<double> shares(const FamilyShape& s) const {
    return softmax(logits, static_cast<size_t>(s.heads()), static_cast<size_t>(rank()));
  }
};

// The weight that row i of kind m gives key j ≤ i, both counted from the document's start.
inline double fixed_weight(const std::vector<double>& decays, int64_t m, int64_t i, int64_t j) {
  if (m == 0) return j == 0 ? 1 : 0;
  const double rows = static_cast<double>(i + 1), distance = static_cast<double>(i - j);
  if (m == 1) return 1 / rows;
  const double decay = decays[static_cast<size_t>(m - 2)];
  return (1 - decay) * std::pow(decay, distance) / (1 - std::pow(decay, rows));
}

// A2 [H, T, S].
inline std::vector<double> fixed_maps(const FamilyShape& s, const FixedInputs& in) {
  const std::vector<double> shares = in.shares(s);
  std::vector<double> maps(s.map_size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t j = 0; j < s.keys(); ++j) {
        const int64_t start = s.start_of(t);
        for (int64_t m = 0; m < in.rank() && s.in_document(t, j); ++m) {
          maps[s.map_at(o, t, j)] += shares[static_cast<size_t>(o * in.rank() + m)] *
                                     fixed_weight(in.decays, m, s.first_row + t - start, j - start);
        }
      }
    }
  }
  return maps;
}

inline std::vector<double> fixed_forward(const FamilyShape& s, const FixedInputs& in) {
  return mix(s, fixed_maps(s, in), in.v);
}

struct FixedGradients {
  std::vector<double> d_logits, d_v;
};

inline FixedGradients fixed_backward(const FamilyShape& s, const std::vector<double>& d_noise, const FixedInputs& in) {
  const MixGradients mixed = mix_backward(s, d_noise, fixed_maps(s, in), in.v);
  std::vector<double> d_shares(in.logits.size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t t = 0; t < s.rows; ++t) {
      const int64_t start = s.start_of(t);
      for (int64_t j = 0; j < s.keys(); ++j) {
        for (int64_t m = 0; m < in.rank() && s.in_document(t, j); ++m) {
          d_shares[static_cast<size_t>(o * in.rank() + m)] +=
              mixed.d_maps[s.map_at(o, t, j)] * fixed_weight(in.decays, m, s.first_row + t - start, j - start);
        }
      }
    }
  }
  return {softmax_backward(d_shares, in.shares(s), static_cast<size_t>(s.heads()), static_cast<size_t>(in.rank())),
          mixed.d_v};
}

// As a recurrence, u_i = keep_i u_{i−1} + take_i v_i with keep_i + take_i = 1 and keep_0 = 0.
inline double fixed_take(const std::vector<double>& decays, int64_t m, int64_t i) {
  if (i == 0) return 1;
  if (m == 0) return 0;
  if (m == 1) return 1 / static_cast<double>(i + 1);
  const double decay = decays[static_cast<size_t>(m - 2)];
  return (1 - decay) / (1 - std::pow(decay, static_cast<double>(i + 1)));
}

// A2 V [T, H, W], going on from state u [H, R, W] (empty before the first token); `means` [T, H, R, W] for backward.
inline std::vector<double> fixed_recurrence(const FamilyShape& s, const FixedInputs& in, std::vector<double>& state,
                                            std::vector<double>* means = nullptr) {
  const std::vector<double> shares = in.shares(s);
  state.resize(static_cast<size_t>(s.heads() * in.rank() * s.value_dim));
  if (means) means->clear();
  std::vector<double> out(s.out_size());
  for (int64_t t = 0; t < s.rows; ++t) {
    const int64_t position = s.first_row + t, i = position - s.start_of(t);
    for (int64_t o = 0; o < s.heads(); ++o) {
      for (int64_t m = 0; m < in.rank(); ++m) {
        for (int64_t w = 0; w < s.value_dim; ++w) {
          double& u = state[static_cast<size_t>((o * in.rank() + m) * s.value_dim + w)];
          const double take = i < 0 ? 0 : fixed_take(in.decays, m, i);
          u = i < 0 ? 0 : (1 - take) * u + take * in.v[s.v_at(position, s.pair(o).v, w)];
          out[s.out_at(t, o, w)] += shares[static_cast<size_t>(o * in.rank() + m)] * u;
          if (means) means->push_back(u);
        }
      }
    }
  }
  return out;
}

// From the last token: R_i = share d_noise_i + keep_{i+1} R_{i+1}, d_v_i = take_i R_i, d_share = Σ_i d_noise_i · u_i.
// For rows from position 0 on.
inline FixedGradients fixed_recurrence_backward(const FamilyShape& s, const std::vector<double>& d_noise,
                                                const std::vector<double>& means, const FixedInputs& in) {
  const std::vector<double> shares = in.shares(s);
  std::vector<double> d_shares(in.logits.size()), d_v(in.v.size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t m = 0; m < in.rank(); ++m) {
      const size_t share = static_cast<size_t>(o * in.rank() + m);
      for (int64_t w = 0; w < s.value_dim; ++w) {
        double later = 0;  // keep_{t+1} R_{t+1}
        for (int64_t t = s.rows - 1; t >= 0; --t) {
          const int64_t i = t - s.start_of(t);
          const double up = d_noise[s.out_at(t, o, w)];
          const double take = i < 0 ? 0 : fixed_take(in.decays, m, i);
          const double r = later + shares[share] * up;
          d_shares[share] += up * means[static_cast<size_t>(((t * s.heads() + o) * in.rank() + m) * s.value_dim + w)];
          d_v[s.v_at(t, s.pair(o).v, w)] += take * r;
          later = i < 0 ? 0 : (1 - take) * r;
        }
      }
    }
  }
  return {softmax_backward(d_shares, shares, static_cast<size_t>(s.heads()), static_cast<size_t>(in.rank())), d_v};
}

}  // namespace unchain::ref
