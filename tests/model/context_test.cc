// The promises of Context: what may be asked of it, what it refuses, what taps see of a whole model.
#include "model/context.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "formats/convert.h"
#include "model/model_file.h"
#include "support/compare.h"
#include "support/golden_model.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

using attention::MapPanel;
using attention::OutputPanel;
using attention::Taps;
using model::Context;
using model::load;
using model::Transformer;

TEST(Context, RefusesWhatMakesNoSense) {
  const auto model = load(tiny("llama_grouped"), DType::f32);
  expect_error([&] { Context(model, 0); }, ErrorCode::usage, {"0 positions"});
  expect_error([&] { Context(model, int64_t{1} << 40); }, ErrorCode::usage, {"positions"});
  Context context(model, 6);
  const std::vector<int32_t> good = {1, 2, 3};
  const auto extend = [&](std::vector<int32_t> ids, int64_t keep = -1) {
    return [&context, ids, keep] { context.extend(ids, keep); };
  };
  context.extend(good);
  expect_error(extend({1, 97}), ErrorCode::usage, {"token 97", "position 4", "vocabulary of 97"});
  expect_error(extend({-1}), ErrorCode::usage, {"token -1", "position 3"});
  expect_error(extend({1, 2, 3, 4}), ErrorCode::usage, {"3 + 4", "room for 6"});
  expect_error(extend({1, 2}, 3), ErrorCode::usage, {"keep 3 of 2"});
  expect_error(extend({1, 2}, -2), ErrorCode::usage, {"keep -2"});
  expect_error([&] { context.truncate(4); }, ErrorCode::usage, {"position 4 of 3"});
  expect_error([&] { context.truncate(-1); }, ErrorCode::usage, {"position -1"});
  std::vector<float> logits(97 * 4);
  const auto ask = [&](int64_t first, int64_t count) {
    return [&, first, count] { context.logits(Matrix(logits.data(), count, 97), first, count); };
  };
  expect_error(ask(1, 3), ErrorCode::usage, {"3 kept"});
  expect_error(ask(-1, 1), ErrorCode::usage, {"3 kept"});
  std::vector<double> nll(4);
  expect_error([&] { context.nll(nll, std::vector<int32_t>{1, 2, 3, 4}); }, ErrorCode::usage, {"3 kept"});
  // Taps see all rows, but what is kept is what was asked for.
  const attention::Taps none;
  Context tapped(model, 6);
  tapped.extend(good, 1, &none);
  EXPECT_EQ(tapped.kept(), 1);
  EXPECT_TRUE(same_bits(kept_logits(tapped), [&] {
    const auto all = logits_of(model, good);
    return std::vector<float>(all.end() - 97, all.end());
  }()));
  // None of these changed anything.
  EXPECT_EQ(context.position(), 3);
  EXPECT_EQ(context.kept(), 3);
  EXPECT_TRUE(same_bits(kept_logits(context), logits_of(model, good)));
  context.extend({});
  EXPECT_EQ(context.position(), 3);
  context.truncate(3);
  EXPECT_EQ(context.kept(), 0);
  expect_error(ask(0, 1), ErrorCode::usage, {"0 kept"});
}

TEST(Context, NothingCanBeAskedAfterAStepThatFailed) {
  struct Thrower : attention::Observer {
    void on_maps(const MapPanel& panel) override {
      if (panel.layer == 1) throw std::runtime_error("enough");
    }
  };
  const auto model = load(tiny("llama_grouped"), DType::f32);
  const std::vector<int32_t> first = {1, 2, 3}, second = {4, 5, 6, 7};
  Context context(model, 10);
  context.extend(first);
  Thrower thrower;
  const Taps taps{{&thrower}, {}};
  EXPECT_THROW(context.extend(second, -1, &taps), std::runtime_error);
  EXPECT_EQ(context.position(), 3);
  EXPECT_EQ(context.kept(), 0) << "half-computed rows must not be asked for logits";
  context.extend(second);
  Context fresh(model, 10);
  fresh.extend(first);
  fresh.extend(second);
  EXPECT_TRUE(same_bits(kept_logits(context), kept_logits(fresh))) << "reading goes on as if nothing had been";
}

