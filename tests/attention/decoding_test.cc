// A text read as a model decodes it, a part of it at once and the rest token by token over a cache of keys and values,
// for every member of the family, against whole maps in double.
// ε = 2⁻²⁴, ε₈ = 2⁻⁸. As derived in signed_softmax_test.cc and state_noise_test.cc, whose bounds for an output these
// are: softmax maps are off by (1 + |λ|)·V·(w + (S + 3)ε), w = 2(E + 3)εX + 8e-7 + (S/8 + 5)ε, X = E·|q|·|k|; in bf16,
// where q, k and v hold what bf16 can say, the rounding of P adds 2ε₈ twice. A state is off by |λ|·V·(w + (S + 12)ε),
// w = 2εX + (2S + 8)ε, X the largest score, which is given here and rounded once; α adds up to 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attention/attention.h"
#include "attention/family.h"
#include "ref/calibrated_noise.h"
#include "ref/fixed_noise.h"
#include "ref/lambda_rules.h"
#include "ref/prototype_noise.h"
#include "ref/signed_attention.h"
#include "ref/softmax.h"
#include "support/compare.h"
#include "support/family_case.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

using attention::HeadRows;
using attention::NoiseMap;
using attention::NoiseRows;
using Floats = std::vector<float>;

double largest(const Floats& x) {
  double most = 0;
  for (const float value : x) most = std::max(most, std::abs(static_cast<double>(value)));
  return most;
}

// 75 tokens, a state's chunk being 32; eight heads on four groups, keys of 10 numbers and values of 7.
constexpr int64_t kTokens = 75, kHeads = 8, kGroups = 4, kWidth = 10, kValues = 7, kCapacity = kTokens + 3;

struct Text {
  attention::AttentionConfig family;
  attention::Layout layout;
  DType type;
  int64_t window, rank = 0;
  Floats q, k, v, lambda, extra, content, prototypes, alpha, u, basis;

  // `most` > 0: scores of the maps, and of prototypes, reach from −most to most at least.
  Text(const attention::AttentionConfig& config, DType dtype, int64_t seen, double most)
      : family(config), layout(attention::shape_of(config, kHeads, kGroups, kWidth).layout), type(dtype), window(seen) {
    const auto numbers = [](int64_t count, uint64_t seed) { return random_floats(static_cast<size_t>(count), seed); };
    const int64_t outputs = layout.output_heads();
    q = numbers(kTokens * layout.query_heads * kWidth, 1);
    k = numbers(kTokens * layout.key_heads * kWidth, 2);
    v = numbers(kTokens * layout.value_heads * kValues, 3);
    lambda = numbers(kTokens * outputs, 4);
    if (family.positive == attention::PositiveMap::sink) extra = numbers(outputs, 5);
    if (family.positive == attention::PositiveMap::off_by_one) extra.assign(static_cast<size_t>(outputs), 0);
    if (family.has_state()) {
      rank = family.state_rank();
      content = numbers(kTokens * layout.key_heads * kWidth, 6);
      prototypes = numbers(outputs * rank * kWidth, 7);
      const auto shares = static_cast<size_t>((family.noise == NoiseMap::fixed ? 1 : kTokens) * outputs);
      const auto mixed =
          ref::softmax(random_doubles(shares * static_cast<size_t>(rank), 8), shares, static_cast<size_t>(rank));
      alpha = {mixed.begin(), mixed.end()};
      u = numbers(outputs * kTokens * rank, 9);
      basis = numbers(outputs * kTokens * rank, 10);
      for (Floats* x : {&u, &basis}) {
        for (float& value : *x) value = 0.5f + std::abs(value);  // row sums above their floor
      }
    }
    if (most > 0) {
      // Among so many, products of two vectors of 10 random numbers reach 12 and more.
      for (Floats* x : {&q, &prototypes}) {
        for (float& value : *x) value *= static_cast<float>(most / 12);
      }
    }
    if (type == DType::bf16) {
      for (Floats* x : {&q, &k, &v}) *x = through_bf16(*x);
    }
  }

  ref::FamilyShape shape() const { return reference_shape(layout, kTokens, kWidth, kValues, window); }

