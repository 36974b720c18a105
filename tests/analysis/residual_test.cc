// What attention writes into the residual stream: the taps' two terms against plain double, and their figures.
#include "analysis/residual.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/loaded_family.h"
#include "ref/lambda_rules.h"
#include "ref/layout.h"
#include "ref/projection.h"
#include "ref/rms_norm.h"
#include "support/attention_case.h"
#include "support/compare.h"
#include "support/tiny_model.h"

namespace unchain::test {
namespace {

using namespace analysis;
using attention::MapPanel;
using attention::ResidualPanel;
using Doubles = std::vector<double>;

// Both maps and λ of layer 0, and the residual stream and writes of every layer.
struct Recorder : attention::Observer {
  bool wants_writes() const override { return writes; }
  void on_maps(const MapPanel& panel) override {
    if (panel.layer > 0) return;
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        for (int64_t j = 0; j < panel.keys; ++j) {
          const std::tuple<int, int64_t, int64_t> at{h, panel.first_row + r, j};
          positive_map[at] = static_cast<double>(panel.positive_row(h, r)[j]);
          if (panel.noise)
            noise_map[at] =
                static_cast<double>(panel.lambda[h * panel.rows + r]) * static_cast<double>(panel.noise_row(h, r)[j]);
        }
      }
    }
  }
  void on_residual(const ResidualPanel& panel) override {
    EXPECT_EQ(panel.first_row, rows[panel.layer]) << "rows follow each other";
    rows[panel.layer] += panel.rows;
    const auto take = [&](std::map<int, std::vector<float>>& to, const float* from) {
      if (from) to[panel.layer].insert(to[panel.layer].end(), from, from + panel.rows * panel.width);
    };
    take(x, panel.x);
    take(positive, panel.positive);
    take(noise, panel.noise);
  }
  bool writes = true;
  std::map<std::tuple<int, int64_t, int64_t>, double> positive_map, noise_map;  // A1, λ A2 by head, row, key
  std::map<int, int64_t> rows;
  std::map<int, std::vector<float>> x, positive, noise;
};

bool is_halved(const std::string& member) {
  return member.starts_with("diff_v1") || member == "shared_diff";
}

std::vector<ref::HeadPair> pairs_of(const std::string& member) {
  if (is_halved(member)) return ref::halves_layout(8, 4);
  if (member == "diff_v2") return ref::shared_keys_layout(8, 4);
  if (member == "grouped_diff") return ref::grouped_layout(8, 4, 4);
  return ref::plain_layout(8, 4);
}

// A number and how far f32 may be from it.
struct Bounded {
  Doubles value, tolerance;
};

struct Writes {
  Bounded positive, noise;
};

