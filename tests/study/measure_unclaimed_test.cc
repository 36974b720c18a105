// What no claim asks for, held against the maps that it is made of.
#include <gtest/gtest.h>

#include <cmath>

#include "analysis/key_tokens.h"
#include "model/model_file.h"
#include "study/measure.h"
#include "study/measure_windows.h"
#include "support/family_model.h"
#include "support/golden_model.h"
#include "support/tiny_model.h"

namespace unchain::study {
namespace {

// Of each map: Σ A1·A2 and Σ A2² over rows from 1 on, Σ λ, and the shares of |P| that some columns have.
class Sums : public attention::Observer {
 public:
  std::vector<int64_t> columns;
  std::vector<double> both, noise, lambda, shares;  // one a layer and head, `shares` one a window too
  int64_t rows = 0;

  void on_maps(const attention::MapPanel& panel) override {
    for (int h = 0; h < panel.heads; ++h) {
      double a1a2 = 0, a2a2 = 0, sum = 0, share = 0;
      int64_t measured = 0;
      for (int64_t r = 1; r < panel.rows; ++r) {  // whole windows come as one panel here
        std::vector<float> p(static_cast<size_t>(panel.keys));
        panel.signed_row(h, r, p.data());
        double part = 0, all = 0;
        bool seen = false;
        for (int64_t j = 0; j <= r; ++j) all += std::abs(p[static_cast<size_t>(j)]);
        for (const int64_t j : columns) {
          if (j > r || j < panel.first_key(r)) continue;
          part += p[static_cast<size_t>(j)];
          seen = true;
        }
        if (seen) share += part / all, ++measured;
        if (!panel.noise) continue;
        for (int64_t j = 0; j <= r; ++j) {
          a1a2 += static_cast<double>(panel.positive_row(h, r)[j]) * static_cast<double>(panel.noise_row(h, r)[j]);
          a2a2 += static_cast<double>(panel.noise_row(h, r)[j]) * static_cast<double>(panel.noise_row(h, r)[j]);
        }
        sum += panel.lambda[h * panel.rows + r];
      }
      both.push_back(a1a2);
      noise.push_back(a2a2);
      lambda.push_back(sum / static_cast<double>(panel.rows - 1));
      if (measured > 0) shares.push_back(share / static_cast<double>(measured));
    }
  }
};

TEST(MeasureUnclaimed, IsWhatTheMapsSay) {
  for (const char* attention : {"softmax", "lowrank_diff"}) {
    SCOPED_TRACE(attention);
    const bool noise = std::string(attention) != "softmax";
    const test::TemporaryFolder folder;
    test::TinyModel options{"gemma3", "gemma_like", false, {}};
    options.attention = attention;
    test::write_tiny_model(folder / "m", options);
    MeasureInputs in;
    in.model = model::load(folder / "m", DType::f32);
    in.context = 40;
    in.keys.windows = 1;
    // No token comes twice, so that there is no induction target.
    for (int32_t id = 10; id < 50; ++id) in.texts.resize(1), in.texts[0].push_back(id);
    Measures measures;
    const LayerLambdas layers = measure_unclaimed(measures, nullptr, in);
    EXPECT_FALSE(measures["loss_key_mass"].value);
    Sums sums;
    const attention::Taps taps{{&sums}, {}};
    const auto logits = test::logits_of(in.model, in.texts[0], &taps);
    const size_t heads = sums.lambda.size() / 3;
    for (size_t layer = 0; layer < 3; ++layer) {
      ASSERT_EQ(layers.used[layer].has_value(), noise);
      ASSERT_EQ(layers.projected[layer].has_value(), noise);
      if (!noise) continue;
      double used = 0, projected = 0;
      for (size_t h = layer * heads; h < (layer + 1) * heads; ++h) {
        used += sums.lambda[h] / static_cast<double>(heads);
        projected += sums.both[h] / sums.noise[h] / static_cast<double>(heads);
      }
      EXPECT_NEAR(*layers.used[layer], used, 1e-9);
      EXPECT_NEAR(*layers.projected[layer], projected, 1e-9);
    }
    EXPECT_EQ(measures["lambda_used"].value.has_value(), noise);
    EXPECT_EQ(measures["terms_cosine"].value.has_value(), noise);
    // Outliers: of the logits by hand.
    float largest = 0;
    std::vector<float> medians;
    const auto vocabulary = static_cast<size_t>(in.model->config.vocabulary);
    const auto median = [](std::vector<float> x) {
      std::sort(x.begin(), x.end());
      return x.size() % 2 == 1 ? x[x.size() / 2] : (x[x.size() / 2 - 1] + x[x.size() / 2]) / 2;
    };
    for (size_t row = 0; row < in.texts[0].size(); ++row) {
      std::vector<float> sizes;
      for (size_t v = 0; v < vocabulary; ++v) sizes.push_back(std::abs(logits[row * vocabulary + v]));
      largest = std::max(largest, *std::max_element(sizes.begin(), sizes.end()));
      medians.push_back(median(sizes));
    }
    EXPECT_NEAR(*measures["logit_outlier_ratio"].value, largest / median(medians), 1e-4 * largest / median(medians));
    EXPECT_GT(*measures["hidden_outlier_ratio"].value, 1);
    ASSERT_EQ(measures["hidden_outlier_ratio"].windows.size(), 1u);
    EXPECT_EQ(measures["hidden_outlier_ratio"].windows[0].size(), 1u);
  }
}

// The model with its numbers stirred, and one window of tokens 0, step, 2·step … of its vocabulary of 50.
MeasureInputs one_window(model::Trainable& trainable, int32_t tokens, int32_t step) {
  test::stir(trainable);
  const test::TemporaryFolder folder;
  test::write_folder(folder / "m", trainable);
  MeasureInputs in;
  in.model = model::load(folder / "m", DType::f32);
  in.context = tokens;
  in.keys.windows = 1;
  in.texts.emplace_back();
  for (int32_t i = 0; i < tokens; ++i) in.texts[0].push_back(step * i % 50);
  return in;
}

// A λ that the heads of a layer share has one projection: that of all of them together, not their mean.
TEST(MeasureUnclaimed, ALambdaOfTheLayerIsProjectedForAllItsHeads) {
  model::Trainable trainable(test::family_config("diff_v1"), DType::f32, 1);
  const MeasureInputs in = one_window(trainable, 40, 1);
  Measures measures;
  const LayerLambdas layers = measure_unclaimed(measures, nullptr, in);
  Sums sums;
  const attention::Taps taps{{&sums}, {}};
  test::logits_of(in.model, in.texts[0], &taps);
  const size_t heads = sums.both.size() / 2;
  for (size_t layer = 0; layer < 2; ++layer) {
    double both = 0, noise = 0, mean = 0;
    for (size_t h = layer * heads; h < (layer + 1) * heads; ++h) {
      both += sums.both[h];
      noise += sums.noise[h];
      mean += sums.both[h] / sums.noise[h] / static_cast<double>(heads);
    }
    EXPECT_NEAR(*layers.projected[layer], both / noise, 1e-9);
    EXPECT_GT(std::abs(mean - both / noise), 1e-6) << "a mean over heads is another number";
  }
}

// Mass on the two of 41 columns that the loss of a window of 42 tokens depends on most.
TEST(MeasureUnclaimed, KeysThatTheLossDependsOn) {
  model::Trainable trainable(test::family_config("diff_v2"), DType::f32, 1);
  const MeasureInputs in = one_window(trainable, 42, 7);
  Measures measures;
  measure_unclaimed(measures, &trainable, in);
  Sums sums;
  sums.columns = analysis::loss_columns(trainable, in.texts[0]);
  ASSERT_EQ(sums.columns.size(), 2u);
  const attention::Taps taps{{&sums}, {}};
  test::logits_of(in.model, in.texts[0], &taps);
  EXPECT_NEAR(*measures["loss_key_mass"].value, *mean_of(sums.shares), 1e-6);
}

}  // namespace
}  // namespace unchain::study
