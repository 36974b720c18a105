// Laws of signed attention and of noise maps, for any way to compute them: each takes the way as a function, so that
// one text serves references and kernels. `tolerance` is absolute, 0 where the same bits are asked for.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "ref/prototype_noise.h"
#include "ref/signed_attention.h"
#include "support/compare.h"
#include "support/family_case.h"

namespace unchain::test {

// out[T, H, W] of signed attention.
using SignedRun = std::function<std::vector<double>(const ref::FamilyShape&, const ref::SignedInputs&)>;
// A2 V [T, H, W]; a noise map without content ignores keys, prototypes and α.
using NoiseRun = std::function<std::vector<double>(const ref::FamilyShape&, const ref::PrototypeInputs&)>;

// The numbers of row t.
inline std::vector<double> row_of(const ref::FamilyShape& s, const std::vector<double>& out, int64_t t) {
  const auto width = static_cast<std::ptrdiff_t>(s.heads() * s.value_dim);
  return {out.begin() + t * width, out.begin() + (t + 1) * width};
}

// What one position of k[S, G, E] or v[S, V, W] holds.
inline void set_position(std::vector<double>& x, int64_t positions, int64_t at, double value) {
  const size_t width = x.size() / static_cast<size_t>(positions);
  for (size_t i = 0; i < width; ++i) x[static_cast<size_t>(at) * width + i] = value;
}

// With values of 1 an output is the row's sum: 1 − λ, or 1 where there is no second map.
inline void expect_row_sums(const SignedRun& run, const ref::FamilyShape& s, ref::SignedInputs in, double tolerance) {
  in.v.assign(in.v.size(), 1);
  in.extra.clear();
  std::vector<double> expected(s.out_size());
  for (int64_t t = 0; t < s.rows; ++t) {
    for (int64_t o = 0; o < s.heads(); ++o) {
      for (int64_t w = 0; w < s.value_dim; ++w) {
        expected[s.out_at(t, o, w)] = s.pair(o).q2 < 0 ? 1 : 1 - in.lambda[s.row_at(t, o)];
      }
    }
  }
  EXPECT_TRUE(close(run(s, in), expected, tolerance));
}

// An extra entry in the normaliser takes a share of the row: the sum is below 1, and the less the larger the entry.
inline void expect_extra_lowers_row_sums(const SignedRun& run, const ref::FamilyShape& s, ref::SignedInputs in) {
  in.v.assign(in.v.size(), 1);
  in.lambda.assign(in.lambda.size(), 0);
  std::vector<double> above(s.out_size(), 1);
  for (const double extra : {-1.0, 0.0, 2.0}) {
    in.extra.assign(static_cast<size_t>(s.heads()), extra);
    const std::vector<double> sums = run(s, in);
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_LT(sums[i], above[i]) << "[" << i << "], extra " << extra;
      EXPECT_GT(sums[i], 0) << "[" << i << "], extra " << extra;
    }
    above = sums;
  }
}

// The extra entry is the positive map's alone: what one unit of λ takes off a row's sum is still 1.
inline void expect_extra_leaves_the_noise_map(const SignedRun& run, const ref::FamilyShape& s, ref::SignedInputs in,
                                              double tolerance) {
  in.v.assign(in.v.size(), 1);
  in.extra.assign(static_cast<size_t>(s.heads()), 1);
  in.lambda.assign(in.lambda.size(), 0);
  std::vector<double> expected = run(s, in);
  in.lambda.assign(in.lambda.size(), 1);
  for (double& x : expected) x -= s.pair(0).q2 < 0 ? 0 : 1;
  EXPECT_TRUE(close(run(s, in), expected, tolerance));
}

inline void expect_no_lambda_is_softmax(const SignedRun& run, const ref::FamilyShape& s, ref::SignedInputs in,
                                        double tolerance) {
  in.lambda.assign(in.lambda.size(), 0);
  ref::FamilyShape single = s;
  for (ref::HeadPair& pair : single.pairs) pair.q2 = pair.k2 = -1;
  EXPECT_TRUE(close(run(s, in), run(single, in), tolerance));
}

