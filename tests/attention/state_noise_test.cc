// Noise as a state against whole maps in double: prototypes and fixed rows, forward, backward, split at any token.
// ε = 2⁻²⁴. A score is a sum of E products bounded by X: off by δ = (E + 3)εX. A weight is a product of at most T
// keeps, each rounded once, so off by a factor 1 + w, w = 2δ + (2T + 8)ε. A mean of values: V·(w + (T + 3)ε). Backward
// sums the same weights over the later rows, whose total is the column sum C of the map, of terms bounded by Y =
// W·|dO|·V.
#include "attention/state_noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/thread.h"
#include "ref/calibrated_noise.h"
#include "ref/fixed_noise.h"
#include "ref/lambda_rules.h"
#include "ref/prototype_noise.h"
#include "support/compare.h"
#include "support/family_case.h"
#include "support/random_values.h"
#include "support/simd_targets.h"

namespace unchain::test {
namespace {

using attention::HeadRows;
using attention::NoiseRows;

constexpr int64_t kRank = 3;

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double value : x) most = std::max(most, std::abs(value));
  return most;
}

// One text of `rows` tokens, four outputs over two key and value heads.
struct Problem {
  attention::Layout layout = attention::softmax_layout(4, 2);
  int64_t rows, head_dim = 6, value_dim = 9;
  std::vector<float> prototypes, content, alpha, v, lambda, d_out, decays = {0.5f, 0.9f}, logits;
  std::vector<int32_t> starts;

  Problem(int64_t length, bool documents) : rows(length) {
    const auto numbers = [](int64_t count, uint64_t seed) { return random_floats(static_cast<size_t>(count), seed); };
    prototypes = numbers(4 * kRank * head_dim, 1);
    content = numbers(rows * 2 * head_dim, 2);
    alpha = numbers(rows * 4 * kRank, 3);
    v = numbers(rows * 2 * value_dim, 4);
    lambda = numbers(rows * 4, 5);
    d_out = numbers(rows * 4 * value_dim, 6);
    logits = numbers(4 * 4, 7);
    for (int64_t t = 0; documents && t < rows; ++t)
      starts.push_back(static_cast<int32_t>(t < rows / 3 ? 0 : t < rows / 2 ? rows / 3 : rows / 2));
  }
  ref::FamilyShape shape() const {
    ref::FamilyShape s = reference_shape(layout, rows, head_dim, value_dim);
    s.start.assign(starts.begin(), starts.end());
    return s;
  }
  attention::SignedInputs inputs() {
    attention::SignedInputs in;
    in.v = HeadRows::side_by_side(Matrix(v.data(), rows, 2 * value_dim), 2);
    in.rows = in.key_rows = rows;
    in.lambda = lambda.data();
    in.starts = starts.empty() ? nullptr : starts.data();
    return in;
  }
  std::vector<float> scores() const {
    std::vector<float> result(static_cast<size_t>(rows * 4 * kRank));
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t o = 0; o < 4; ++o) {
        for (int64_t m = 0; m < kRank; ++m) {
          float sum = 0;
          for (int64_t e = 0; e < head_dim; ++e) {
            sum += prototypes[static_cast<size_t>((o * kRank + m) * head_dim + e)] *
                   content[static_cast<size_t>((t * 2 + o / 2) * head_dim + e)];
          }
          result[static_cast<size_t>((t * 4 + o) * kRank + m)] = sum;
        }
      }
    }
    return result;
  }
  ref::PrototypeInputs prototype_inputs() const {
    ref::PrototypeInputs in;
    in.rank = kRank;
    in.prototypes = widen(prototypes);
    in.keys = widen(content);
    in.alpha = widen(alpha);
    in.v = widen(v);
    return in;
  }
  // −λ·A2 V in double, which the kernel adds to zeros.
  std::vector<double> taken_off(const std::vector<double>& noise) const {
    return ref::subtract_noise(std::vector<double>(noise.size()), widen(lambda), noise);
  }
  double weight_error(double score) const {
    return 2 * (static_cast<double>(head_dim) + 3) * kEpsF32 * score + (2 * static_cast<double>(rows) + 8) * kEpsF32;
  }
};

struct Result {
  std::vector<float> out, d_v, d_lambda, d_alpha, d_scores, maps;
};

NoiseRows side_by_side(std::vector<float>& x, int64_t rank) {
  return {x.data(), 4 * rank, rank};
}

