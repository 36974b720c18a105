#include "study/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numbers>
#include <numeric>

#include "analysis/analyzer.h"
#include "eval/perplexity.h"
#include "model/context.h"
#include "model/model_file.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace unchain::study {
namespace {

using nlohmann::ordered_json;

ComparedModel planted(const std::string& name, std::vector<std::optional<double>> values) {
  ComparedModel model;
  model.name = name;
  model.units["loss_nats"] = {"window", std::move(values)};
  return model;
}

// Scattered values whose difference does not scatter.
TEST(Compare, DifferencesGoUnitByUnit) {
  const ordered_json out = comparison_json({planted("a", {1, 20, 300, std::nullopt}), planted("b", {2, 21, 301, 4}),
                                            planted("c", {0.5, std::nullopt, std::nullopt, 9}), planted("d", {1, 2})},
                                           7);
  ASSERT_EQ(out["models"].size(), 4u);
  const ordered_json& a = out["models"][0]["measures"]["loss_nats"];
  EXPECT_EQ(out["models"][0]["name"], "a");
  EXPECT_EQ(a["units"], 3);
  EXPECT_EQ(a["unit"], "window");
  EXPECT_NEAR(a["mean"].get<double>(), 107, 1e-12);
  EXPECT_LT(a["low"], 10);
  EXPECT_GT(a["high"], 200);
  ASSERT_EQ(out["paired"].size(), 2u) << "d read other units";
  const ordered_json &b = out["paired"][0], &c = out["paired"][1];
  EXPECT_EQ(b["model"], "b");
  EXPECT_EQ(b["against"], "a");
  EXPECT_EQ(b["units"], 3);
  EXPECT_NEAR(b["difference"].get<double>(), 1, 1e-12);
  EXPECT_NEAR(b["low"].get<double>(), 1, 1e-12);
  EXPECT_NEAR(b["high"].get<double>(), 1, 1e-12);
  EXPECT_EQ(c["units"], 1);
  EXPECT_EQ(c["difference"], -0.5);
  EXPECT_TRUE(c["low"].is_null()) << "one unit has no interval";
}

TEST(Compare, WhatAppliesNowhereIsNull) {
  const ordered_json out = comparison_json({planted("a", {std::nullopt, std::nullopt}), planted("b", {1, 2})}, 0);
  EXPECT_TRUE(out["models"][0]["measures"]["loss_nats"].is_null());
  EXPECT_TRUE(out["paired"].empty());
}

class CompareModels : public testing::Test {
 protected:
  ComparedModel open(const std::string& name, const test::TinyModel& options) {
    test::write_tiny_model(folder_ / name, options);
    const model::ModelFile file = model::ModelFile::open(folder_ / name);
    return {name, model::load(file, DType::f32), file.tokenizer(), {}};
  }
  test::TemporaryFolder folder_;
  const std::string text_ =
      "The river meets the sea, and the sea keeps what the river brought. Stones wear down; sand goes on for ever.";
};

TEST_F(CompareModels, PartsAreTheTextInOrder) {
  const ComparedModel model = open("m", {});
  const auto parts = cut_text(*model.tokenizer, text_, 10, 3);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_TRUE(text_.starts_with(parts[0] + parts[1] + parts[2]));
  for (const std::string& part : parts) EXPECT_GE(model.tokenizer->encode(part).size(), 9u);
  const auto whole = static_cast<int64_t>(model.tokenizer->encode(text_).size());
  EXPECT_EQ(cut_text(*model.tokenizer, text_, whole / 2, 8).size(), 2u);
  test::expect_error([&] { cut_text(*model.tokenizer, text_, whole + 1, 8); }, ErrorCode::usage, {"--window"});
}

TEST_F(CompareModels, WindowsAreMeasuredAsTheAnalyzerDoesAndLossAsPerplexity) {
  test::TinyModel options{"gemma3", "gemma_like", false, {}};
  options.attention = "lowrank_diff";
  ComparedModel model = open("m", options);
  const auto parts = cut_text(*model.tokenizer, text_, 12, 2);
  const auto selection = analysis::parse_selection({"rows", "redundancy"});
  compare_windows(model, parts, selection, 3);
  EXPECT_EQ(model.units.at("loss_nats").values.size(), 2u);
  EXPECT_FALSE(model.units.contains("rank_entropy")) << "not chosen";
  for (size_t w = 0; w < parts.size(); ++w) {
    const auto ids = model.tokenizer->encode_with_bos(parts[w]);
    analysis::AnalysisOptions settings;
    settings.selection = selection;
    analysis::MapAnalyzer analyzer(settings);
    const attention::Taps taps{{&analyzer}, {}};
    model::Context context(model.model, static_cast<int64_t>(ids.size()));
    analyzer.begin_window(static_cast<int64_t>(ids.size()), ids);
    context.extend(ids, -1, &taps);
    analyzer.end_window();
    const auto results = analyzer.results();
    const auto at = [&](const char* name) { return model.units.at(name).values[w].value(); };
    using enum analysis::Measure;
    EXPECT_NEAR(at("entropy"), results.summary[0][static_cast<size_t>(entropy)]->mean, 1e-12);
    EXPECT_NEAR(at("a1_entropy"), results.summary[1][static_cast<size_t>(entropy)]->mean, 1e-12);
    EXPECT_NEAR(at("a2_top_mass_5"), results.summary[2][static_cast<size_t>(top_mass_5)]->mean, 1e-12);
    EXPECT_NEAR(at("lambda"), results.lambda->mean, 1e-12);
    EXPECT_NEAR(at("cka"), results.cka->mean, 1e-12);
    std::vector<double> nll(ids.size() - 1);
    context.truncate(0);
    context.extend(std::span(ids).first(ids.size() - 1));
    context.nll(nll, std::span(ids).subspan(1));
    double nats = 0;
    for (const double x : nll) nats += x;
    EXPECT_NEAR(at("loss_nats"), nats / static_cast<double>(nll.size()), 1e-6);
    // Stretches of 4 and 8 tokens behind 4 and 8 others. Of so few tokens, two roundings of logits below 16 count.
    ASSERT_EQ(model.loss_by_context.begin()->first, 8);
    EXPECT_NEAR(model.loss_by_context.at(8)[w], std::accumulate(nll.begin() + 3, nll.begin() + 7, 0.0) / 4,
                2 * 16 * 0x1p-24);
    EXPECT_EQ(model.loss_by_context.size(), ids.size() >= 16 ? 2u : 1u);
    EXPECT_NEAR(at("bits_per_byte"), nats / std::numbers::ln2 / static_cast<double>(parts[w].size()), 1e-6);
  }
}

TEST_F(CompareModels, AModelAndItselfDoNotDiffer) {
  test::TinyModel options{"gemma3", "gemma_like", false, {}};
  options.attention = "lowrank_diff";
  std::vector<ComparedModel> models;
  models.push_back(open("a", options));
  models.push_back(open("b", options));
  eval::NeedleOptions needle;
  needle.form = text::NeedleForm::pair;
  needle.lengths = {128};
  needle.depths = {0, 1};
  needle.needles = 2;
  needle.samples = 2;
  const auto questions = eval::read_choices(
      "{\"context\": \"the sea\", \"choices\": [\"is wide\", \"sings\"], \"answer\": 1}\n"
      "{\"context\": \"a river\", \"choices\": [\"runs\", \"sits still\"], \"answer\": 0}\n",
      "questions");
  for (ComparedModel& model : models) {
    compare_windows(model, cut_text(*model.tokenizer, text_, 12, 2), {}, 3);
    compare_needles(model, needle);
    compare_choices(model, questions, eval::ChoiceTemplate::plain);
  }
  const ordered_json out = comparison_json(models, 3);
  const ordered_json& measures = out["models"][0]["measures"];
  for (const char* name : {"loss_nats", "token_error", "entropy", "needle_accuracy", "needle_attention",
                           "choice_accuracy", "choice_accuracy_per_byte", "answer_nll_nats"})
    EXPECT_TRUE(measures.contains(name)) << name;
  double nats = 0, tokens = 0;
  for (const std::string& part : cut_text(*models[0].tokenizer, text_, 12, 2)) {
    eval::Window window;
    window.ids = models[0].tokenizer->encode_with_bos(part);
    const auto predicted = static_cast<double>(window.ids.size() - 1);
    nats += eval::perplexity(models[0].model, nullptr, {window}).nll_nats * predicted;
    tokens += predicted;
  }
  EXPECT_EQ(out["models"][0]["tokens"], tokens);
  EXPECT_NEAR(std::log(out["models"][0]["perplexity"].get<double>()), nats / tokens, 2e-6);
  EXPECT_EQ(measures["needle_accuracy"]["units"], 4);
  const auto mean = [&](const char* name) { return measures[name]["mean"].get<double>(); };
  const text::Haystack haystack;
  const auto& tokenizer = *models[0].tokenizer;
  const auto asked =
      eval::ask_needles(models[0].model, tokenizer, needle.form, eval::plan_needles(tokenizer, haystack, needle));
  EXPECT_NEAR(mean("needle_accuracy"), asked.accuracy.value(), 1e-12);
  const auto scored = eval::score_choices(
      models[0].model, eval::encode_choices(tokenizer, questions, eval::ChoiceTemplate::plain, "questions"), false);
  EXPECT_NEAR(mean("choice_accuracy"), scored.accuracy.value(), 1e-12);
  EXPECT_NEAR(mean("choice_accuracy_per_byte"), scored.per_byte.value(), 1e-12);
  EXPECT_NEAR(mean("answer_nll_nats"), scored.answer_nll, 1e-12);
  EXPECT_EQ(measures["choice_accuracy"]["unit"], "question");
  const ordered_json& growth = out["models"][1]["growth"];
  ASSERT_GE(growth.size(), 1u);
  EXPECT_EQ(growth[0]["tokens"], 8);
  EXPECT_EQ(growth[0]["loss_nats"]["mean"], out["models"][0]["growth"][0]["loss_nats"]["mean"]);
  // Two layers of three with a window of 6: keys and values of 2 heads of 8. The state: 4 heads, rank 4, 8 + 1 numbers.
  EXPECT_EQ(growth[0]["cache_numbers"], (6 + 8 + 6) * 2 * (8 + 8));
  EXPECT_EQ(growth[0]["state_numbers"], 3 * 4 * 4 * (8 + 1));
  EXPECT_EQ(growth[0]["multiply_adds"], (6 + 8 + 6) * 4 * (8 + 8) + 3 * 4 * 4 * (8 + 2 * 8));
  EXPECT_GT(out["paired"].size(), 40u);
  for (const ordered_json& pair : out["paired"]) EXPECT_EQ(pair["difference"], 0) << pair;
}

TEST_F(CompareModels, LastWords) {
  ComparedModel model = open("m", {});
  const auto texts = eval::read_choices("{\"text\": \"one two one\"}\n{\"text\": \"the sea\"}\n", "texts");
  compare_choices(model, texts, eval::ChoiceTemplate::plain);
  EXPECT_EQ(model.units.at("last_word_accuracy").values.size(), 2u);
  EXPECT_FALSE(model.units.contains("choice_accuracy"));
}

}  // namespace
}  // namespace unchain::study
