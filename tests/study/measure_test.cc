#include "study/measure.h"

#include <gtest/gtest.h>

#include <numeric>

#include "analysis/analyzer.h"
#include "analysis/attribution.h"
#include "analysis/hessian_model.h"
#include "analysis/key_tokens.h"
#include "eval/perplexity.h"
#include "model/context.h"
#include "model/model_file.h"
#include "study/measure_windows.h"
#include "study/statistics.h"
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
  EXPECT_EQ(measures["token_error"].windows, (Windows{singles({0}), singles({1.0 / 8, 3.0 / 8})}));
  EXPECT_DOUBLE_EQ(*measures["token_error"].value, (1 + 3) / 24.0);
  // Sequences of three that come again: (30 31 32) at token 5, (31 32 30) at 6, (32 30 31) at 7; the one to 30 missed.
  EXPECT_EQ(measures["ngram_error"].windows, (Windows{{}, singles({1.0 / 3})}));
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
    const LayerRanks ranks = measure_maps(measures, in);
    ASSERT_EQ(ranks.positive.size(), 3u);
    EXPECT_FALSE(ranks.positive[0]) << "a window below N has no block";
    EXPECT_TRUE(ranks.positive[1]);
    EXPECT_EQ(ranks.noise[1].has_value(), std::string(attention) != "softmax");
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
    if (differs) {
      // The block's rank of each head of layer 1, behind the layer's number.
      const Window& ranks = measures.at("a2_layers_in_rank_band").windows.at(0).at(0);
      const Window& pooled = measures.at("a2_block_rank_entropy").windows.at(0).at(0);
      ASSERT_EQ(ranks.size(), 2 * pooled.size());
      for (size_t head = 0; head < pooled.size(); ++head) {
        EXPECT_EQ(ranks[2 * head], 1);
        EXPECT_EQ(ranks[2 * head + 1], pooled[head]);
      }
    }
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
    const analysis::MeanMaps calibration = mean_maps(in);
    measure_terms(measures, in, calibration);
    const bool noise = std::string(attention) != "softmax";
    for (const char* name :
         {"a2_explained_by_place", "a2_explained_by_key", "log_a2_explained_by_place", "loss_fixed_a2_nats",
          "loss_masked_a2_nats", "noise_removes_share", "random_removes_share", "a1_removes_share"}) {
      ASSERT_TRUE(measures.contains(name)) << name;
      EXPECT_EQ(measures[name].value.has_value(), noise) << name;
    }
    EXPECT_LE(*measures["a1_explained_by_place"].value, 1);
    // The windows' own loss.
    std::vector<double> losses;
    for (const auto& ids : all_windows(in, room(in) + 1, in.keys.windows)) {
      eval::Window window;
      window.ids = ids;
      losses.push_back(eval::perplexity(in.model, nullptr, {window}).nll_nats);
    }
    EXPECT_NEAR(*measures["loss_full_maps_nats"].value, *mean_of(losses), 1e-6);
    // Curves over a window of each text. Both ways at eight ranks, the last the full one.
    in.keys.windows = 1;
    measures.clear();
    measure_terms(measures, in, calibration);
    const RunCurves curves = measure_curves(in, calibration);
    EXPECT_NEAR(curves.loss_nats, *measures["loss_full_maps_nats"].value, 1e-6);
    ASSERT_EQ(curves.positive.size(), 16u);
    EXPECT_EQ(curves.noise.size(), noise ? 16u : 0u);
    EXPECT_EQ(curves.lambda.has_value(), noise);
    for (const RankLoss& point : curves.positive) {
      if (!point.fixed && !point.rank) {
        EXPECT_NEAR(point.loss_nats, curves.loss_nats, 1e-6);
      }
    }
    if (noise) {
      EXPECT_EQ(curves.lambda->layers.size(), 3u);
      EXPECT_NEAR(curves.lambda->model.loss_at_one, curves.loss_nats, 1e-6);
      const auto at_rank_5 = std::ranges::find_if(
          curves.noise, [](const RankLoss& point) { return point.fixed && point.rank == kFixedRank; });
      ASSERT_NE(at_rank_5, curves.noise.end());
      EXPECT_NEAR(at_rank_5->loss_nats, *measures["loss_fixed_a2_nats"].value, 1e-6);
    }
    const LayerProfile profile = profile_layers(in);
    ASSERT_EQ(profile.gain.size(), 3u);
    ASSERT_EQ(profile.sensitivity.size(), 3u);
    for (const auto& gain : profile.gain) EXPECT_EQ(gain.has_value(), noise);
  }
}