Result run(Problem p, const attention::StateNoise& noise) {
  const auto heads = [&](std::vector<float>& x, int64_t count) {
    return HeadRows::side_by_side(Matrix(x.data(), p.rows, count * p.value_dim), count);
  };
  const auto in = p.inputs();
  attention::StateWorkspace workspace;
  Result r;
  r.out.assign(p.d_out.size(), 0);
  const int64_t chunks = (p.rows + 31) / 32;
  std::vector<float> saved(static_cast<size_t>(chunks * 4 * noise.rank * p.value_dim));
  state_noise_forward(heads(r.out, 4), nullptr, saved.data(), noise, in, p.layout, workspace);
  r.d_v.assign(p.v.size(), 0);
  r.d_lambda.assign(p.lambda.size(), -77);
  r.d_alpha.assign(static_cast<size_t>(p.rows * 4 * noise.rank), -77);
  r.d_scores = r.d_alpha;
  const attention::StateGradients g{heads(r.d_v, 2), r.d_lambda.data(), side_by_side(r.d_alpha, noise.rank),
                                    side_by_side(r.d_scores, noise.rank)};
  state_noise_backward(g, heads(p.d_out, 4), saved.data(), noise, in, p.layout, workspace);
  r.maps.assign(static_cast<size_t>(4 * p.rows * p.rows), -77);
  attention::MapPanel panel;
  panel.heads = 4;
  panel.rows = panel.keys = panel.row_stride = p.rows;
  panel.head_stride = p.rows * p.rows;
  panel.noise = r.maps.data();
  state_noise_maps(panel, noise, 0);
  return r;
}

struct Gates {
  std::vector<float> take, keep;
};

Gates prototype_gates_of(Problem& p) {
  Gates g{p.scores(), std::vector<float>(static_cast<size_t>(p.rows * 4 * kRank))};
  prototype_gates(side_by_side(g.take, kRank), side_by_side(g.keep, kRank), side_by_side(g.take, kRank), nullptr,
                  p.inputs(), 4, kRank);
  return g;
}

double column_sum(const ref::FamilyShape& s, const std::vector<double>& maps) {
  double most = 0;
  for (int64_t o = 0; o < s.heads(); ++o) {
    for (int64_t j = 0; j < s.rows; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < s.rows; ++t) sum += std::abs(maps[s.map_at(o, t, j)]);
      most = std::max(most, sum);
    }
  }
  return most;
}

TEST(StateNoise, PrototypesAgreeWithTheirMaps) {
  for (const int64_t rows : {1, 2, 31, 32, 33, 64, 100}) {
    for (const bool documents : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << ", documents " << documents);
      Problem p(rows, documents);
      Gates gates = prototype_gates_of(p);
      const Result found = run(
          p, {kRank, side_by_side(gates.take, kRank), side_by_side(gates.keep, kRank), side_by_side(p.alpha, kRank)});
      const auto s = p.shape();
      const auto in = p.prototype_inputs();
      const auto maps = ref::prototype_maps(s, in);
      const auto noise = ref::mix(s, maps, in.v);
      const auto d_out = widen(p.d_out), lambda = widen(p.lambda);
      const auto taken = ref::subtract_noise_backward(d_out, lambda, noise);
      const auto g = ref::prototype_backward(s, taken.d_noise, in);
      const double n = static_cast<double>(rows), share = kRank * largest(in.alpha), most = largest(lambda);
      const double w = p.weight_error(static_cast<double>(p.head_dim) * largest(in.prototypes) * largest(in.keys));
      const double sums = (n + 12) * kEpsF32, value = largest(in.v);
      const double y = static_cast<double>(p.value_dim) * largest(d_out) * value;
      // α may be negative here: the column sum of the weights is bounded by the rows.
      const double column = share * n;
      EXPECT_TRUE(close(found.maps, maps, share * w)) << "map form";
      EXPECT_TRUE(close(found.out, p.taken_off(noise), most * share * value * (w + sums)));
      EXPECT_TRUE(close(found.d_lambda, taken.d_lambda, share * y * (w + sums))) << "d_lambda";
      EXPECT_TRUE(close(found.d_alpha, g.d_alpha, most * y * (w + sums))) << "d_alpha";
      EXPECT_TRUE(close(found.d_v, g.d_v, 2 * most * column * largest(d_out) * (w + sums))) << "d_v";
      // On to prototypes and content keys, by plain sums.
      std::vector<double> d_prototypes(in.prototypes.size()), d_keys(in.keys.size());
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t o = 0; o < 4; ++o) {
          for (int64_t m = 0; m < kRank; ++m) {
            const double d_score = static_cast<double>(found.d_scores[static_cast<size_t>((t * 4 + o) * kRank + m)]);
            for (int64_t e = 0; e < p.head_dim; ++e) {
              d_prototypes[in.prototype_at(o, m, e, p.head_dim)] += d_score * in.keys[s.k_at(t, o / 2, e)];
              d_keys[s.k_at(t, o / 2, e)] += d_score * in.prototypes[in.prototype_at(o, m, e, p.head_dim)];
            }
          }
        }
      }
      const double d_score = 2 * most * largest(in.alpha) * n * y * (2 * w + sums);
      EXPECT_TRUE(close(d_keys, g.d_keys, 2 * kRank * largest(in.prototypes) * d_score)) << "d_keys";
      EXPECT_TRUE(close(d_prototypes, g.d_prototypes, n * largest(in.keys) * d_score)) << "d_prototypes";
    }
  }
}