  // The largest score of each sign, of A1 and what its rows see.
  std::pair<double, double> extreme_scores() const {
    const ref::FamilyShape s = shape();
    double least = 0, most = 0;
    for (int64_t o = 0; o < s.heads(); ++o) {
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t j = 0; j <= t; ++j) {
          double sum = 0;
          for (int64_t e = 0; e < kWidth; ++e) {
            sum +=
                static_cast<double>(q[s.q_at(t, s.pair(o).q1, e)]) * static_cast<double>(k[s.k_at(j, s.pair(o).k1, e)]);
          }
          least = std::min(least, sum);
          most = std::max(most, sum);
        }
      }
    }
    return {least, most};
  }

  // Of position t: p_m · k̃_t for each output and prototype, in double.
  void scores(float* to, int64_t t) const {
    const ref::FamilyShape s = shape();
    for (int64_t o = 0; o < s.heads(); ++o) {
      for (int64_t m = 0; m < rank; ++m) {
        double sum = 0;
        for (int64_t e = 0; e < kWidth; ++e) {
          sum += static_cast<double>(prototypes[static_cast<size_t>((o * rank + m) * kWidth + e)]) *
                 static_cast<double>(content[s.k_at(t, s.pair(o).k1, e)]);
        }
        to[o * rank + m] = static_cast<float>(sum);
      }
    }
  }

  std::vector<double> reference() const {
    const ref::FamilyShape s = shape();
    const auto out = ref::signed_forward(s, {widen(q), widen(k), widen(v), widen(lambda), widen(extra)}).out;
    if (!family.has_state()) return out;
    const auto noise = [&]() -> std::vector<double> {
      if (family.calibrated) {
        return ref::mix(s, ref::calibrated_maps(s, {kTokens, rank, widen(u), widen(basis)}), widen(v));
      }
      if (family.noise == NoiseMap::prototypes) {
        ref::PrototypeInputs in;
        in.rank = rank;
        in.prototypes = widen(prototypes);
        in.keys = widen(content);
        in.alpha = widen(alpha);
        in.v = widen(v);
        return ref::prototype_forward(s, in);
      }
      std::vector<double> logits = widen(alpha);  // whose softmax is α
      for (double& x : logits) x = std::log(x);
      return ref::fixed_forward(s, {{family.decays.begin(), family.decays.end()}, logits, widen(v)});
    };
    return ref::subtract_noise(out, widen(lambda), noise());
  }

  double tolerance() const {
    const double n = kTokens, e = kWidth, rounding = type == DType::bf16 ? 2 * kEpsBf16 : 0, value = largest(v);
    const double w = 2 * (e + 3) * kEpsF32 * e * largest(q) * largest(k) + 8e-7 + (n / 8 + 5) * kEpsF32 + rounding;
    const double both = 1 + (layout.has_second_map() ? largest(lambda) : 0);
    const double maps = both * value * (w + (n + 3) * kEpsF32 + rounding);
    if (!family.has_state()) return maps;
    const double score = family.noise == NoiseMap::prototypes ? e * largest(prototypes) * largest(content) : 0;
    return maps + largest(lambda) * value * (2 * kEpsF32 * score + (3 * n + 20) * kEpsF32);
  }
};

template <class T>
T rounded(float x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(x);
  } else {
    return x;
  }
}

// Keys or values of all positions, head by head, as a cache holds them; what is not read yet is NaN.
template <class T>
struct Cache {
  std::vector<T> numbers;
  int64_t heads, width;

  Cache(int64_t count, int64_t numbers_each)
      : numbers(static_cast<size_t>(count * kCapacity * numbers_each),
                rounded<T>(std::numeric_limits<float>::quiet_NaN())),
        heads(count),
        width(numbers_each) {}
  void read(const Floats& from, int64_t t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t e = 0; e < width; ++e) {
        numbers[static_cast<size_t>((h * kCapacity + t) * width + e)] =
            rounded<T>(from[static_cast<size_t>((t * heads + h) * width + e)]);
      }
    }
  }
  HeadRows rows() {
    return {numbers.data(), std::is_same_v<T, float> ? DType::f32 : DType::bf16, heads, width, kCapacity * width,
            width};
  }
};