// A1 = A2 and λ = 1: nothing is left.
inline void expect_equal_maps_cancel(const SignedRun& run, const ref::FamilyShape& s, ref::SignedInputs in,
                                     double tolerance) {
  in.lambda.assign(in.lambda.size(), 1);
  in.extra.clear();
  ref::FamilyShape twice = s;
  for (ref::HeadPair& pair : twice.pairs) pair.q2 = pair.q1, pair.k2 = pair.k1;
  EXPECT_TRUE(close(run(twice, in), std::vector<double>(s.out_size()), tolerance));
}

// A row t whose document starts after it sees no key and gives exactly 0; the others are as before.
inline void expect_rows_without_keys_are_zero(const SignedRun& run, const ref::FamilyShape& s,
                                              const ref::SignedInputs& in, int64_t t, double tolerance) {
  const std::vector<double> before = run(s, in);
  ref::FamilyShape blind = s;
  blind.start.resize(static_cast<size_t>(s.rows));
  blind.start[static_cast<size_t>(t)] = s.first_row + t + 1;
  const std::vector<double> after = run(blind, in);
  for (int64_t row = 0; row < s.rows; ++row) {
    if (row == t) {
      EXPECT_EQ(row_of(s, after, row), std::vector<double>(static_cast<size_t>(s.heads() * s.value_dim)));
    } else {
      EXPECT_TRUE(close(row_of(s, after, row), row_of(s, before, row), tolerance));
    }
  }
}

// Keys and values after a row change nothing in it or before it, and do change the rows that see them.
inline void expect_causality(const SignedRun& run, const ref::FamilyShape& s, const ref::SignedInputs& in) {
  const std::vector<double> before = run(s, in);
  const int64_t last = s.rows / 2;  // the last row that must stay
  ref::SignedInputs changed = in;
  for (int64_t j = s.first_row + last + 1; j < s.keys(); ++j) {
    set_position(changed.k, s.keys(), j, 3);
    set_position(changed.v, s.keys(), j, -100);
  }
  const std::vector<double> after = run(s, changed);
  for (int64_t t = 0; t < s.rows; ++t) {
    EXPECT_EQ(row_of(s, after, t) == row_of(s, before, t), t <= last) << "row " << t;
  }
}

// Outputs in another order, with their λ and extra entries, are the same outputs in that order.
inline void expect_permuted_heads(const SignedRun& run, const ref::FamilyShape& s, const ref::SignedInputs& in,
                                  double tolerance) {
  ref::FamilyShape reversed = s;
  reversed.pairs.assign(s.pairs.rbegin(), s.pairs.rend());
  ref::SignedInputs other = in;
  other.extra.assign(in.extra.rbegin(), in.extra.rend());
  const auto from = [&](int64_t o) { return s.heads() - 1 - o; };
  for (int64_t t = 0; t < s.rows; ++t) {
    for (int64_t o = 0; o < s.heads(); ++o) other.lambda[s.row_at(t, o)] = in.lambda[s.row_at(t, from(o))];
  }
  const std::vector<double> out = run(s, in);
  std::vector<double> expected(out.size());
  for (int64_t t = 0; t < s.rows; ++t) {
    for (int64_t o = 0; o < s.heads(); ++o) {
      for (int64_t w = 0; w < s.value_dim; ++w) expected[s.out_at(t, o, w)] = out[s.out_at(t, from(o), w)];
    }
  }
  EXPECT_TRUE(close(run(reversed, other), expected, tolerance));
}

// Rows of a later document do not depend on what stands before its start.
template <class Run, class Inputs>
void expect_documents_apart(const Run& run, ref::FamilyShape s, const Inputs& in, std::vector<double> Inputs::*keys) {
  const int64_t second = s.first_row + s.rows / 2;
  s.start.assign(static_cast<size_t>(s.rows), 0);
  for (int64_t t = s.rows / 2; t < s.rows; ++t) s.start[static_cast<size_t>(t)] = second;
  const std::vector<double> before = run(s, in);
  Inputs changed = in;
  for (int64_t j = 0; j < second; ++j) {
    set_position(changed.*keys, s.keys(), j, 3);
    set_position(changed.v, s.keys(), j, -100);
  }
  const std::vector<double> after = run(s, changed);
  for (int64_t t = 0; t < s.rows; ++t) {
    EXPECT_EQ(row_of(s, after, t) == row_of(s, before, t), t >= s.rows / 2) << "row " << t;
  }
}

