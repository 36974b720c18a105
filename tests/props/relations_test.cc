// What the recurrent members are in the words of other fields (docs/relations.md): the noise of lowrank_diff as linear
// attention with fixed queries and as a selective state-space model, that of fixed_diff as a linear one. Each relation
// is a plain scan in double, written from the other field's definition, against the library's kernel.
// ε = 2⁻²⁴. The scores are given. A weight is a product of at most T gates, each rounded once: off by a factor
// 1 + w, w = (2T + 8)ε; a mean of values by V·(w + (T + 3)ε), and so each of the R shares' terms.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/state_noise.h"
#include "base/rng.h"
#include "support/compare.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

using attention::HeadRows;
using attention::NoiseRows;

constexpr int64_t kTokens = 80, kHeads = 2, kRank = 3, kWidth = 5;

struct Noise {
  std::vector<float> scores = random_floats(kTokens * kHeads * kRank, 1);
  std::vector<float> alpha = random_floats(kTokens * kHeads * kRank, 2);
  std::vector<float> v = random_floats(kTokens * kHeads * kWidth, 3);
  std::vector<float> lambda = std::vector<float>(kTokens * kHeads, -1);  // −λ A2 V = A2 V
  attention::Layout layout = attention::softmax_layout(kHeads, kHeads);

  attention::SignedInputs inputs() {
    attention::SignedInputs in;
    in.v = HeadRows::side_by_side(Matrix(v.data(), kTokens, kHeads * kWidth), kHeads);
    in.rows = in.key_rows = kTokens;
    in.lambda = lambda.data();
    return in;
  }
  static size_t at(int64_t t, int64_t h, int64_t m) { return static_cast<size_t>((t * kHeads + h) * kRank + m); }
  double value(int64_t t, int64_t h, int64_t w) const {
    return static_cast<double>(v[static_cast<size_t>((t * kHeads + h) * kWidth + w)]);
  }

  // A2 V [T, H, W] of the library with these gates.
  std::vector<float> forward(const attention::StateNoise& noise) {
    std::vector<float> out(v.size(), 0);
    attention::StateWorkspace workspace;
    state_noise_forward(HeadRows::side_by_side(Matrix(out.data(), kTokens, kHeads * kWidth), kHeads), nullptr, nullptr,
                        noise, inputs(), layout, workspace);
    return out;
  }
  std::vector<float> of_prototypes() {
    std::vector<float> take(scores.size()), keep(scores.size());
    const auto rows = [](std::vector<float>& x) { return NoiseRows{x.data(), kHeads * kRank, kRank}; };
    prototype_gates(rows(take), rows(keep), rows(scores), nullptr, inputs(), kHeads, kRank);
    return forward({kRank, rows(take), rows(keep), rows(alpha)});
  }
  double tolerance(int64_t rank, const std::vector<float>& shares) const {
    const auto largest = [](const std::vector<float>& x) {
      double most = 0;
      for (const float value : x) most = std::max(most, std::abs(static_cast<double>(value)));
      return most;
    };
    const double weight = (2 * static_cast<double>(kTokens) + 8) * kEpsF32;
    return static_cast<double>(rank) * largest(shares) * largest(v) *
           (weight + (static_cast<double>(kTokens) + 3) * kEpsF32);
  }
};

// S_t = S_{t−1} + φ(k_t) v_tᵀ, z_t = z_{t−1} + φ(k_t), y_t = S_t / z_t (Katharopoulos et al., 2020), one feature a
// prototype, φ(k) = e^{p·k}; the prototypes' answers mixed by α.
TEST(Relations, PrototypesAreLinearAttentionWithFixedQueries) {
  Noise noise;
  const std::vector<float> got = noise.of_prototypes();
  for (int64_t h = 0; h < kHeads; ++h) {
    std::vector<double> sum(kRank * kWidth), total(kRank);
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<double> expected(kWidth);
      for (int64_t m = 0; m < kRank; ++m) {
        const auto feature = std::exp(static_cast<double>(noise.scores[Noise::at(t, h, m)]));
        const auto share = static_cast<double>(noise.alpha[Noise::at(t, h, m)]);
        total[static_cast<size_t>(m)] += feature;
        for (int64_t w = 0; w < kWidth; ++w) {
          double& s = sum[static_cast<size_t>(m * kWidth + w)];
          s += feature * noise.value(t, h, w);
          expected[static_cast<size_t>(w)] += share * s / total[static_cast<size_t>(m)];
        }
      }
      for (int64_t w = 0; w < kWidth; ++w) {
        EXPECT_NEAR(static_cast<double>(got[static_cast<size_t>((t * kHeads + h) * kWidth + w)]),
                    expected[static_cast<size_t>(w)], noise.tolerance(kRank, noise.alpha));
      }
    }
  }
}

