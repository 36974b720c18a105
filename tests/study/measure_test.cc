#include "study/measure.h"

#include <gtest/gtest.h>

#include <numeric>

#include "analysis/analyzer.h"
#include "eval/perplexity.h"
#include "model/context.h"
#include "study/measure_windows.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace unchain::study {
namespace {

class MeasureTest : public testing::Test {
 protected:
  MeasureInputs inputs(const test::TinyModel& options, std::vector<std::vector<int32_t>> texts) {
    const auto folder = folder_ / ("model" + std::to_string(models_++));
    test::write_tiny_model(folder, options);
    MeasureInputs in;
    in.model = model::load(folder, DType::f32);
    in.bos = 1;
    in.texts = std::move(texts);
    in.context = 8;
    in.keys = {2, 3};
    return in;
  }
  test::TemporaryFolder folder_;
  int models_ = 0;
};

std::vector<int32_t> counting(int32_t from, int32_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), from);
  return ids;
}

// A model after whose token t the likeliest is t + 1, and texts of windows of 8 tokens whose misses are known.
TEST_F(MeasureTest, ErrorsOfPredictions) {
  test::TinyModel chain;
  chain.chain = true;
  // BOS 1 | 2 … 9: none; BOS | 20 … 27: the first; BOS | 30 31 32 30 31 32 30 31: the first and each return to 30.
  std::vector<int32_t> first = counting(2, 8), second = counting(20, 8);
  for (const int32_t id : {30, 31, 32, 30, 31, 32, 30, 31}) second.push_back(id);
  Measures measures;
  measure_predictions(measures, inputs(chain, {first, second}));
  EXPECT_EQ(measures["token_error"].windows, (std::vector<std::vector<double>>{{0}, {1.0 / 8, 3.0 / 8}}));
  EXPECT_DOUBLE_EQ(*measures["token_error"].value, (1 + 3) / 24.0);
  // Sequences of three that come again: (30 31 32) at token 5, (31 32 30) at 6, (32 30 31) at 7; the one to 30 missed.
  EXPECT_EQ(measures["ngram_error"].windows, (std::vector<std::vector<double>>{{}, {1.0 / 3}}));
}

TEST_F(MeasureTest, LossIsThatOfPerplexity) {
  const std::vector<int32_t> text = counting(3, 8);
  const MeasureInputs in = inputs({}, {text});
  Measures measures;
  measure_predictions(measures, in);
  eval::Window window;
  window.ids = {1};
  window.ids.insert(window.ids.end(), text.begin(), text.end());
  EXPECT_NEAR(*measures["loss_nats"].value, eval::perplexity(in.model, nullptr, {window}).nll_nats, 1e-12);
}

TEST_F(MeasureTest, MapsAreMeasuredAsTheAnalyzerDoes) {
  for (const char* attention : {"softmax", "lowrank_diff"}) {
    SCOPED_TRACE(attention);
    test::TinyModel options{"gemma3", "gemma_like", false, {}};
    options.attention = attention;
    MeasureInputs in = inputs(options, {counting(5, 70), counting(200, 35)});
    in.context = 36;  // a text's window is BOS and 35 tokens: two of the first, one of the second
    Measures measures;
    measure_maps(measures, in);
    analysis::MapAnalyzer analyzer({});
    model::Context context(in.model, in.context);
    for (const int32_t from : {5, 40, 200}) {
      std::vector<int32_t> ids = counting(from, 35);
      ids.insert(ids.begin(), 1);
      const attention::Taps taps{{&analyzer}, {}};
      analyzer.begin_window(36, ids);
      context.truncate(0);
      context.extend(ids, 1, &taps);
      analyzer.end_window();
    }
    const analysis::AnalysisResults results = analyzer.results();
    const auto mean = [&](analysis::MapKind kind, analysis::Measure measure) {
      return results.summary[static_cast<size_t>(kind)][static_cast<size_t>(measure)]->mean;
    };
    using enum analysis::MapKind;
    using enum analysis::Measure;
    const bool differs = std::string(attention) != "softmax";
    EXPECT_NEAR(*measures["entropy_normalised"].value, mean(map, entropy_normalised), 1e-12);
    EXPECT_NEAR(*measures["a1_entropy_normalised"].value, mean(differs ? positive : map, entropy_normalised), 1e-12);
    EXPECT_NEAR(*measures["negative_mass"].value, mean(map, negative_mass), 1e-12);
    ASSERT_EQ(measures["negative_mass"].windows.size(), 2u);
    EXPECT_EQ(measures["negative_mass"].windows[0].size(), 2u);
    EXPECT_NEAR(*measures["head_cosine_distance"].value, results.cosine_distance->mean, 1e-12);
    EXPECT_NEAR(*measures["head_cka_distance"].value, 1 - results.cka->mean, 1e-12);
    // Not applicable without a noise term. Two layers of the three have a window below N, so no block.
    EXPECT_EQ(measures.at("a2_block_rank_entropy").value.has_value(), differs);
    EXPECT_EQ(measures.at("a2_layers_in_rank_band").value.has_value(), differs);
    EXPECT_EQ(*measures["row_sum_off_share"].value > 0, differs);
    EXPECT_EQ(*measures["raw_over_one_share"].value, 0);
  }
}

// Of a model with a noise term and one without: what is measured, and what does not apply.
TEST_F(MeasureTest, TermsAndHeads) {
  for (const char* attention : {"softmax", "lowrank_diff"}) {
    SCOPED_TRACE(attention);
    test::TinyModel options{"gemma3", "gemma_like", false, {}};
    options.attention = attention;
    MeasureInputs in = inputs(options, {counting(5, 80), counting(200, 40)});
    in.calibration = counting(300, 120);
    in.context = 20;
    in.keys.calibration_windows = 4;
    Measures measures;
    measure_terms(measures, in);
    const bool noise = std::string(attention) != "softmax";
    for (const char* name :
         {"a2_explained_by_place", "a2_explained_by_key", "log_a2_explained_by_place", "loss_fixed_a2_nats",
          "loss_masked_a2_nats", "noise_removes_share", "random_removes_share", "a1_removes_share"}) {
      ASSERT_TRUE(measures.contains(name)) << name;
      EXPECT_EQ(measures[name].value.has_value(), noise) << name;
    }
    EXPECT_LE(*measures["a1_explained_by_place"].value, 1);
    // The windows' own loss, and nothing is lost where the rank of the noise is small enough.
    std::vector<double> losses;
    for (const auto& ids : all_windows(in, room(in) + 1, in.keys.windows)) {
      eval::Window window;
      window.ids = ids;
      losses.push_back(eval::perplexity(in.model, nullptr, {window}).nll_nats);
    }
    EXPECT_NEAR(*measures["loss_full_maps_nats"].value, *mean_of(losses), 1e-6);
    const LayerProfile profile = profile_layers(in);
    ASSERT_EQ(profile.gain.size(), 3u);
    ASSERT_EQ(profile.sensitivity.size(), 3u);
    for (const auto& gain : profile.gain) EXPECT_EQ(gain.has_value(), noise);
  }
}

TEST_F(MeasureTest, AShortTextIsAnError) {
  Measures measures;
  const MeasureInputs in = inputs({}, {counting(3, 8), counting(3, 5)});
  test::expect_error([&] { measure_predictions(measures, in); }, ErrorCode::usage,
                     {"validation text 2", "5 tokens", "needs 8"});
}

}  // namespace
}  // namespace unchain::study
