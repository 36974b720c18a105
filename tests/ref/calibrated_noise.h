// The calibrated form of fixed noise in double: a frozen causal map of rank R a head, B_ij = U_i · V_j for j ≤ i, each
// row divided by its sum, which counts as 0.1 where it is less. As a map and as a recurrence; the only gradient is that
// of the values. docs/math/fixed_diff.md. Positions count from the document's start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ref/family_shape.h"

namespace unchain::ref {

struct CalibratedBasis {
  int64_t length = 1, rank = 1;  // rows N ≥ all positions in a document
  std::vector<double> u, v;      // [H, N, R]

  size_t at(int64_t o, int64_t i, int64_t m) const { return static_cast<size_t>((o * length + i) * rank + m); }
};

// A2 [H, T, S].
inline std::vector<double> calibrated_maps(const FamilyShape& s, const CalibratedBasis& basis) {
  std::vector<double> maps(s.map_size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t t = 0; t < s.rows; ++t) {
      const int64_t start = s.start_of(t), i = s.first_row + t - start;
      double sum = 0;
      for (int64_t j = 0; j <= i; ++j) {
        double& entry = maps[s.map_at(o, t, start + j)];
        for (int64_t m = 0; m < basis.rank; ++m) entry += basis.u[basis.at(o, i, m)] * basis.v[basis.at(o, j, m)];
        sum += entry;
      }
      for (int64_t j = 0; j <= i; ++j) maps[s.map_at(o, t, start + j)] /= std::max(sum, 0.1);
    }
  }
  return maps;
}

inline std::vector<double> calibrated_backward(const FamilyShape& s, const std::vector<double>& d_noise,
                                               const CalibratedBasis& basis, const std::vector<double>& v) {
  return mix_backward(s, d_noise, calibrated_maps(s, basis), v).d_v;
}

// z = Σ_{j ≤ i} V_j [H, R] and M = Σ_{j ≤ i} V_j v_jᵀ [H, R, W].
struct CalibratedState {
  std::vector<double> sum, product;
};

// A2 V [T, H, W] = U_i · M_i / max(U_i · z_i, 0.1), going on from `state` (empty before the first token).
inline std::vector<double> calibrated_recurrence(const FamilyShape& s, const CalibratedBasis& basis,
                                                 const std::vector<double>& v, CalibratedState& state) {
  state.sum.resize(static_cast<size_t>(s.heads() * basis.rank));
  state.product.resize(static_cast<size_t>(s.heads() * basis.rank * s.value_dim));
  std::vector<double> out(s.out_size());
  for (int64_t t = 0; t < s.rows; ++t) {
    const int64_t position = s.first_row + t, i = position - s.start_of(t);
    for (int64_t o = 0; o < s.heads(); ++o) {
      double sum = 0;
      for (int64_t m = 0; m < basis.rank; ++m) {
        double& z = state.sum[static_cast<size_t>(o * basis.rank + m)];
        z = i <= 0 ? 0 : z;
        if (i >= 0) z += basis.v[basis.at(o, i, m)];
        if (i >= 0) sum += basis.u[basis.at(o, i, m)] * z;
        for (int64_t w = 0; w < s.value_dim; ++w) {
          double& product = state.product[static_cast<size_t>((o * basis.rank + m) * s.value_dim + w)];
          product = i <= 0 ? 0 : product;
          if (i < 0) continue;
          product += basis.v[basis.at(o, i, m)] * v[s.v_at(position, s.pair(o).v, w)];
          out[s.out_at(t, o, w)] += basis.u[basis.at(o, i, m)] * product;
        }
      }
      for (int64_t w = 0; w < s.value_dim; ++w) out[s.out_at(t, o, w)] /= std::max(sum, 0.1);
    }
  }
  return out;
}

// From the last token: M̄_i = U_i (d_noise_i / max(U_i · z_i, 0.1))ᵀ + M̄_{i+1} [R, W] within a document, d_v_i = V_i ·
// M̄_i. For rows from position 0 on.
inline std::vector<double> calibrated_recurrence_backward(const FamilyShape& s, const std::vector<double>& d_noise,
                                                          const CalibratedBasis& basis) {
  std::vector<double> d_v(s.v_size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    std::vector<double> later(static_cast<size_t>(basis.rank * s.value_dim));
    for (int64_t t = s.rows - 1; t >= 0; --t) {
      const int64_t i = t - s.start_of(t);
      double sum = 0;
      for (int64_t j = 0; j <= i; ++j) {
        for (int64_t m = 0; m < basis.rank; ++m) sum += basis.u[basis.at(o, i, m)] * basis.v[basis.at(o, j, m)];
      }
      for (int64_t m = 0; m < basis.rank; ++m) {
        for (int64_t w = 0; w < s.value_dim; ++w) {
          double& bar = later[static_cast<size_t>(m * s.value_dim + w)];
          if (i >= 0) bar += basis.u[basis.at(o, i, m)] * d_noise[s.out_at(t, o, w)] / std::max(sum, 0.1);
          if (i >= 0) d_v[s.v_at(t, s.pair(o).v, w)] += basis.v[basis.at(o, i, m)] * bar;
          if (i <= 0) bar = 0;
        }
      }
    }
  }
  return d_v;
}

}  // namespace unchain::ref