// The same arrays paired by halves and by neighbours are two functions.
inline void expect_two_ways_to_pair(const SignedRun& run, int64_t rows) {
  ref::FamilyShape s = family_shape(rows, 4, 2, 1, 3, 6, ref::halves_layout(4, 2));
  const ref::SignedInputs in = signed_inputs(s, 1);
  const std::vector<double> halves = run(s, in);
  s.pairs = ref::neighbours_layout(4, 2);
  EXPECT_FALSE(close(run(s, in), halves, 1e-3));
}

// With key and value heads repeated to h, a file of neighbours becomes one of halves: query heads 0 2 4 … 1 3 5 …
inline void expect_neighbours_become_halves(const SignedRun& run, int64_t rows, double tolerance) {
  const int64_t h = 4, g = 2;
  const ref::FamilyShape s = family_shape(rows, h, g, g / 2, 2, 5, ref::neighbours_layout(h, g));
  const ref::SignedInputs in = signed_inputs(s, 1);
  ref::FamilyShape halves = s;
  halves.key_heads = h;
  halves.value_heads = h / 2;
  halves.pairs = ref::halves_layout(h, h);
  ref::SignedInputs moved = in;
  moved.k.resize(halves.k_size());
  moved.v.resize(halves.v_size());
  for (int64_t t = 0; t < s.rows; ++t) {
    for (int64_t a = 0; a < h; ++a) {
      const int64_t from = a < h / 2 ? 2 * a : 2 * (a - h / 2) + 1;
      for (int64_t e = 0; e < s.head_dim; ++e) {
        moved.q[halves.q_at(t, a, e)] = in.q[s.q_at(t, from, e)];
        moved.k[halves.k_at(t, a, e)] = in.k[s.k_at(t, from * g / h, e)];
      }
    }
    for (int64_t i = 0; i < h / 2; ++i) {
      for (int64_t w = 0; w < s.value_dim; ++w) {
        moved.v[halves.v_at(t, i, w)] = in.v[s.v_at(t, i * g / h, w)];
      }
    }
  }
  EXPECT_TRUE(close(run(halves, moved), run(s, in), tolerance));
}

// Every row of a noise map sums to 1 (here α and mixing shares do), whatever the shape's window.
inline void expect_noise_rows_sum_to_one(const NoiseRun& run, const ref::FamilyShape& s, ref::PrototypeInputs in,
                                         double tolerance) {
  in.v.assign(in.v.size(), 1);
  EXPECT_TRUE(close(run(s, in), std::vector<double>(s.out_size(), 1), tolerance));
}

inline void expect_noise_causality(const NoiseRun& run, const ref::FamilyShape& s, const ref::PrototypeInputs& in) {
  const std::vector<double> before = run(s, in);
  const int64_t last = s.rows / 2;
  ref::PrototypeInputs changed = in;
  for (int64_t j = s.first_row + last + 1; j < s.keys(); ++j) {
    set_position(changed.keys, s.keys(), j, 3);
    set_position(changed.v, s.keys(), j, -100);
  }
  const std::vector<double> after = run(s, changed);
  for (int64_t t = 0; t < s.rows; ++t) {
    EXPECT_EQ(row_of(s, after, t) == row_of(s, before, t), t <= last) << "row " << t;
  }
}

// The layer's window is that of the softmax maps alone.
inline void expect_noise_ignores_the_window(const NoiseRun& run, ref::FamilyShape s, const ref::PrototypeInputs& in) {
  s.window = 0;
  const std::vector<double> whole = run(s, in);
  s.window = 1;
  EXPECT_EQ(run(s, in), whole);
}

}  // namespace unchain::test
