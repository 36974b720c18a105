// The laws of the attention family, held against the fused kernels in f32.
// ε = 2⁻²⁴. Where a law compares two ways of computing the same, each lies within the bound of
// tests/attention/signed_softmax_test.cc of the exact result, whose inputs are the same floats, so they differ by twice
// that. Rows whose sum is asked for add up S weights and multiply by the inverse of their sum: 2(S + 5)ε, once for each
// map.
#include "props/family_laws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attention/state_noise.h"
#include "model/member.h"
#include "support/family_model.h"

namespace unchain::test {
namespace {

using attention::HeadRows;
using attention::NoiseRows;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;

Floats narrow(const Doubles& x) {
  return {x.begin(), x.end()};
}

double largest(const Doubles& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

HeadRows heads_of(Floats& x, int64_t rows, int64_t heads) {
  return HeadRows::side_by_side(Matrix(x.data(), rows, static_cast<int64_t>(x.size()) / rows), heads);
}

// A problem as the kernels take it.
struct SignedProblem {
  Floats q, k, v, lambda, extra;
  std::vector<int32_t> starts;
  attention::SignedInputs in;
  attention::SignedConfig config;

  SignedProblem(const ref::FamilyShape& s, const ref::SignedInputs& from)
      : q(narrow(from.q)),
        k(narrow(from.k)),
        v(narrow(from.v)),
        lambda(narrow(from.lambda)),
        extra(narrow(from.extra)),
        starts(s.start.begin(), s.start.end()) {
    attention::Layout layout{
        static_cast<int>(s.query_heads), static_cast<int>(s.key_heads), static_cast<int>(s.value_heads), {}};
    for (const ref::HeadPair& p : s.pairs) {
      layout.outputs.push_back({static_cast<int>(p.q1), static_cast<int>(p.k1), static_cast<int>(p.q2),
                                static_cast<int>(p.k2), static_cast<int>(p.v)});
    }
    config = {layout, static_cast<float>(s.scale), s.window, 0};
    in.q = heads_of(q, s.rows, s.query_heads);
    in.k = heads_of(k, s.keys(), s.key_heads);
    in.v = heads_of(v, s.keys(), s.value_heads);
    in.rows = s.rows;
    in.first_row = s.first_row;
    in.key_rows = s.keys();
    in.lambda = layout.has_second_map() ? lambda.data() : nullptr;
    in.extra = extra.empty() ? nullptr : extra.data();
    in.starts = starts.empty() ? nullptr : starts.data();
  }
};

Doubles fused(const ref::FamilyShape& s, const ref::SignedInputs& from) {
  SignedProblem p(s, from);
  Floats out(s.out_size(), -77);
  attention::SignedWorkspace workspace;
  signed_softmax_forward(heads_of(out, s.rows, s.heads()), {}, p.in, p.config, workspace);
  return widen(out);
}

// The same as taps have it: the maps of a panel, then their product with the values.
Doubles by_maps(const ref::FamilyShape& s, const ref::SignedInputs& from) {
  SignedProblem p(s, from);
  Floats out(s.out_size(), -77), positive(s.map_size(), -77), noise(s.map_size(), -77), lambda(p.lambda.size());
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t t = 0; t < s.rows; ++t) lambda[static_cast<size_t>(o * s.rows + t)] = p.lambda[s.row_at(t, o)];
  }
  attention::SignedWorkspace workspace;
  for (int64_t first = 0; first < s.rows; first += attention::kPanelRows) {
    attention::MapPanel panel;
    panel.heads = static_cast<int>(s.heads());
    panel.first_row = s.first_row + first;
    panel.rows = std::min(attention::kPanelRows, s.rows - first);
    panel.keys = panel.first_row + panel.rows;
    panel.row_stride = s.keys();
    panel.head_stride = s.rows * s.keys();
    panel.positive = positive.data() + first * s.keys();
    Floats part;
    if (p.config.layout.has_second_map()) {
      panel.noise = noise.data() + first * s.keys();
      for (int64_t o = 0; o < s.heads(); ++o) {
        const auto begin = lambda.begin() + o * s.rows + first;
        part.insert(part.end(), begin, begin + panel.rows);
      }
      panel.lambda = part.data();
    }
    signed_softmax_maps(panel, first, p.in, p.config, workspace);
    signed_softmax_apply(heads_of(out, s.rows, s.heads()), panel, first, p.in, p.config, workspace);
  }
  return widen(out);
}

double agreement(const ref::FamilyShape& s, const ref::SignedInputs& in) {
  const double e = static_cast<double>(s.head_dim), n = static_cast<double>(s.keys());
  const double w = 2 * (e + 3) * kEpsF32 * s.scale * e * largest(in.q) * largest(in.k) + 8e-7 + (n / 8 + 5) * kEpsF32;
  return 2 * (1 + largest(in.lambda)) * largest(in.v) * (w + (n + 3) * kEpsF32);
}

// The path of decoding, one panel, two panels; after earlier keys; with and without a window.
template <class Body>
void everywhere(const Body& body) {
  for (const int64_t rows : {3, 7, 150}) {
    for (const int64_t first_row : {0, 3}) {
      for (const int64_t window : {0, 3}) {
        for (const FamilyCase& c : family_layouts(rows, first_row, window)) {
          SCOPED_TRACE(testing::Message()
                       << c.name << ", rows " << rows << " from " << first_row << ", window " << window);
          body(c.shape);
        }
      }
    }
  }
}

void check_signed(const SignedRun& run) {
  everywhere([&](const ref::FamilyShape& s) {
    const ref::SignedInputs in = signed_inputs(s, 1), with_extra = signed_inputs(s, 1, true);
    const double both = 1 + largest(in.lambda);
    const double sums = both * 2 * (static_cast<double>(s.keys()) + 5) * kEpsF32;
    expect_row_sums(run, s, in, sums);
    expect_extra_lowers_row_sums(run, s, in);
    expect_extra_leaves_the_noise_map(run, s, in, 2 * sums);
    expect_no_lambda_is_softmax(run, s, with_extra, agreement(s, with_extra));
    // The product λ A2 is rounded before it is taken off A1 in one step: ε of each weight, which add up to 1.
    expect_equal_maps_cancel(run, s, in, kEpsF32 * largest(in.v));
    // Starts never fall along a text: the blind row is the last.
    expect_rows_without_keys_are_zero(run, s, with_extra, s.rows - 1, agreement(s, with_extra));
    expect_causality(run, s, with_extra);
    expect_permuted_heads(run, s, with_extra, agreement(s, with_extra));
    ref::FamilyShape no_window = s;
    no_window.window = 0;
    expect_documents_apart(run, no_window, with_extra, &ref::SignedInputs::k);
  });
  for (const int64_t rows : {3, 5, 150}) {
    expect_two_ways_to_pair(run, rows);
    const ref::FamilyShape s = family_shape(rows, 4, 2, 1, 2, 5, ref::neighbours_layout(4, 2));
    expect_neighbours_become_halves(run, rows, agreement(s, signed_inputs(s, 1)));
  }
}

TEST(KernelLaws, SignedAttention) {
  check_signed(fused);
}

TEST(KernelLaws, SignedAttentionByMaps) {
  check_signed(by_maps);
}

// A weight is e^(s − largest) ≤ 1 times the inverse of a sum ≥ 1 of such, both rounded: above 1 by 2ε at most.
TEST(KernelLaws, NoWeightPassesThatOfThePositiveMap) {
  everywhere([](const ref::FamilyShape& s) {
    ref::SignedInputs inputs = signed_inputs(s, 1);
    for (double& lambda : inputs.lambda) lambda = std::abs(lambda);
    SignedProblem p(s, inputs);
    Floats positive(s.map_size()), noise(s.map_size());
    attention::MapPanel panel;
    panel.heads = static_cast<int>(s.heads());
    panel.first_row = s.first_row;
    panel.rows = std::min(attention::kPanelRows, s.rows);
    panel.keys = panel.first_row + panel.rows;
    panel.row_stride = s.keys();
    panel.head_stride = s.rows * s.keys();
    panel.positive = positive.data();
    panel.noise = p.config.layout.has_second_map() ? noise.data() : nullptr;
    attention::SignedWorkspace workspace;
    signed_softmax_maps(panel, 0, p.in, p.config, workspace);
    EXPECT_GE(*std::min_element(noise.begin(), noise.end()), 0.0f);
    EXPECT_GE(*std::min_element(positive.begin(), positive.end()), 0.0f);
    EXPECT_LE(static_cast<double>(*std::max_element(positive.begin(), positive.end())), 1 + 2 * kEpsF32);
  });
}

TEST(KernelLaws, TheHeadNormOfNothingIsZero) {
  const model::Config config = family_config("diff_v1");
  const model::Member member = model::make_member(config, 0);
  const int64_t width = member.shape.output_width();
  Floats nothing(static_cast<size_t>(3 * width)), x(static_cast<size_t>(3 * config.width), 1), out(nothing.size(), -77);
  model::FinishSaved saved;
  finish_member(Matrix(out.data(), 3, width), saved, Matrix(nothing.data(), 3, width),
                Matrix(x.data(), 3, config.width), member);
  EXPECT_EQ(out, nothing);
}

// A2 V of the state over all positions, in two calls where rows stand behind earlier ones, from gates that `form` makes
// for the positions of a call.
struct NoiseCall {
  int64_t rank = 0;
  NoiseRows take, keep, alpha;
};
using FormGates = std::function<void(const NoiseCall&, const attention::SignedInputs&, double* log_sums)>;

Doubles state_noise(const ref::FamilyShape& s, const Doubles& values, int64_t rank, const FormGates& form) {
  const int64_t outputs = s.heads(), all = s.keys();
  Floats v = narrow(values), out(static_cast<size_t>(all * outputs * s.value_dim)),
         minus_one(static_cast<size_t>(all * outputs), -1), take(static_cast<size_t>(all * outputs * rank)),
         keep = take, alpha = take, means(static_cast<size_t>(outputs * rank * s.value_dim));
  std::vector<double> log_sums(static_cast<size_t>(outputs * rank));
  std::vector<int32_t> starts(static_cast<size_t>(s.first_row), 0);
  for (int64_t t = 0; t < s.rows; ++t) starts.push_back(static_cast<int32_t>(s.start_of(t)));
  attention::Layout layout = attention::softmax_layout(outputs, s.value_heads);
  attention::StateWorkspace workspace;
  for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, s.first_row}, {s.first_row, s.rows}}) {
    attention::SignedInputs in;
    in.v = heads_of(v, all, s.value_heads);
    in.rows = rows;
    in.first_row = first;
    in.key_rows = all;
    in.lambda = minus_one.data();
    in.starts = starts.data() + first;
    const auto at = [&, begin = first](Floats& x) {
      return NoiseRows{x.data() + begin * outputs * rank, outputs * rank, rank};
    };
    const NoiseCall call{rank, at(take), at(keep), at(alpha)};
    if (rows == 0) continue;
    form(call, in, log_sums.data());
    const Matrix to(out.data() + first * outputs * s.value_dim, rows, outputs * s.value_dim);
    state_noise_forward(HeadRows::side_by_side(to, outputs), means.data(), nullptr,
                        {rank, call.take, call.keep, call.alpha}, in, layout, workspace);
  }
  return widen(Floats(out.end() - static_cast<std::ptrdiff_t>(s.out_size()), out.end()));
}