TEST(StateNoise, FixedRowsAgreeWithTheirMaps) {
  for (const int64_t rows : {1, 33, 100}) {
    for (const bool documents : {false, true}) {
      Problem p(rows, documents);
      const auto s = p.shape();
      const ref::FixedInputs in{{0.5, static_cast<double>(0.9f)}, widen(p.logits), widen(p.v)};
      const auto shares = in.shares(s);
      std::vector<float> alpha(shares.begin(), shares.end());
      std::vector<float> take(static_cast<size_t>(rows * 4)), keep = take;
      fixed_gates({take.data(), 4, 0}, {keep.data(), 4, 0}, p.decays, p.inputs());
      const Result found = run(p, {4, {take.data(), 4, 0}, {keep.data(), 4, 0}, {alpha.data(), 0, 4}});
      const auto noise = ref::fixed_forward(s, in);
      const auto d_out = widen(p.d_out), lambda = widen(p.lambda);
      const auto taken = ref::subtract_noise_backward(d_out, lambda, noise);
      const auto g = ref::fixed_backward(s, taken.d_noise, in);
      const double n = static_cast<double>(rows), w = p.weight_error(0), sums = (n + 12) * kEpsF32;
      const double most = largest(lambda), y = static_cast<double>(p.value_dim) * largest(d_out) * largest(in.v);
      EXPECT_TRUE(close(found.maps, ref::fixed_maps(s, in), w));
      EXPECT_TRUE(close(found.out, p.taken_off(noise), most * largest(in.v) * (w + sums)));
      EXPECT_TRUE(close(found.d_lambda, taken.d_lambda, y * (w + sums)));
      EXPECT_TRUE(
          close(found.d_v, g.d_v, 2 * most * column_sum(s, ref::fixed_maps(s, in)) * largest(d_out) * (w + sums)));
    }
  }
}

// An entry of the map is a sum of R products of U_i / row sum and V_j, each rounded twice: off by (R + 3)ε·A, A = R
// times their largest product; a chunk's sums carry over by adding, n of them.
TEST(StateNoise, CalibratedRowsAgreeWithTheirMaps) {
  for (const int64_t rows : {1, 33, 100}) {
    for (const bool documents : {false, true}) {
      Problem p(rows, documents);
      const auto s = p.shape();
      const auto spread = [&](uint64_t seed) {
        std::vector<float> x = random_floats(static_cast<size_t>(4 * rows * kRank), seed, 0.5);
        for (float& value : x) value += 0.4f;  // most row sums lie above the floor, the first ones below
        return x;
      };
      const std::vector<float> u = spread(8), v = spread(9);
      const ref::CalibratedBasis basis{rows, kRank, widen(u), widen(v)};
      std::vector<float> take(static_cast<size_t>(rows * 4 * kRank)), keep = take, alpha = take;
      calibrated_gates(side_by_side(take, kRank), side_by_side(keep, kRank), side_by_side(alpha, kRank),
                       {u.data(), v.data(), rows, kRank}, p.inputs(), 4);
      const Result found =
          run(p, {kRank, side_by_side(take, kRank), side_by_side(keep, kRank), side_by_side(alpha, kRank)});
      const auto maps = ref::calibrated_maps(s, basis);
      const auto noise = ref::mix(s, maps, widen(p.v));
      const auto d_out = widen(p.d_out), lambda = widen(p.lambda);
      const auto taken = ref::subtract_noise_backward(d_out, lambda, noise);
      const double n = static_cast<double>(rows), most = largest(lambda), value = largest(widen(p.v));
      const double entry = kRank * largest(widen(alpha)) * largest(widen(v)), sums = (n + kRank + 15) * kEpsF32;
      const double y = static_cast<double>(p.value_dim) * largest(d_out) * value;
      EXPECT_TRUE(close(found.maps, maps, entry * (kRank + 3) * kEpsF32));
      EXPECT_TRUE(close(found.out, p.taken_off(noise), most * n * entry * value * sums));
      EXPECT_TRUE(close(found.d_lambda, taken.d_lambda, n * entry * y * sums));
      EXPECT_TRUE(close(found.d_v, ref::calibrated_backward(s, taken.d_noise, basis, widen(p.v)),
                        2 * most * n * entry * largest(d_out) * sums));
    }
  }
}

