// What attention does before an answer, held against passes made by hand.
#include <gtest/gtest.h>

#include <numeric>

#include "analysis/edits.h"
#include "analysis/rollout.h"
#include "model/model_file.h"
#include "study/measure.h"
#include "support/golden_model.h"
#include "support/tiny_model.h"

namespace unchain::study {
namespace {

// The last row of every map of a pass of one panel, and the first key that A1 sees there.
struct LastRow {
  std::vector<float> p;
  int64_t first = 0;

  // Σ of the span's P over Σ|P|; absent where the row sees nothing of the span.
  std::optional<double> share(text::TokenSpan span) const {
    if (first >= span.end) return std::nullopt;
    double part = 0, all = 0;
    for (size_t j = 0; j < p.size(); ++j) {
      const auto key = static_cast<int64_t>(j);
      all += std::abs(p[j]);
      if (key >= std::max(first, span.begin) && key < span.end) part += p[j];
    }
    return part / all;
  }
};
class LastRows : public attention::Observer {
 public:
  void on_maps(const attention::MapPanel& panel) override {
    EXPECT_EQ(panel.first_row, 0);
    for (int h = 0; h < panel.heads; ++h) {
      rows.push_back({std::vector<float>(static_cast<size_t>(panel.keys)), panel.first_key(panel.rows - 1)});
      panel.signed_row(h, panel.rows - 1, rows.back().p.data());
    }
  }
  std::vector<LastRow> rows;
};

double mean(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

TEST(MeasureNeedles, AreWhatPassesByHandShow) {
  for (const char* attention : {"softmax", "lowrank_diff"}) {
    SCOPED_TRACE(attention);
    const test::TemporaryFolder folder;
    test::TinyModel options{"gemma3", "gemma_like", false, {}};
    options.attention = attention;
    test::write_tiny_model(folder / "m", options);
    const auto tokenizer = model::ModelFile::open(folder / "m").tokenizer();
    MeasureInputs in;
    in.model = model::load(folder / "m", DType::f32);
    eval::NeedleOptions needle;
    needle.form = text::NeedleForm::pair;
    needle.lengths = {60};
    needle.depths = {0, 1};
    needle.needles = 2;
    needle.samples = static_cast<int64_t>(kRolloutSamples) + 1;
    const auto tasks = eval::plan_needles(*tokenizer, text::Haystack(), needle);
    const auto result = eval::ask_needles(in.model, *tokenizer, needle.form, tasks);
    Measures measures;
    measure_needles(measures, nullptr, in, *tokenizer, needle.form, tasks, result);
    EXPECT_FALSE(measures.contains("attribution_key_share"));
    using Values = std::vector<std::vector<double>>;  // by sample, then depth
    Values logits, ranks, masses, cities, flows, signed_flows;
    double largest = 0;
    for (size_t s = 0; s <= kRolloutSamples; ++s) {
      for (Values* values : {&logits, &ranks, &masses, &cities}) values->emplace_back();
      if (s < kRolloutSamples) flows.emplace_back(), signed_flows.emplace_back();
      for (const eval::NeedleTask& task : tasks) {
        const text::NeedlePrompt& prompt = task.prompts[s];
        const text::TokenSpan number = prompt.numbers[0], city = prompt.cities[0];
        const auto ids = eval::first_digit_context(*tokenizer, needle.form, prompt);
        const auto row = static_cast<int64_t>(ids.size()) - 1;
        const auto last = [&](const attention::Taps& taps) {
          const auto all = test::logits_of(in.model, ids, &taps);
          return std::vector<float>(all.end() - in.model->config.vocabulary, all.end());
        };
        LastRows maps;
        analysis::Rollout rollout(row + 1);
        const std::vector<float> before = last({{&maps, &rollout}, {}});
        analysis::KnockOut cut(*in.model, {number.begin, number.end}, {row});
        const std::vector<float> after = last({{}, {&cut}});
        const auto answer = static_cast<size_t>(prompt.ids[static_cast<size_t>(number.begin)]);
        const auto rank = [&](const std::vector<float>& x) {
          std::vector<float> sorted = x;
          std::sort(sorted.begin(), sorted.end(), std::greater<>());
          return static_cast<double>(std::find(sorted.begin(), sorted.end(), x[answer]) - sorted.begin());
        };
        logits.back().push_back(static_cast<double>(after[answer]) - static_cast<double>(before[answer]));
        largest = std::max(largest, std::abs(logits.back().back()));
        ranks.back().push_back(rank(after) - rank(before));
        for (const auto& [span, values] : {std::pair{number, &masses}, {city, &cities}}) {
          std::vector<double> heads;
          for (const LastRow& head : maps.rows)
            if (const auto share = head.share(span)) heads.push_back(*share);
          values->back().push_back(mean(heads));
        }
        if (s >= kRolloutSamples) continue;
        const auto flow = [&](analysis::Flow which) {
          return analysis::flow_share(rollout.flow(which), row, number.begin, number.end);
        };
        flows.back().push_back(flow(analysis::Flow::magnitude));
        signed_flows.back().push_back(flow(analysis::Flow::signed_map));
      }
    }
    const auto expect_near = [&](const char* name, const Values& expected, double tolerance) {
      const Windows& found = measures[name].windows;
      ASSERT_EQ(found.size(), expected.size()) << name;
      double sum = 0, count = 0;
      for (size_t s = 0; s < expected.size(); ++s) {
        ASSERT_EQ(found[s].size(), expected[s].size()) << name;
        for (size_t t = 0; t < expected[s].size(); ++t) {
          EXPECT_NEAR(found[s][t].at(0), expected[s][t], tolerance) << name << ' ' << s << ' ' << t;
          sum += expected[s][t], ++count;
        }
      }
      EXPECT_NEAR(*measures[name].value, sum / count, tolerance) << name;
    };
    // The product of one row with the vocabulary takes its sums in another order than that of many rows: logits of
    // about 5, as in tests/model. P is rounded to f32 here.
    expect_near("knockout_logit", logits, 2e-5);
    expect_near("knockout_rank", ranks, 1e-9);
    expect_near("needle_key_mass", masses, 1e-6);
    expect_near("entity_key_mass", cities, 1e-6);
    expect_near("rollout_key_share", flows, 1e-12);
    expect_near("signed_rollout_key_share", signed_flows, 1e-12);
    EXPECT_GT(largest, 1e-2) << "the edges count";
    const bool noise = std::string(attention) != "softmax";
    EXPECT_NE(noise, flows == signed_flows);
    const NoiseAccuracy accuracy = accuracy_by_layer(in, *tokenizer, needle.form, tasks);
    EXPECT_EQ(accuracy.with.has_value(), noise);
    ASSERT_EQ(accuracy.without.size(), 3u);
    for (const auto& layer : accuracy.without) EXPECT_EQ(layer.has_value(), noise);
  }
}

// Rollouts of longer prompts are not made, and that is no value; a measure that a question lacks keeps no windows.
TEST(MeasureNeedles, LongPromptsHaveNoRollout) {
  const test::TemporaryFolder folder;
  test::write_tiny_model(folder / "m", {"llama", "byte_level", false, {}});
  const auto tokenizer = model::ModelFile::open(folder / "m").tokenizer();
  MeasureInputs in;
  in.model = model::load(folder / "m", DType::f32);
  eval::NeedleOptions needle;
  needle.form = text::NeedleForm::pair;
  needle.lengths = {kRolloutTokens + 64};
  needle.depths = {0};
  needle.needles = 2;
  needle.samples = 1;
  const auto tasks = eval::plan_needles(*tokenizer, text::Haystack(), needle);
  Measures measures;
  measure_needles(measures, nullptr, in, *tokenizer, needle.form, tasks,
                  eval::ask_needles(in.model, *tokenizer, needle.form, tasks));
  ASSERT_TRUE(measures.contains("rollout_key_share"));
  EXPECT_FALSE(measures["rollout_key_share"].value);
  EXPECT_TRUE(measures["rollout_key_share"].windows.empty());
  EXPECT_TRUE(measures["knockout_logit"].value);
}

}  // namespace
}  // namespace unchain::study