// Layer 0 by plain loops from the maps that it had, its weights and the embedding.
Writes reference(const std::string& member, const LoadedFamily& family, const Recorder& maps, const Doubles& x) {
  const std::string layer = "model.layers.0.";
  const auto weight = [&](const std::string& name) { return family.weights.at(layer + name); };
  constexpr int64_t kWidth = 24, kHead = 6, kKvHeads = 4;
  constexpr double kEps = 1e-5;
  const int64_t rows = static_cast<int64_t>(x.size()) / kWidth;
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  const Doubles n = ref::rms_norm(x, weight("input_layernorm.weight"), size(rows), kWidth, kEps);
  Doubles magnitude_n = n, magnitude_w = weight("self_attn.v_proj.weight");
  for (Doubles* all : {&magnitude_n, &magnitude_w}) {
    for (double& number : *all) number = std::abs(number);
  }
  const auto project = [&](const Doubles& from, const Doubles& by) {
    const Doubles v = ref::project(from, by, rows, kKvHeads * kHead, kWidth);
    return is_halved(member) ? ref::join_halves(v, rows, kKvHeads, kHead) : v;
  };
  const Doubles v = project(n, weight("self_attn.v_proj.weight")), v_bound = project(magnitude_n, magnitude_w);
  const auto pairs = pairs_of(member);
  const int64_t heads = static_cast<int64_t>(pairs.size()), w = is_halved(member) ? 2 * kHead : kHead;
  // Pass 1: A1 V and −λ A2 V of every head [T, O, W], and the sums of magnitudes that bound their rounding.
  struct Term {
    Doubles value, bound;
  };
  Term terms[2];
  for (int part = 0; part < 2; ++part) {
    terms[part].value.resize(size(rows * heads * w));
    terms[part].bound.resize(size(rows * heads * w));
    for (const auto& [at, p] : part == 0 ? maps.positive_map : maps.noise_map) {
      const auto& [head, row, key] = at;
      for (int64_t i = 0; i < w; ++i) {
        const size_t to = size((row * heads + head) * w + i),
                     from = size(key * kKvHeads * kHead + pairs[size(head)].v * w + i);
        terms[part].value[to] += (part == 0 ? p : -p) * v[from];
        terms[part].bound[to] += p * v_bound[from];
      }
    }
  }
  // Pass 2: the factors of head norm and gates, those of the sum; `doubt`: how much larger the terms are than their
  // sum, by which its norm's error grows.
  const bool gated = member.find("gate") != std::string::npos, by_element = member.ends_with("element gates");
  Doubles gate;
  if (gated)
    gate = ref::sigmoid_project(n, weight("self_attn.gate_proj.weight"), rows, by_element ? heads * w : heads, kWidth);
  for (int64_t o = 0; o < rows * heads; ++o) {
    double squares = 0, bound = 0;
    for (size_t i = size(o * w); i < size((o + 1) * w); ++i) {
      squares += std::pow(terms[0].value[i] + terms[1].value[i], 2);
      bound += std::pow(terms[0].bound[i] + terms[1].bound[i], 2);
    }
    const bool norm = is_halved(member) || member == "grouped_diff";
    const double factor = norm ? (1 - ref::lambda_init(1)) / std::sqrt(squares / static_cast<double>(w) + kEps) : 1;
    const double doubt = norm ? 1 + std::sqrt(bound / squares) : 1;
    for (size_t i = size(o * w); i < size((o + 1) * w); ++i) {
      const double whole = factor * (gated ? gate[by_element ? i : size(o)] : 1);
      for (Term& term : terms) {
        term.value[i] *= whole;
        term.bound[i] *= whole * doubt;
      }
    }
  }
  // Pass 3: W_O. Rounding: n D/16 + 8, V D, the maps' product T, factors 16 (a σ, an inverse root), W_O O·W, each times
  // the sum of magnitudes.
  const double roundings = 3 * kWidth + static_cast<double>(rows + heads * w) + 32;
  Doubles magnitude_o = weight("self_attn.o_proj.weight");
  for (double& number : magnitude_o) number = std::abs(number);
  const auto write = [&](const Term& term) {
    Bounded result{ref::project(term.value, weight("self_attn.o_proj.weight"), rows, kWidth, heads * w),
                   ref::project(term.bound, magnitude_o, rows, kWidth, heads * w)};
    for (double& number : result.tolerance) number *= roundings * kEpsF32;
    return result;
  };
  return {write(terms[0]), write(terms[1])};
}

TEST(ResidualWrites, TermsAgreeWithPlainDouble) {
  const auto ids = token_ids(50);
  for (const std::string& member : members()) {
    if (member == "off_by_one" || member == "sink" || member.ends_with("calibrated")) continue;
    const LoadedFamily family(family_config(member));
    Recorder recorder;
    logits_with(family, ids, {}, {&recorder});
    Doubles x;
    for (const int32_t id : ids) {
      const auto row = family.weights.at("model.embed_tokens.weight").begin() + id * 24;
      x.insert(x.end(), row, row + 24);
    }
    EXPECT_TRUE(close(recorder.x.at(0), x, 0)) << member;
    const Writes expected = reference(member, family, recorder, x);
    EXPECT_TRUE(close_each(recorder.positive.at(0), expected.positive.value, expected.positive.tolerance)) << member;
    const bool noise = member.find("diff") != std::string::npos;
    ASSERT_EQ(recorder.noise.contains(0), noise) << member;
    if (!noise) continue;
    EXPECT_TRUE(close_each(recorder.noise.at(0), expected.noise.value, expected.noise.tolerance)) << member;
    // The tolerance tells the terms apart.
    EXPECT_FALSE(close_each(recorder.noise.at(0), expected.positive.value, expected.positive.tolerance)) << member;
  }
}

// x of the next layer less x of this one, where the feed-forward layer is silent, is what attention has written.
double largest_gap(const Recorder& recorder, int layer) {
  double largest = 0;
  const auto &before = recorder.x.at(layer), &after = recorder.x.at(layer + 1);
  for (size_t i = 0; i < before.size(); ++i) {
    double sum = static_cast<double>(recorder.positive.at(layer)[i]);
    if (recorder.noise.contains(layer)) sum += static_cast<double>(recorder.noise.at(layer)[i]);
    largest = std::max(largest, std::abs(static_cast<double>(after[i]) - static_cast<double>(before[i]) - sum));
  }
  return largest;
}