// The first `prefill` tokens at once, the others one by one.
template <class T>
Floats decode(Text& text, int64_t prefill) {
  const int64_t outputs = text.layout.output_heads(), rank = text.rank, queries = text.layout.query_heads * kWidth;
  Floats out(static_cast<size_t>(kTokens * outputs * kValues), -77),
      means(static_cast<size_t>(outputs * rank * kValues));
  std::vector<double> log_sums(static_cast<size_t>(outputs * rank));
  Cache<T> keys(text.layout.key_heads, kWidth), values(text.layout.value_heads, kValues);
  const attention::SignedConfig config{text.layout, 1, text.window, 0};
  attention::AttentionWorkspace workspace;
  for (int64_t first = 0; first < kTokens;) {
    const int64_t rows = first == 0 ? prefill : 1;
    for (int64_t t = first; t < first + rows; ++t) {
      keys.read(text.k, t);
      values.read(text.v, t);
    }
    attention::SignedInputs in;
    in.q = HeadRows::side_by_side(Matrix(text.q.data() + first * queries, rows, queries), text.layout.query_heads);
    in.k = keys.rows();
    in.v = values.rows();
    in.rows = rows;
    in.first_row = first;
    in.key_rows = kCapacity;
    in.lambda = text.family.has_noise() ? text.lambda.data() + first * outputs : nullptr;
    in.extra = text.extra.empty() ? nullptr : text.extra.data();
    // Gates of these rows alone: the state holds what came before.
    Floats take(static_cast<size_t>(rows * outputs * rank)), keep = take, alpha = take;
    const auto all = [&](Floats& x) { return NoiseRows{x.data(), outputs * rank, rank}; };
    attention::StateCall state{{rank, all(take), all(keep), all(alpha)}, means.data(), first};
    if (text.family.calibrated) {
      calibrated_gates(all(take), all(keep), all(alpha), {text.u.data(), text.basis.data(), kTokens, rank}, in,
                       outputs);
    } else if (text.family.noise == NoiseMap::prototypes) {
      for (int64_t t = 0; t < rows; ++t) text.scores(take.data() + t * outputs * rank, first + t);
      prototype_gates(all(take), all(keep), all(take), log_sums.data(), in, outputs, rank);
      state.noise.alpha.data = text.alpha.data() + first * outputs * rank;
    } else if (text.family.noise == NoiseMap::fixed) {
      state.noise.take = {take.data(), rank, 0};
      state.noise.keep = {keep.data(), rank, 0};
      fixed_gates(state.noise.take, state.noise.keep, text.family.decays, in);
      state.noise.alpha = {text.alpha.data(), 0, rank};
    }
    attention_forward(Matrix(out.data() + first * outputs * kValues, rows, outputs * kValues), in, config, workspace,
                      {}, text.family.has_state() ? &state : nullptr);
    first += rows;
  }
  return out;
}

std::vector<attention::AttentionConfig> family() {
  std::vector<attention::AttentionConfig> all;
  for (const char* name : {"softmax", "diff_v1", "diff_v2", "shared_diff", "grouped_diff", "lowrank_diff", "fixed_diff",
                           "gated", "off_by_one", "sink"})
    all.push_back(attention::preset(name));
  all.push_back(attention::preset("diff_v1"));
  all.back().accounting = attention::Accounting::added;
  all.push_back(attention::preset("diff_v1"));
  all.back().pairs = attention::Pairs::neighbours;
  all.push_back(attention::preset("fixed_diff"));
  all.back().calibrated = true;
  all.back().rank = 3;
  return all;
}

void check_decoding(double most) {
  for (const attention::AttentionConfig& config : family()) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const int64_t window : {0, 20}) {
        Text text(config, type, window, most);
        EXPECT_LE(text.extreme_scores().first, -most) << config.preset;
        EXPECT_GE(text.extreme_scores().second, most) << config.preset;
        const std::vector<double> expected = text.reference();
        for (const int64_t prefill : {1, 33, 74}) {
          const Floats found = type == DType::bf16 ? decode<bf16>(text, prefill) : decode<float>(text, prefill);
          EXPECT_TRUE(close(found, expected, text.tolerance()))
              << config.preset << (config.calibrated ? ", calibrated" : "") << ", " << info(type).name << ", window "
              << window << ", " << prefill << " tokens at once";
        }
      }
    }
  }
}

TEST(Decoding, EveryMemberAgreesWithTheReference) {
  check_decoding(0);
}

// Of scores from −100 to 100 a softmax leaves one or two keys, by weights that f32 scores know to 1e-3.
TEST(Decoding, ScoresOfAHundred) {
  check_decoding(100);
}

}  // namespace
}  // namespace unchain::test
