// The laws of the attention family, held against its references in double.
#include "props/family_laws.h"

#include "ref/analysis_ref.h"
#include "ref/calibrated_noise.h"
#include "ref/fixed_noise.h"
#include "ref/prototype_recurrence.h"
#include "ref/rms_norm.h"

namespace unchain::test {
namespace {

using Doubles = std::vector<double>;

Doubles signed_reference(const ref::FamilyShape& s, const ref::SignedInputs& in) {
  return ref::signed_forward(s, in).out;
}

// Every layout, from the first row on and after earlier keys, with and without a window.
void everywhere(const std::function<void(const ref::FamilyShape&)>& body) {
  for (const int64_t first_row : {0, 3}) {
    for (const int64_t window : {0, 3}) {
      for (const FamilyCase& c : family_layouts(7, first_row, window)) {
        SCOPED_TRACE(testing::Message() << c.name << ", first row " << first_row << ", window " << window);
        body(c.shape);
      }
    }
  }
}

TEST(FamilyLaws, SignedAttention) {
  everywhere([](const ref::FamilyShape& s) {
    const ref::SignedInputs in = signed_inputs(s, 1), with_extra = signed_inputs(s, 1, true);
    expect_row_sums(signed_reference, s, in, 1e-14);
    expect_extra_lowers_row_sums(signed_reference, s, in);
    expect_extra_leaves_the_noise_map(signed_reference, s, in, 1e-14);
    expect_no_lambda_is_softmax(signed_reference, s, with_extra, 0);
    expect_equal_maps_cancel(signed_reference, s, in, 0);
    expect_rows_without_keys_are_zero(signed_reference, s, with_extra, s.rows / 2, 0);
    expect_causality(signed_reference, s, with_extra);
    expect_permuted_heads(signed_reference, s, with_extra, 0);
    ref::FamilyShape no_window = s;
    no_window.window = 0;
    expect_documents_apart(signed_reference, no_window, with_extra, &ref::SignedInputs::k);
  });
}

TEST(FamilyLaws, NoWeightPassesThatOfThePositiveMap) {
  everywhere([](const ref::FamilyShape& s) {
    ref::SignedInputs in = signed_inputs(s, 1);
    for (double& lambda : in.lambda) lambda = std::abs(lambda);
    const auto maps = ref::signed_forward(s, in);
    const Doubles p = ref::signed_maps(s, maps, in.lambda);
    for (size_t i = 0; i < p.size(); ++i) {
      EXPECT_LE(p[i], maps.positive[i]);
      EXPECT_LE(maps.positive[i], 1 + 1e-15);
    }
  });
}

TEST(FamilyLaws, TheHeadNormOfNothingIsFinite) {
  EXPECT_EQ(ref::head_norm(Doubles(12), {}, 4, 1e-5, 0.2), Doubles(12));
  const auto g = ref::head_norm_backward(Doubles(12, 1), Doubles(12), {}, 4, 1e-5, 0.2);
  for (const double x : g.d_x) EXPECT_TRUE(std::isfinite(x));
}

TEST(FamilyLaws, Pairs) {
  expect_two_ways_to_pair(signed_reference, 7);
  expect_neighbours_become_halves(signed_reference, 5, 0);
}

void check_noise(const NoiseRun& run, bool later_rows) {
  for (const int64_t first_row : {0, 3}) {
    if (first_row > 0 && !later_rows) continue;
    SCOPED_TRACE(testing::Message() << "first row " << first_row);
    const ref::FamilyShape s = family_layouts(8, first_row, 2)[0].shape;
    const ref::PrototypeInputs in = prototype_inputs(s, 4, 1);
    expect_noise_rows_sum_to_one(run, s, in, 1e-14);
    expect_noise_causality(run, s, in);
    expect_noise_ignores_the_window(run, s, in);
    expect_documents_apart(run, s, in, &ref::PrototypeInputs::keys);
  }
}

TEST(FamilyLaws, PrototypeNoise) {
  check_noise(ref::prototype_forward, true);
  check_noise(
      [](const ref::FamilyShape& s, const ref::PrototypeInputs& in) {
        ref::PrototypeState state(s, in.rank);
        return ref::prototype_recurrence(s, in, state);
      },
      false);
}

TEST(FamilyLaws, FixedNoise) {
  const auto inputs = [](const ref::FamilyShape& s, const ref::PrototypeInputs& in) {
    return ref::FixedInputs{{0.5, 0.9, 0.99}, random_doubles(static_cast<size_t>(s.heads() * 5), 3), in.v};
  };
  check_noise(
      [&](const ref::FamilyShape& s, const ref::PrototypeInputs& in) { return ref::fixed_forward(s, inputs(s, in)); },
      true);
  check_noise(
      [&](const ref::FamilyShape& s, const ref::PrototypeInputs& in) {
        Doubles state;
        return ref::fixed_recurrence(s, inputs(s, in), state);
      },
      false);
}

TEST(FamilyLaws, CalibratedNoise) {
  // Positive factors: every row's sum is above the floor.
  const auto basis = [](const ref::FamilyShape& s) {
    ref::CalibratedBasis b{s.keys(), 2, random_doubles(static_cast<size_t>(s.heads() * s.keys() * 2), 5), {}};
    b.v = random_doubles(b.u.size(), 6);
    for (Doubles* x : {&b.u, &b.v}) {
      for (double& value : *x) value = 0.5 + std::abs(value);
    }
    return b;
  };
  check_noise([&](const ref::FamilyShape& s,
                  const ref::PrototypeInputs& in) { return ref::mix(s, ref::calibrated_maps(s, basis(s)), in.v); },
              true);
}

// The whole triangle of a prototype map has full rank; a block that all its rows see wholly has rank ≤ R.
TEST(FamilyLaws, BlocksOfPrototypeMapsHaveLowRank) {
  const ref::FamilyShape s = family_layouts(24, 0)[0].shape;
  const ref::PrototypeInputs in = prototype_inputs(s, 3, 1);
  const Doubles maps = ref::prototype_maps(s, in);
  for (int64_t o = 0; o < s.heads(); ++o) {
    ref::Matrix whole = ref::zeros(24, 24), block = ref::zeros(12, 13);
    for (int64_t t = 0; t < 24; ++t) {
      for (int64_t j = 0; j < 24; ++j) {
        const auto row = static_cast<size_t>(t), column = static_cast<size_t>(j);
        whole[row][column] = maps[s.map_at(o, t, j)];
        if (t >= 12 && j <= 12) block[row - 12][column] = maps[s.map_at(o, t, j)];
      }
    }
    EXPECT_GT(ref::jacobi_singular_values(whole).back(), 1e-6);
    const Doubles sigma = ref::jacobi_singular_values(block);
    EXPECT_GT(sigma[2], 1e-3 * sigma[0]);
    EXPECT_LT(sigma[3], 1e-14 * sigma[0]);
  }
}

}  // namespace
}  // namespace unchain::test
