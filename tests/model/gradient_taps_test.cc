// Gradients of maps and of heads' gates, as a model that learns shows them, against differences of the loss of the same
// model as it is read, whose maps and outputs an editor moves.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/compare.h"
#include "support/twin_model.h"

namespace unchain::test {
namespace {

using attention::GradientObserver;
using attention::GradientPanel;
using attention::MapPanel;

constexpr int64_t kTokens = 60;

model::Config windowed(const std::string& member, int64_t tokens = kTokens) {
  model::Config c = family_config(member);
  c.context = tokens;  // rows of a calibrated map
  c.layers[1].window = 9;
  return c;
}

// All that is shown, and its order.
struct Recorder : GradientObserver {
  explicit Recorder(int64_t tokens) : n(tokens) {}
  void on_gates(int layer, std::span<const double> d_gate) override {
    order.push_back(layer);
    gates[layer].assign(d_gate.begin(), d_gate.end());
  }
  void on_maps(const GradientPanel& panel) override {
    const MapPanel& maps = panel.maps;
    ASSERT_FALSE(order.empty());
    EXPECT_EQ(maps.layer, order.back()) << "panels follow their layer's gates";
    EXPECT_EQ(maps.first_row, next[maps.layer]) << "panels come in order";
    EXPECT_EQ(maps.keys, maps.first_row + maps.rows);
    next[maps.layer] += maps.rows;
    std::vector<std::vector<float>>&d = d_map[maps.layer], &p = map[maps.layer];
    d.resize(static_cast<size_t>(maps.heads), std::vector<float>(static_cast<size_t>(n * n)));
    p.resize(d.size(), std::vector<float>(static_cast<size_t>(n * n)));
    for (int h = 0; h < maps.heads; ++h) {
      for (int64_t r = 0; r < maps.rows; ++r) {
        const int64_t at = (maps.first_row + r) * n;
        std::copy_n(panel.d_row(h, r), maps.keys, d[static_cast<size_t>(h)].begin() + at);
        maps.signed_row(h, r, p[static_cast<size_t>(h)].data() + at);
      }
    }
  }
  int64_t n;
  std::vector<int> order;
  std::map<int, int64_t> next;
  std::map<int, std::vector<double>> gates;
  std::map<int, std::vector<std::vector<float>>> d_map, map;  // [layer][head][N, N]
};

// Adds `step` times a direction to the positive map of one head, hence to P.
struct MoveMap : attention::Editor {
  bool wants(int l) const override { return l == layer; }
  void edit_maps(MapPanel& panel) override {
    for (int64_t r = 0; r < panel.rows; ++r) {
      for (int64_t j = 0; j < panel.keys; ++j) {
        panel.positive_row(head, r)[j] +=
            static_cast<float>(step * direction[static_cast<size_t>((panel.first_row + r) * n + j)]);
      }
    }
  }
  int layer = 0, head = 0;
  int64_t n = 0;
  double step = 0;
  std::vector<double> direction;  // [N, N]
};

double length(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// Along a part m ⊙ g of the gradient g, made of unit length, the loss must rise by ‖m ⊙ g‖: for all of it, for a random
// half, and for the strongest entry alone. The step changes the loss, 40 to 150, by about 1/4 and weights by no more
// than 0.02: a head norm turns quickly in a row whose output nearly vanishes. Tolerance: the rounding of the losses,
// see slope_at_zero(), and 0.5 % of the whole for the rest of order h⁴ and for the gradient's own arithmetic (sums of
// some 60 f32 products in each of ten steps). A missing or wrong factor is off by tens of percent.
void expect_slopes(const TwinModel& twin, const ScoredText& text, int layer, int head, const std::vector<float>& g) {
  const double whole = length(std::vector<double>(g.begin(), g.end()));
  Rng rng(static_cast<uint64_t>(layer * 100 + head));
  const auto strongest = static_cast<size_t>(
      std::max_element(g.begin(), g.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }) - g.begin());
  EXPECT_GT(whole, 0);
  for (const char* part : {"all", "half", "strongest"}) {
    MoveMap move;
    move.layer = layer;
    move.head = head;
    move.n = static_cast<int64_t>(text.ids.size());
    for (size_t i = 0; i < g.size(); ++i) {
      const bool in = *part == 'a' || (*part == 's' ? i == strongest : rng.below(2) == 0);
      move.direction.push_back(in ? static_cast<double>(g[i]) : 0);
    }
    const double expected = length(move.direction);
    ASSERT_GT(expected, 0);
    for (double& x : move.direction) x /= expected;
    const double h = std::min(0.02, 0.25 / expected);
    double loss = 0;
    const double found = slope_at_zero(
        [&](double step) {
          move.step = step;
          return loss = twin.loss(text, &move);
        },
        h);
    EXPECT_NEAR(found, expected, 3 * loss_rounding(loss) / h + 0.005 * whole)
        << "layer " << layer << " head " << head << ", " << part;
  }
}

void expect_gradients(const std::string& member, int64_t tokens) {
  SCOPED_TRACE(member + ", " + std::to_string(tokens) + " tokens");
  TwinModel twin(windowed(member, tokens));
  const ScoredText text(tokens);
  Recorder shown(tokens);
  std::vector<double> nll(text.ids.size());
  twin.learns.forward_backward(nll, text.rows(), &shown);
  EXPECT_EQ(shown.order, (std::vector<int>{1, 0}));
  for (const auto& [layer, heads] : shown.d_map) {
    EXPECT_EQ(shown.next[layer], tokens);
    for (size_t h = 0; h < heads.size(); ++h) expect_slopes(twin, text, layer, static_cast<int>(h), heads[h]);
  }
}

TEST(GradientTaps, GradientsOfMapsAreSlopesOfTheLoss) {
  for (const std::string& member : members()) expect_gradients(member, kTokens);
}

// More than one panel.
TEST(GradientTaps, LongTextsAreShownPanelByPanel) {
  for (const char* member : {"softmax", "diff_v1", "lowrank_diff", "fixed_diff, calibrated"})
    expect_gradients(member, 150);
}

TEST(GradientTaps, KeysBehindARowHaveNone) {
  TwinModel twin(windowed("diff_v2"));
  const ScoredText text(kTokens);
  Recorder shown(kTokens);
  std::vector<double> nll(text.ids.size());
  twin.learns.forward_backward(nll, text.rows(), &shown);
  for (const auto& [layer, heads] : shown.d_map) {
    for (const std::vector<float>& g : heads) {
      for (int64_t i = 0; i < kTokens; ++i) {
        for (int64_t j = i + 1; j < kTokens; ++j) ASSERT_EQ(g[static_cast<size_t>(i * kTokens + j)], 0);
      }
    }
  }
}

// The maps are those that forward shows: the same kernels on keys that lie otherwise, in weights of at most about 1
// whose scores, sums of E products of magnitude 10 or so, are off by a few roundings.
TEST(GradientTaps, MapsAreThoseOfForward) {
  struct Forward : attention::Observer {
    void on_maps(const MapPanel& panel) override {
      maps[panel.layer].resize(static_cast<size_t>(panel.heads), std::vector<double>(kTokens * kTokens));
      for (int h = 0; h < panel.heads; ++h) {
        for (int64_t r = 0; r < panel.rows; ++r) {
          for (int64_t j = 0; j < panel.keys; ++j) {
            const double noise = panel.noise ? static_cast<double>(panel.lambda[h * panel.rows + r]) *
                                                   static_cast<double>(panel.noise_row(h, r)[j])
                                             : 0;
            maps[panel.layer][static_cast<size_t>(h)][static_cast<size_t>((panel.first_row + r) * kTokens + j)] =
                static_cast<double>(panel.positive_row(h, r)[j]) - noise;
          }
        }
      }
    }
    std::map<int, std::vector<std::vector<double>>> maps;
  };
  for (const std::string& member : members()) {
    TwinModel twin(windowed(member));
    const ScoredText text(kTokens);
    Recorder shown(kTokens);
    std::vector<double> nll(text.ids.size());
    twin.learns.forward_backward(nll, text.rows(), &shown);
    Forward forward;
    twin.loss(text, nullptr, &forward);
    for (const auto& [layer, heads] : shown.map) {
      ASSERT_EQ(heads.size(), forward.maps[layer].size()) << member;
      for (size_t h = 0; h < heads.size(); ++h)
        EXPECT_TRUE(close(heads[h], forward.maps[layer][h], 2e-5)) << member << " layer " << layer << " head " << h;
    }
  }
}

TEST(GradientTaps, GradientsOfGatesAreSlopesOfTheLoss) {
  for (const std::string& member : members()) {
    TwinModel twin(windowed(member));
    const ScoredText text(kTokens);
    Recorder shown(kTokens);
    std::vector<double> nll(text.ids.size());
    twin.learns.forward_backward(nll, text.rows(), &shown);
    ASSERT_EQ(shown.gates.size(), 2u);
    for (const auto& [layer, gates] : shown.gates) {
      for (size_t head = 0; head < gates.size(); ++head) {
        ScaleOutput scale;
        scale.layer = layer;
        scale.head = static_cast<int>(head);
        const double h = 0.05;
        const auto [found, loss] = slope_in_factor(twin, text, scale, h);
        double largest = 0;
        for (const double g : gates) largest = std::max(largest, std::abs(g));
        EXPECT_NEAR(found, gates[head], 3 * loss_rounding(loss) / h + 0.005 * largest)
            << member << " layer " << layer << " head " << head;
      }
    }
  }
}

TEST(GradientTaps, AnObserverChangesNothing) {
  for (const std::string& member : members()) {
    const ScoredText text(kTokens);
    std::vector<std::vector<float>> gradients;
    std::vector<std::vector<double>> losses;
    for (const bool observed : {false, true}) {
      for (const bool recompute : {false, true}) {
        model::Trainable m(windowed(member), DType::f32, 1);
        m.set_recompute(recompute);
        Recorder shown(kTokens);
        losses.emplace_back(text.ids.size());
        m.forward_backward(losses.back(), text.rows(), observed ? &shown : nullptr);
        gradients.emplace_back();
        for (const model::Parameter& p : m.parameters())
          gradients.back().insert(gradients.back().end(), p.gradient.begin(), p.gradient.end());
      }
    }
    for (size_t i = 1; i < gradients.size(); ++i) {
      EXPECT_TRUE(same_bits(gradients[0], gradients[i])) << member;
      EXPECT_EQ(losses[0], losses[i]) << member;
    }
  }
}

TEST(GradientTaps, LayersWithoutInterestShowGatesAlone) {
  struct Second : Recorder {
    using Recorder::Recorder;
    bool wants_maps(int layer) const override { return layer == 1; }
  };
  model::Trainable m(windowed("diff_v2"), DType::f32, 1);
  const ScoredText text(kTokens);
  Second shown(kTokens);
  std::vector<double> nll(text.ids.size());
  m.forward_backward(nll, text.rows(), &shown);
  EXPECT_EQ(shown.gates.size(), 2u);
  EXPECT_EQ(shown.d_map.size(), 1u);
  EXPECT_TRUE(shown.d_map.contains(1));
}

TEST(GradientTaps, WhatCannotBeShownIsRefused) {
  const ScoredText text(kTokens);
  Recorder shown(kTokens);
  std::vector<double> nll(text.ids.size());
  model::Trainable m(windowed("softmax"), DType::f32, 1), narrow(windowed("softmax"), DType::bf16, 1);
  model::TrainRows two = text.rows();
  two.rows = 2;
  two.context = kTokens / 2;
  expect_error([&] { m.forward_backward(nll, two, &shown); }, ErrorCode::usage, {"one text", "2 rows"});
  model::TrainRows documents = text.rows();
  const std::vector<int32_t> starts(text.ids.size());
  documents.starts = starts;
  expect_error([&] { m.forward_backward(nll, documents, &shown); }, ErrorCode::usage, {"several documents"});
  expect_error([&] { narrow.forward_backward(nll, text.rows(), &shown); }, ErrorCode::unsupported, {"f32", "bf16"});
  EXPECT_NO_THROW(m.forward_backward(nll, two));
  EXPECT_TRUE(shown.order.empty());
}

}  // namespace
}  // namespace unchain::test