TEST(Context, NllAgreesWithLogits) {
  for (const char* name : {"llama_bias", "gemma3_softcap"}) {
    const Golden golden = read_golden(tiny(name));
    const auto model = load(golden.folder, DType::f32);
    const auto logits = logits_of(model, golden.ids);
    const auto nll = nll_of(model, golden.ids);
    const size_t vocabulary = static_cast<size_t>(model->config.vocabulary);
    for (size_t i = 0; i + 1 < golden.ids.size(); ++i) {
      double sum = 0;
      for (size_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(logits[i * vocabulary + v]));
      const double expected =
          std::log(sum) - static_cast<double>(logits[i * vocabulary + static_cast<size_t>(golden.ids[i + 1])]);
      EXPECT_NEAR(nll[i], expected, 1e-5 * (1 + golden.largest_logit)) << name << " " << i;
    }
  }
}

// Checks maps of a whole model: the layers in order, rows that sum to 1.
struct WholeModel : attention::Observer {
  explicit WholeModel(bool with_norms) : wants_norms(with_norms) {}
  bool wants_value_norm() const override { return wants_norms; }
  void on_maps(const MapPanel& panel) override {
    EXPECT_EQ(panel.layer, layers);
    EXPECT_EQ(panel.value_norm != nullptr, wants_norms);
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        double sum = 0;
        for (int64_t j = 0; j < panel.keys; ++j) sum += static_cast<double>(panel.positive_row(h, r)[j]);
        EXPECT_NEAR(sum, 1, 1e-5);
      }
      for (int64_t j = 0; wants_norms && j < panel.keys; ++j)
        norms.push_back(panel.value_norm[h * panel.value_norm_stride + j]);
    }
    ++maps;
  }
  void on_outputs(const OutputPanel& panel) override {
    for (int64_t r = 0; r < panel.rows; ++r) {
      outputs.insert(outputs.end(), panel.output + r * panel.row_stride,
                     panel.output + r * panel.row_stride + panel.heads * panel.value_width);
    }
  }
  void end_layer(int layer) override { EXPECT_EQ(layer, layers++); }
  bool wants_norms;
  int layers = 0, maps = 0;
  std::vector<float> norms, outputs;
};

TEST(Context, TapsOnEqualTapsOff) {
  for (const Golden& golden : all_goldens()) {
    SCOPED_TRACE(golden.name);
    const auto model = load(golden.folder, DType::f32);
    WholeModel observer(true);
    const Taps taps{{&observer}, {}};
    std::vector<int32_t> ids = golden.ids;  // twice: more than one panel
    ids.insert(ids.end(), golden.ids.begin(), golden.ids.end());
    ASSERT_GT(static_cast<int64_t>(ids.size()), attention::kPanelRows);
    const auto tapped = logits_of(model, ids, &taps);
    EXPECT_EQ(observer.layers, model->config.layer_count());
    EXPECT_EQ(observer.maps, 2 * observer.layers) << "two panels";
    // Normalising before the product with the values instead of after it: a few roundings, 1e-5 of the logits at most.
    EXPECT_TRUE(close(tapped, widen(logits_of(model, ids)), 1e-5 * golden.largest_logit));
  }
}

TEST(Context, ValueNormsAreThoseOfWhatAHeadWrites) {
  // With a single token every map is 1, so the output of a head is v_0, and its norm through W_O is known.
  const auto model = load(tiny("llama_grouped"), DType::f32);
  const model::Config& c = model->config;
  WholeModel observer(true);
  const Taps taps{{&observer}, {}};
  logits_of(model, {17}, &taps);
  ASSERT_EQ(observer.norms.size(), static_cast<size_t>(c.layer_count() * c.heads));
  const model::ModelFile file = model::ModelFile::open(tiny("llama_grouped"));
  size_t next = 0;
  for (int64_t i = 0; i < c.layer_count(); ++i) {
    const Tensor& stored = *file.find(model::Part::attention_output, i);
    std::vector<float> weight(static_cast<size_t>(stored.elements()));
    formats::decode(stored, 0, stored.elements(), weight.data());
    const Matrix output(weight.data(), c.width, c.heads * c.head_dim);
    for (int64_t h = 0; h < c.heads; ++h, ++next) {
      double squares = 0;
      for (int64_t o = 0; o < c.width; ++o) {
        double sum = 0;
        for (int64_t e = 0; e < c.head_dim; ++e) {
          const size_t at = static_cast<size_t>((i * c.heads + h) * c.head_dim + e);
          sum += static_cast<double>(output.f32(o)[h * c.head_dim + e]) * static_cast<double>(observer.outputs[at]);
        }
        squares += sum * sum;
      }
      EXPECT_NEAR(static_cast<double>(observer.norms[next]), std::sqrt(squares), 1e-5 * std::sqrt(squares))
          << i << " " << h;
    }
  }
}