double largest_number(const std::vector<float>& numbers) {
  double largest = 0;
  for (const float x : numbers) largest = std::max(largest, static_cast<double>(std::abs(x)));
  return largest;
}

TEST(ResidualWrites, TermsAddUpToWhatAttentionWrites) {
  const auto silent = [](const std::string& name, std::span<float> values) {
    if (name.ends_with("down_proj.weight")) std::fill(values.begin(), values.end(), 0.0f);
  };
  const auto ids = token_ids(60);
  for (const std::string& member : members()) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const LoadedFamily family(family_config(member), silent, type);
      Recorder recorder;
      model::Context context(family.model, 60);
      const attention::Taps taps{{&recorder}, {}};
      // Through panels, a step of several rows and one of few, which takes other products.
      for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 57}, {57, 3}})
        context.extend(std::span(ids).subspan(first, count), -1, &taps);
      // In f32 each number of a write of about 10 is off by (50 keys + 48 inputs)·ε of sums of magnitudes of about 30.
      // bf16 rounds the weights, the values' sum and its factors apart, a relative 4 ε₈ of those magnitudes.
      const double magnitude = 3 * (largest_number(recorder.positive.at(0)) +
                                    (recorder.noise.contains(0) ? largest_number(recorder.noise.at(0)) : 0));
      const double tolerance = (type == DType::f32 ? 100 * kEpsF32 : 4 * kEpsBf16) * magnitude;
      EXPECT_LT(largest_gap(recorder, 0), tolerance) << member << " " << info(type).name;
      EXPECT_GT(largest_number(recorder.positive.at(0)), 1e3 * 100 * kEpsF32) << "there is something to add up";
      Recorder idle;
      idle.writes = false;
      logits_with(family, ids, {}, {&idle});
      EXPECT_TRUE(idle.positive.empty() && idle.noise.empty()) << "no observer wants them";
      EXPECT_EQ(idle.x.at(1).size(), recorder.x.at(1).size());
    }
  }
}

// Gemma 3 has a norm behind W_O.
TEST(ResidualWrites, PostNormsAreInTheWrites) {
  for (const std::string member : {"softmax", "lowrank_diff"}) {
    TemporaryFolder folder;
    TinyModel tiny;
    tiny.architecture = "gemma3";
    tiny.tokenizer = "";
    tiny.attention = member;
    tiny.change = [](const std::string& name, std::vector<float>& values) {
      if (name.ends_with("down_proj.weight")) std::fill(values.begin(), values.end(), 0.0f);
    };
    write_tiny_model(folder.path(), tiny);
    model::Context context(model::load(folder.path(), DType::f32), 60);
    Recorder recorder;
    const attention::Taps taps{{&recorder}, {}};
    context.extend(token_ids(60), -1, &taps);
    for (int layer = 0; layer < 2; ++layer) {
      // A norm brings a row's numbers to about 1, whose terms may each be larger: see below.
      const double magnitude = largest_number(recorder.positive.at(layer)) + largest_number(recorder.x.at(layer)) +
                               (recorder.noise.contains(layer) ? largest_number(recorder.noise.at(layer)) : 0);
      EXPECT_LT(largest_gap(recorder, layer), 100 * kEpsF32 * magnitude) << member << ", layer " << layer;
    }
  }
}

// One layer's rows of two numbers each.
void show(ResidualWrites& writes, int layer, int64_t first_row, const std::vector<float>& x,
          const std::vector<float>& positive, const std::vector<float>& noise) {
  writes.on_residual({layer, first_row, static_cast<int64_t>(x.size()) / 2, 2, x.data(), positive.data(),
                      noise.empty() ? nullptr : noise.data()});
}