// A weight is a product of at most S keeps, each rounded once, and R shares whose floats add up to 1 within (R + 1)ε.
void check_noise(const NoiseRun& run, int64_t rank) {
  for (const int64_t rows : {8, 33, 70}) {
    for (const int64_t first_row : {0, 3, 40}) {
      SCOPED_TRACE(testing::Message() << rows << " rows from " << first_row);
      const ref::FamilyShape s = family_layouts(rows, first_row, 2)[0].shape;
      const ref::PrototypeInputs in = prototype_inputs(s, 4, 1);
      const double n = static_cast<double>(s.keys());
      expect_noise_rows_sum_to_one(run, s, in, (3 * n + static_cast<double>(rank) + 12) * kEpsF32);
      expect_noise_causality(run, s, in);
      expect_noise_ignores_the_window(run, s, in);
      expect_documents_apart(run, s, in, &ref::PrototypeInputs::keys);
    }
  }
}

TEST(KernelLaws, PrototypeNoise) {
  const auto run = [](const ref::FamilyShape& s, const ref::PrototypeInputs& p) {
    const int64_t outputs = s.heads();
    return state_noise(s, p.v, p.rank, [&](const NoiseCall& call, const attention::SignedInputs& in, double* log_sums) {
      for (int64_t t = 0; t < in.rows; ++t) {
        for (int64_t o = 0; o < outputs; ++o) {
          for (int64_t m = 0; m < p.rank; ++m) {
            float score = 0;
            for (int64_t e = 0; e < s.head_dim; ++e) {
              score += static_cast<float>(p.prototypes[p.prototype_at(o, m, e, s.head_dim)] *
                                          p.keys[s.k_at(in.first_row + t, s.pair(o).k1, e)]);
            }
            call.take.at(t, o)[m] = score;
            // Shares are those of the rows; in front of them any will do.
            const int64_t row = std::max<int64_t>(0, in.first_row + t - s.first_row);
            call.alpha.at(t, o)[m] =
                static_cast<float>(p.alpha[s.row_at(row, o) * static_cast<size_t>(p.rank) + static_cast<size_t>(m)]);
          }
        }
      }
      prototype_gates(call.take, call.keep, call.take, log_sums, in, outputs, call.rank);
    });
  };
  check_noise(run, 4);
}