TEST(Context, EditorsReachTheLogits) {
  struct Silence : attention::Editor {
    bool wants(int layer) const override { return layer == 0; }
    void edit_outputs(OutputPanel& panel) override {
      for (int64_t r = 0; r < panel.rows; ++r) {
        std::fill_n(panel.output + r * panel.row_stride, panel.heads * panel.value_width, 0.0f);
      }
    }
  };
  // Zero outputs of the first layer's heads equal a model whose first output projection is zero.
  const Golden golden = read_golden(tiny("llama_grouped"));
  const auto model = load(golden.folder, DType::f32);
  Silence silence;
  const Taps taps{{}, {&silence}};
  const auto edited = logits_of(model, golden.ids, &taps);
  Transformer changed = *model;
  std::vector<float> zeros(static_cast<size_t>(changed.layers[0].output.outputs() * changed.layers[0].output.inputs()));
  changed.layers[0].output.weight =
      Matrix(zeros.data(), changed.layers[0].output.outputs(), changed.layers[0].output.inputs());
  changed.layers[0].output.packed = {};
  const auto expected = logits_of(std::make_shared<const Transformer>(changed), golden.ids);
  EXPECT_TRUE(close(edited, widen(expected), 1e-5 * golden.largest_logit));
}

TEST(Context, SaysWhereNumbersStopBeingFinite) {
  const Golden golden = read_golden(tiny("gemma3_window"));
  const auto model = load(golden.folder, DType::f32);
  const float bad = std::numeric_limits<float>::quiet_NaN();
  struct Place {
    const char* what;
    ops::Linear& (*of)(model::Layer&);
    const char* layer;  // of the norm that notices
  };
  using model::Layer;
  const Place places[] = {{"query", [](Layer& l) -> ops::Linear& { return l.attention.weights.query; }, "layer 1"},
                          {"key", [](Layer& l) -> ops::Linear& { return l.attention.weights.key; }, "layer 1"},
                          {"value", [](Layer& l) -> ops::Linear& { return l.attention.weights.value; }, "layer 1"},
                          {"output", [](Layer& l) -> ops::Linear& { return l.output; }, "layer 1"},
                          {"gate", [](Layer& l) -> ops::Linear& { return l.gate; }, "layer 1"},
                          {"up", [](Layer& l) -> ops::Linear& { return l.up; }, "layer 1"},
                          {"down", [](Layer& l) -> ops::Linear& { return l.down; }, "layer 1"}};
  for (const Place& place : places) {
    SCOPED_TRACE(place.what);
    Transformer changed = *model;
    ops::Linear& linear = place.of(changed.layers[1]);
    const auto* values = static_cast<const float*>(linear.is_packed() ? linear.packed.data : linear.weight.data);
    const int64_t count = linear.is_packed() ? linear.packed.panels() * linear.packed.panel_elements()
                                             : linear.outputs() * linear.inputs();
    std::vector<float> copy(values, values + count);
    copy[3] = bad;
    linear.is_packed() ? static_cast<void>(linear.packed.data = copy.data())
                       : static_cast<void>(linear.weight.data = copy.data());
    const auto shared = std::make_shared<const Transformer>(changed);
    expect_error([&] { logits_of(shared, golden.ids); }, ErrorCode::numeric, {place.layer, "position 0"});
    Context context(shared, 10);
    // The same, token by token, through the path for few rows.
    expect_error([&] { context.extend(std::vector<int32_t>{5}); }, ErrorCode::numeric, {place.layer, "position 0"});
  }
  Transformer changed = *model;
  std::vector<float> embedding(changed.embedding.f32(),
                               changed.embedding.f32() + changed.embedding.rows * changed.embedding.cols);
  embedding[static_cast<size_t>(golden.ids[2] * changed.embedding.cols)] = std::numeric_limits<float>::infinity();
  changed.embedding.data = embedding.data();
  const auto shared = std::make_shared<const Transformer>(changed);
  expect_error([&] { logits_of(shared, golden.ids); }, ErrorCode::numeric,
               {"layer 0", "position " + std::to_string(std::find(golden.ids.begin(), golden.ids.end(), golden.ids[2]) -
                                                        golden.ids.begin())});
}

}  // namespace
}  // namespace unchain::test