TEST(ResidualWrites, FiguresOfRowsByHand) {
  ResidualWrites writes(1);
  // Row 0 is left out. Row 1: half of x is removed. Row 2: at a right angle. Row 3: no write, so no cosine.
  show(writes, 0, 0, {9, 9, 3, 4, 3, 4}, {9, 9, 6, 8, 0, 0}, {9, 9, -1.5, -2, 8, -6});
  show(writes, 0, 3, {3, 4}, {0, 5}, {0, 0});
  show(writes, 4, 0, {1, 0, 0, 2}, {7, 7, 0, 1}, {});
  writes.end_window();
  // Another window; x = 0 gives no figure.
  show(writes, 0, 0, {9, 9, 0, 0, 3, 4}, {9, 9, 1, 1, 3, 4}, {9, 9, 1, 1, 3, 4});
  show(writes, 4, 0, {1, 0, 0, 0}, {7, 7, 0, 1}, {});
  writes.end_window();
  const auto results = writes.results();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].layer, 0);
  EXPECT_EQ(results[1].layer, 4);
  EXPECT_TRUE(results[0].noise_term);
  EXPECT_FALSE(results[1].noise_term);
  const auto expect = [](const std::optional<Summary>& summary, double mean, int64_t windows) {
    ASSERT_TRUE(summary);
    EXPECT_NEAR(summary->mean, mean, 1e-14);
    EXPECT_EQ(summary->windows, windows);
  };
  // Window 1: cosines −1, 0; sizes ½, 2, 0; removed ½, 0, 0. Window 2: 1, 1, −1.
  expect(results[0].noise.cosine, (-0.5 + 1) / 2, 2);
  expect(results[0].noise.size, (2.5 / 3 + 1) / 2, 2);
  expect(results[0].noise.removed, (0.5 / 3 - 1) / 2, 2);
  // A1, window 1: cosines 1, ⅘ (row 2 writes nothing); sizes 2, 0, 1; removed −2, 0, −⅘. Window 2: 1, 1, −1.
  expect(results[0].positive.cosine, (0.9 + 1) / 2, 2);
  expect(results[0].positive.size, (1 + 1) / 2.0, 2);
  expect(results[0].positive.removed, (-2.8 / 3 - 1) / 2, 2);
  expect(results[0].random.size, results[0].noise.size->mean, 2);
  expect(results[1].positive.cosine, 1, 1);
  EXPECT_FALSE(results[1].noise.cosine || results[1].noise.size || results[1].random.removed);
}

TEST(ResidualWrites, RandomDirectionsFavourNone) {
  constexpr int64_t kRows = 2000, kWidth = 30;
  const auto x = random_floats(kRows * kWidth, 1), r = random_floats(kRows * kWidth, 2, 0.1);
  const auto run = [&](uint64_t seed) {
    ResidualWrites writes(seed);
    writes.on_residual({0, 0, kRows, kWidth, x.data(), r.data(), x.data()});  // the noise term writes x itself
    writes.end_window();
    return writes.results()[0];
  };
  const LayerWrites found = run(1);
  EXPECT_NEAR(found.noise.cosine->mean, 1, 1e-14);
  EXPECT_NEAR(found.noise.removed->mean, -1, 1e-14);
  EXPECT_NEAR(found.random.size->mean, 1, 1e-14);
  // Cosines of random directions have the mean 0 and the variance 1/D; five standard deviations of the mean.
  const double limit = 5 / std::sqrt(static_cast<double>(kRows * kWidth));
  EXPECT_LT(std::abs(found.random.cosine->mean), limit);
  EXPECT_NEAR(found.random.removed->mean, -found.random.cosine->mean, 1e-14) << "of the norm of x";
  // On a line there are two directions.
  ResidualWrites line(1);
  line.on_residual({0, 0, 2, 1, x.data(), x.data(), r.data()});
  line.end_window();
  EXPECT_NEAR(std::abs(line.results()[0].random.cosine->mean), 1, 1e-14);
  EXPECT_EQ(run(1).random.cosine->mean, found.random.cosine->mean);
  EXPECT_NE(run(2).random.cosine->mean, found.random.cosine->mean);
}

TEST(ResidualWrites, Errors) {
  ResidualWrites writes(1);
  expect_error([&] { writes.results(); }, ErrorCode::usage, {"no window"});
  expect_error([&] { writes.end_window(); }, ErrorCode::usage, {"no rows"});
  expect_error(
      [&] {
        show(writes, 2, 7, {1, 1, 1, NAN}, {1, 1, 1, 1}, {});
      },
      ErrorCode::numeric, {"layer 2", "position 8"});
  expect_error(
      [&] {
        show(writes, 2, 7, {1, 1}, {1, 1}, {1, INFINITY});
      },
      ErrorCode::numeric, {"layer 2", "position 7"});
}

}  // namespace
}  // namespace unchain::test