// Where a tokenizer makes the blank before a digit a token of its own, the row that predicts the first digit is the
// blank's, not the question's last.
TEST_F(MeasureTest, KeyMassIsThatOfTheRowThatPredictsTheFirstDigit) {
  for (const char* vocabulary : {"byte_level", "gemma_like"}) {
    SCOPED_TRACE(vocabulary);
    test::TinyModel options;
    options.tokenizer = vocabulary;
    const MeasureInputs in = inputs(options, {});
    const auto file = model::ModelFile::open(folder_ / ("model" + std::to_string(models_ - 1)));
    const auto tokenizer = file.tokenizer();
    eval::NeedleOptions needle;
    needle.form = text::NeedleForm::sentence;
    needle.lengths = {400};
    needle.depths = {0, 1};
    needle.needles = 2;
    needle.samples = 2;
    const text::Haystack haystack;
    const auto tasks = eval::plan_needles(*tokenizer, haystack, needle);
    const eval::NeedleResult result = eval::ask_needles(in.model, *tokenizer, needle.form, tasks);
    model::Trainable trainable(file, DType::f32);
    Measures measures;
    measure_needles(measures, &trainable, in, *tokenizer, needle.form, tasks, result);
    // Both by hand, for a context that ends with the question and one that ends with the blank.
    std::vector<double> mass[2], reached[2];
    for (const eval::NeedleTask& task : tasks) {
      for (const text::NeedlePrompt& prompt : task.prompts) {
        const text::TokenSpan number = prompt.numbers[0];
        const int32_t digit = prompt.ids[static_cast<size_t>(number.begin)];
        ASSERT_EQ(tokenizer->decode(std::vector{digit}).size(), 1u) << "digits are pieces of their own";
        const int32_t blank = prompt.ids[static_cast<size_t>(number.begin) - 1];  // of "is 1234."
        const int32_t is = prompt.ids.back();
        const std::string end = tokenizer->decode(std::vector{is, blank, digit});
        ASSERT_TRUE(end.ends_with(" " + tokenizer->decode(std::vector{digit}))) << end;
        ASSERT_EQ(end.size(), tokenizer->decode(std::vector{is}).size() + 2) << end << ": the blank is a token";
        std::vector<int32_t> ids = prompt.ids;
        for (const bool with_blank : {false, true}) {
          if (with_blank) ids.push_back(blank);
          analysis::KeyMass last(analysis::span_keys({static_cast<int64_t>(ids.size()) - 1, 1},
                                                     {number.begin, number.end - number.begin}));
          const attention::Taps taps{{&last}, {}};
          model::Context context(in.model, static_cast<int64_t>(ids.size()));
          context.extend(ids, 1, &taps);
          std::vector<double> shares;
          for (const analysis::LayerKeyMass& layer : last.results())
            for (const analysis::HeadKeyMass& head : layer.heads) shares.push_back(*head.share);
          mass[with_blank].push_back(*mean_of(shares));
          double on_number = 0, all = 0;
          for (const analysis::LayerAttribution& layer : analysis::attribute(trainable, ids, digit)) {
            for (const std::vector<double>& head : layer.heads) {
              for (size_t j = 0; j < head.size(); ++j) {
                all += std::abs(head[j]);
                if (number.begin <= static_cast<int64_t>(j) && static_cast<int64_t>(j) < number.end)
                  on_number += std::abs(head[j]);
              }
            }
          }
          reached[with_blank].push_back(on_number / all);
        }
      }
    }
    EXPECT_NEAR(*measures["needle_key_mass"].value, *mean_of(mass[1]), 1e-12);
    EXPECT_NEAR(*measures["attribution_key_share"].value, *mean_of(reached[1]), 1e-12);
    EXPECT_GT(std::abs(*mean_of(mass[0]) - *mean_of(mass[1])), 1e-5) << "the rows cannot be told apart";
    EXPECT_GT(std::abs(*mean_of(reached[0]) - *mean_of(reached[1])), 1e-5);
  }
}

