// Curves whose minimum and slope are known, and those of small models.
#include "analysis/lambda_curve.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/loaded_family.h"
#include "support/attention_case.h"

namespace unchain::test {
namespace {

using namespace analysis;

TEST(LambdaCurve, FindsPlantedMinima) {
  const auto parabola = [](double least) { return [=](double m) { return 3 + (m - least) * (m - least); }; };
  const auto edge = [](double least) {
    return [=](double m) { return std::abs(m - least) * (m > least ? 7.0 : 1.0); };
  };
  for (const double least : {0.05, 0.3, 0.5, 0.99, 1.0, 1.37, 1.62, 1.95}) {
    for (const double tolerance : {0.1, 0.01, 1e-4}) {
      for (const auto& loss : std::vector<std::function<double(double)>>{parabola(least), edge(least)}) {
        int calls = 0;
        const LambdaCurve curve = lambda_curve(
            [&](double m) {
              ++calls;
              return loss(m);
            },
            tolerance);
        EXPECT_NEAR(curve.best_m, least, tolerance) << least;
        EXPECT_EQ(curve.best_loss, loss(curve.best_m));
        EXPECT_FALSE(curve.at_border) << least;
        EXPECT_LE(calls, 9 + 2 + std::ceil(std::log(0.5 / tolerance) / std::log(1.618)));
      }
    }
  }
  const LambdaCurve curve = lambda_curve(parabola(1.37));
  ASSERT_EQ(curve.m.size(), 9u);
  ASSERT_EQ(curve.loss.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(curve.m[i], 0.25 * static_cast<double>(i));
    EXPECT_EQ(curve.loss[i], parabola(1.37)(curve.m[i]));
  }
  EXPECT_EQ(curve.loss_at_one, parabola(1.37)(1));
}

TEST(LambdaCurve, SaysWhenTheMinimumLiesAtTheBorder) {
  const LambdaCurve rising = lambda_curve([](double m) { return m; });
  EXPECT_EQ(rising.best_m, 0);
  EXPECT_TRUE(rising.at_border);
  const LambdaCurve falling = lambda_curve([](double m) { return std::exp(-m); });
  EXPECT_EQ(falling.best_m, 2);
  EXPECT_TRUE(falling.at_border);
}

// Of 1 + m⁴ and its like the five points leave f⁗′·h⁴/30 = 0: what remains is rounding, 16·2⁻⁵³·|loss|/3 and less.
TEST(LambdaCurve, SlopeIsExactForPolynomials) {
  EXPECT_NEAR(lambda_curve([](double m) { return 2 - 3 * m; }).slope_at_one, -3, 1e-13);
  EXPECT_NEAR(lambda_curve([](double m) { return m * m * m * m - m * m * m; }).slope_at_one, 1, 1e-13);
  // e^m: h⁴/30·e at most at 1, h = 1/4.
  EXPECT_NEAR(lambda_curve([](double m) { return std::exp(m); }).slope_at_one, std::exp(1.0),
              std::pow(0.25, 4) / 30 * std::exp(1.5));
}

TEST(LambdaCurve, Errors) {
  const auto loss = [](double m) { return m == 1.25 ? NAN : m; };
  expect_error([&] { lambda_curve(loss); }, ErrorCode::numeric, {"m = 1.25", "nan"});
  for (const double tolerance : {0.0, -1.0, 0.3, static_cast<double>(NAN)})
    expect_error([&] { lambda_curve([](double m) { return m; }, tolerance); }, ErrorCode::usage, {"tolerance"});
}

// λ of the chosen heads becomes factor·λ.
struct Factor : attention::Editor {
  Factor(float factor_of_lambda, int only_layer, int only_head)
      : factor(factor_of_lambda), layer(only_layer), head(only_head) {}
  void edit_maps(attention::MapPanel& panel) override {
    if (layer >= 0 && panel.layer != layer) return;
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < panel.rows && (head < 0 || h == head); ++r) panel.lambda[h * panel.rows + r] *= factor;
    }
  }
  float factor;
  int layer, head;
};

// Both sum the same f32 logits' losses in another order: rounding of logits of about 5 and of their exponentials.
constexpr double kLossTolerance = 1e-5;

TEST(LambdaCurve, OfAModelItsLayersAndHeads) {
  for (const std::string member : {"diff_v1", "diff_v2", "lowrank_diff"}) {
    const LoadedFamily family(family_config(member));
    const TokenWindows windows = {token_ids(40), token_ids(20, 3)};
    WindowLoss loss(family.model, windows);
    const LambdaCurves curves = lambda_curves(loss, CurvesOf::heads, 0.25);
    const auto expected = [&](double m, int layer, int head) {
      double sum = 0;
      for (const auto& ids : windows) {
        Factor factor(static_cast<float>(m), layer, head);
        const auto logits = logits_with(family, ids, {&factor});
        for (size_t i = 0; i + 1 < ids.size(); ++i) sum += nll_from_logits(logits, ids, i);
      }
      return sum / (39 + 19);
    };
    const auto check = [&](const LambdaCurve& curve, int layer, int head) {
      for (const size_t i : {0u, 4u, 7u}) {
        EXPECT_NEAR(curve.loss[i], expected(curve.m[i], layer, head), kLossTolerance)
            << member << ", layer " << layer << ", head " << head << ", m " << curve.m[i];
      }
    };
    check(curves.model, -1, -1);
    ASSERT_EQ(curves.layers.size(), 2u);
    for (int layer = 0; layer < 2; ++layer) {
      const LayerCurves& of_layer = curves.layers[static_cast<size_t>(layer)];
      EXPECT_EQ(of_layer.layer, layer);
      check(of_layer.layer_curve, layer, -1);
      ASSERT_EQ(of_layer.heads.size(), member == "diff_v1" ? 4u : 8u);
      check(of_layer.heads[3], layer, 3);
    }
  }
}

TEST(LambdaCurve, OnlyOfLayersWithANoiseTerm) {
  model::Config config = family_config("diff_v1");
  config.attention.first_layer = config.attention.last_layer = 1;
  const LoadedFamily hybrid(config), softmax(family_config("softmax"));
  WindowLoss loss(hybrid.model, {token_ids(10)}), plain(softmax.model, {token_ids(10)});
  const LambdaCurves curves = lambda_curves(loss, CurvesOf::layers, 0.25);
  ASSERT_EQ(curves.layers.size(), 1u);
  EXPECT_EQ(curves.layers[0].layer, 1);
  EXPECT_TRUE(curves.layers[0].heads.empty());
  EXPECT_EQ(curves.layers[0].layer_curve.loss, curves.model.loss) << "the only layer is the model";
  EXPECT_TRUE(lambda_curves(loss, CurvesOf::model, 0.25).layers.empty());
  expect_error([&] { lambda_curves(plain, CurvesOf::model); }, ErrorCode::usage, {"no layer", "noise"});
}

}  // namespace
}  // namespace unchain::test