// h_t = Ā_t h_{t−1} + B̄_t x_t, y_t = C_t h_t (Gu and Dao, 2023), diagonal, with Ā_t = σ(L_{t−1} − s_t), B̄_t = 1 − Ā_t,
// C_t = α_t, the state of each prototype and channel a number.
TEST(Relations, PrototypesAreASelectiveStateSpaceModel) {
  Noise noise;
  const std::vector<float> got = noise.of_prototypes();
  for (int64_t h = 0; h < kHeads; ++h) {
    std::vector<double> state(kRank * kWidth), log_sum(kRank, -std::numeric_limits<double>::infinity());
    for (int64_t t = 0; t < kTokens; ++t) {
      std::vector<double> expected(kWidth);
      for (int64_t m = 0; m < kRank; ++m) {
        const auto score = static_cast<double>(noise.scores[Noise::at(t, h, m)]);
        double& l = log_sum[static_cast<size_t>(m)];
        const double a = 1 / (1 + std::exp(score - l));
        l = score + std::log1p(std::exp(l - score));
        for (int64_t w = 0; w < kWidth; ++w) {
          double& x = state[static_cast<size_t>(m * kWidth + w)];
          x = a * x + (1 - a) * noise.value(t, h, w);
          expected[static_cast<size_t>(w)] += static_cast<double>(noise.alpha[Noise::at(t, h, m)]) * x;
        }
      }
      for (int64_t w = 0; w < kWidth; ++w) {
        EXPECT_NEAR(static_cast<double>(got[static_cast<size_t>((t * kHeads + h) * kWidth + w)]),
                    expected[static_cast<size_t>(w)], noise.tolerance(kRank, noise.alpha));
      }
    }
  }
}

// h_t = A h_{t−1} + x_t with a fixed diagonal A (1 for the uniform row, γ for a decay; the first token is h_0 kept),
// and y_t = h_t over its known normaliser Σ_{j ≤ t} A^{t−j}.
TEST(Relations, FixedRowsAreALinearStateSpaceModel) {
  Noise noise;
  const std::vector<float> decays = {0.5f, 0.9f, 0.99f};
  const auto rank = static_cast<int64_t>(2 + decays.size());
  std::vector<float> take(static_cast<size_t>(kTokens * rank)), keep = take;
  std::vector<float> mix = random_floats(kHeads * rank, 5);
  const NoiseRows taken{take.data(), rank, 0}, kept{keep.data(), rank, 0}, shares{mix.data(), 0, rank};
  fixed_gates(taken, kept, decays, noise.inputs());
  const std::vector<float> got = noise.forward({rank, taken, kept, shares});
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t w = 0; w < kWidth; ++w) {
      std::vector<double> state(static_cast<size_t>(rank)), weight = state;
      for (int64_t t = 0; t < kTokens; ++t) {
        double expected = 0;
        for (int64_t m = 0; m < rank; ++m) {
          const double a = m < 2 ? 1 : static_cast<double>(decays[static_cast<size_t>(m - 2)]);
          const double x = m == 0 && t > 0 ? 0 : 1;  // the first token alone is read
          double &s = state[static_cast<size_t>(m)], &z = weight[static_cast<size_t>(m)];
          s = a * s + x * noise.value(t, h, w);
          z = a * z + x;
          expected += static_cast<double>(mix[static_cast<size_t>(h * rank + m)]) * s / z;
        }
        EXPECT_NEAR(static_cast<double>(got[static_cast<size_t>((t * kHeads + h) * kWidth + w)]), expected,
                    noise.tolerance(rank, mix));
      }
    }
  }
}

}  // namespace
}  // namespace unchain::test