TEST(StateNoise, ScoresOfAHundredAndOneHugeScoreLate) {
  // One key number a token and unit prototypes: the scores are exact, and so is what the softmax makes of them.
  Problem p(90, false);
  p.head_dim = 1;
  p.prototypes.assign(4 * kRank, 1);
  p.prototypes[1] = -1;
  p.content = random_floats(static_cast<size_t>(p.rows * 2), 9);
  for (float& x : p.content) x *= 100;
  p.content[2 * 50] = 3000;   // late in the second chunk: all that came before must vanish
  p.content[2 * 51] = -3000;  // and this one for the prototype that points the other way
  Gates gates = prototype_gates_of(p);
  const Result found =
      run(p, {kRank, side_by_side(gates.take, kRank), side_by_side(gates.keep, kRank), side_by_side(p.alpha, kRank)});
  const auto s = p.shape();
  const auto in = p.prototype_inputs();
  const auto noise = ref::prototype_forward(s, in);
  const auto g =
      ref::prototype_backward(s, ref::subtract_noise_backward(widen(p.d_out), widen(p.lambda), noise).d_noise, in);
  const double share = kRank * largest(in.alpha), w = p.weight_error(0), n = static_cast<double>(p.rows);
  const double all = largest(widen(p.lambda)) * share * (w + (n + 12) * kEpsF32);
  EXPECT_TRUE(close(found.maps, ref::prototype_maps(s, in), share * w));
  EXPECT_TRUE(close(found.out, p.taken_off(noise), all * largest(in.v)));
  EXPECT_TRUE(close(found.d_v, g.d_v, 2 * n * all * largest(widen(p.d_out))));
}

TEST(StateNoise, AnyCutGivesTheSameAsTheWhole) {
  Problem p(75, true);
  Gates gates = prototype_gates_of(p);
  const attention::StateNoise noise{kRank, side_by_side(gates.take, kRank), side_by_side(gates.keep, kRank),
                                    side_by_side(p.alpha, kRank)};
  const Result whole = run(p, noise);
  for (const int64_t cut : {1, 32, 40, 74}) {
    std::vector<float> out(whole.out.size()), states(static_cast<size_t>(4 * kRank * p.value_dim));
    std::vector<double> log_sums(4 * kRank);
    attention::StateWorkspace workspace;
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, cut}, {cut, p.rows - cut}}) {
      std::vector<float> take = p.scores(), keep(take.size());
      attention::SignedInputs in = p.inputs();
      in.first_row = first;
      in.rows = count;
      in.lambda = p.lambda.data() + first * 4;
      in.starts = p.starts.data() + first;
      const auto from = [first = first](std::vector<float>& x) {
        return NoiseRows{x.data() + first * 4 * kRank, 4 * kRank, kRank};
      };
      prototype_gates(from(take), from(keep), from(take), log_sums.data(), in, 4, kRank);
      state_noise_forward(
          HeadRows::side_by_side(Matrix(out.data() + first * 4 * p.value_dim, count, 4 * p.value_dim), 4),
          states.data(), nullptr, {kRank, from(take), from(keep), from(p.alpha)}, in, p.layout, workspace);
    }
    // The same numbers in another order of sums.
    EXPECT_TRUE(close(out, widen(whole.out), largest(widen(p.lambda)) * kRank * 2 * p.weight_error(0)));
  }
}

TEST(StateNoise, EveryInstructionSetAgrees) {
  Problem p(70, true);
  Gates gates = prototype_gates_of(p);
  const attention::StateNoise noise{kRank, side_by_side(gates.take, kRank), side_by_side(gates.keep, kRank),
                                    side_by_side(p.alpha, kRank)};
  const Result best = run(p, noise);
  // The same products in another order of sums, over at most T terms of size Y (see the top).
  const double y = static_cast<double>(p.value_dim) * largest(widen(p.d_out)) * largest(widen(p.v));
  const double each = 2 * p.weight_error(0) * kRank * static_cast<double>(p.rows) * (y + 1);
  on_every_target([&] {
    const Result other = run(p, noise);
    for (const auto part : {&Result::out, &Result::d_v, &Result::d_lambda, &Result::d_alpha, &Result::d_scores})
      EXPECT_TRUE(close(other.*part, widen(best.*part), each));
  });
}

TEST(StateNoise, TheSameBitsForAnyNumberOfThreads) {
  Problem p(100, true);
  Gates gates = prototype_gates_of(p);
  const attention::StateNoise noise{kRank, side_by_side(gates.take, kRank), side_by_side(gates.keep, kRank),
                                    side_by_side(p.alpha, kRank)};
  set_threads(1);
  const Result one = run(p, noise);
  set_threads(2);
  const Result two = run(p, noise);
  set_threads(0);
  for (const auto part : {&Result::out, &Result::d_v, &Result::d_lambda, &Result::d_alpha, &Result::d_scores})
    EXPECT_TRUE(same_bits(one.*part, two.*part));
}

}  // namespace
}  // namespace unchain::test