TEST(KernelLaws, FixedNoise) {
  const Floats decays = {0.5f, 0.9f, 0.99f};
  const auto run = [&](const ref::FamilyShape& s, const ref::PrototypeInputs& p) {
    const Floats shares =
        narrow(ref::softmax(random_doubles(static_cast<size_t>(s.heads() * 5), 3), static_cast<size_t>(s.heads()), 5));
    return state_noise(s, p.v, 5, [&](const NoiseCall& call, const attention::SignedInputs& in, double*) {
      // The same for all heads, as copies: fixed_gates() writes one head's.
      for (int64_t o = 0; o < s.heads(); ++o) {
        const NoiseRows take{call.take.at(0, o), call.take.row_stride, 0},
            keep{call.keep.at(0, o), call.keep.row_stride, 0};
        fixed_gates(take, keep, decays, in);
        for (int64_t t = 0; t < in.rows; ++t) std::copy_n(shares.data() + o * 5, 5, call.alpha.at(t, o));
      }
    });
  };
  check_noise(run, 5);
}

TEST(KernelLaws, CalibratedNoise) {
  const auto run = [](const ref::FamilyShape& s, const ref::PrototypeInputs& p) {
    // Positive factors: every row's sum is above the floor.
    const auto positive = [&](uint64_t seed) {
      Floats x = random_floats(static_cast<size_t>(s.heads() * s.keys() * 2), seed);
      for (float& value : x) value = 0.5f + std::abs(value);
      return x;
    };
    const Floats u = positive(5), v = positive(6);
    return state_noise(s, p.v, 2, [&](const NoiseCall& call, const attention::SignedInputs& in, double*) {
      calibrated_gates(call.take, call.keep, call.alpha, {u.data(), v.data(), s.keys(), 2}, in, s.heads());
    });
  };
  check_noise(run, 2);
}

}  // namespace
}  // namespace unchain::test