// A model that foretells every next id knows the last words whose ids go on counting.
TEST_F(MeasureTest, LastWordsThatAreNotForetold) {
  test::TinyModel chain;
  chain.chain = true;
  const MeasureInputs in = inputs(chain, {});
  const auto tokenizer = model::ModelFile::open(folder_ / "model0").tokenizer();
  // Pairs of words of one piece each whose ids follow on each other, and one pair whose ids do not.
  eval::ChoiceSet texts;
  texts.last_words = true;
  const auto add = [&](int32_t first, int32_t second) {
    const std::string context = tokenizer->decode(std::vector{first}), word = tokenizer->decode(std::vector{second});
    eval::ChoiceItem item;
    item.id = std::to_string(texts.items.size());
    item.context = context;
    item.choices = {word};
    texts.items.push_back(item);
    return tokenizer->encode(context + word) == std::vector{first, second};
  };
  int32_t id = 300;
  while (texts.items.size() < 3)
    if (!add(id, id + 1 + static_cast<int32_t>(texts.items.size() == 2))) texts.items.pop_back(), ++id;
  Measures measures;
  measure_last_words(measures, in, *tokenizer, texts);
  EXPECT_EQ(measures["last_word_error"].windows, Windows{singles({0, 0, 1})});
  EXPECT_NEAR(*measures["last_word_error"].value, 1.0 / 3, 1e-12);
}

TEST_F(MeasureTest, HessianIsThatOfTheTrainingText) {
  MeasureInputs in = inputs({}, {});
  inputs({}, {});  // a second model
  in.calibration = counting(3, 90);
  in.seed = 5;
  Measures measures;
  const auto points = measure_hessian(measures, {{10, folder_ / "model0"}, {20, folder_ / "model1"}}, in);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[1].step, 20);
  double share = 0, weight = 0;
  for (const HessianPoint& point : points) {
    share += point.spectrum.negative_share.mean / 2;
    weight += point.spectrum.negative_weight.mean / 2;
  }
  EXPECT_NEAR(*measures["hessian_negative_share"].value, share, 1e-12);
  EXPECT_NEAR(*measures["hessian_negative_weight"].value, weight, 1e-12);
  // Four windows of BOS and eight tokens, evenly over the text: 3, 25, 47, 69 … of ten such windows.
  std::vector<int32_t> ids, targets;
  for (const auto& window : even_windows(in.calibration, 1, 8, 4, "text")) {
    ids.insert(ids.end(), window.begin(), window.end() - 1);
    targets.insert(targets.end(), window.begin() + 1, window.end());
  }
  model::Trainable trainable(model::ModelFile::open(folder_ / "model0"), DType::f32);
  const model::TrainRows batch = {4, 8, ids, targets, {}, {}};
  analysis::HessianOptions options;
  options.seed = 5;
  EXPECT_EQ(analysis::model_hessian(trainable, {&batch, 1}, options).highest[0].value,
            points[0].spectrum.highest[0].value);
}

TEST_F(MeasureTest, AShortTextIsAnError) {
  Measures measures;
  const MeasureInputs in = inputs({}, {counting(3, 8), counting(3, 5)});
  test::expect_error([&] { measure_predictions(measures, in); }, ErrorCode::usage,
                     {"validation text 2", "5 tokens", "needs 8"});
}

}  // namespace
}  // namespace unchain::study
