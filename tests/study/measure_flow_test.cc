// How answers get to their row, held against passes made by hand.
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

TEST(MeasureFlow, IsWhatPassesByHandShow) {
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
    needle.samples = static_cast<int64_t>(kRolloutPrompts) + 1;
    const auto tasks = eval::plan_needles(*tokenizer, text::Haystack(), needle);
    Measures measures;
    measure_flow(measures, in, *tokenizer, needle.form, tasks);
    std::vector<double> logits, ranks, entities, flows, signed_flows;
    for (const eval::NeedleTask& task : tasks) {
      for (size_t s = 0; s < task.prompts.size(); ++s) {
        const text::NeedlePrompt& prompt = task.prompts[s];
        const auto ids = eval::first_digit_context(*tokenizer, needle.form, prompt);
        const auto row = static_cast<int64_t>(ids.size()) - 1;
        const auto last = [&](const attention::Taps& taps) {
          const auto all = test::logits_of(in.model, ids, &taps);
          return std::vector<float>(all.end() - in.model->config.vocabulary, all.end());
        };
        LastRows maps;
        analysis::Rollout rollout(row + 1);
        const std::vector<float> before = last({{&maps, &rollout}, {}});
        analysis::KnockOut cut(*in.model, {prompt.numbers[0].begin, prompt.numbers[0].end}, {row});
        const std::vector<float> after = last({{}, {&cut}});
        const auto answer = static_cast<size_t>(prompt.ids[static_cast<size_t>(prompt.numbers[0].begin)]);
        const auto rank = [&](const std::vector<float>& x) {
          std::vector<float> sorted = x;
          std::sort(sorted.begin(), sorted.end(), std::greater<>());
          return static_cast<double>(std::find(sorted.begin(), sorted.end(), x[answer]) - sorted.begin());
        };
        logits.push_back(static_cast<double>(after[answer]) - static_cast<double>(before[answer]));
        ranks.push_back(rank(after) - rank(before));
        std::vector<double> heads;
        for (const LastRow& head : maps.rows)
          if (const auto share = head.share(prompt.cities[0])) heads.push_back(*share);
        if (!heads.empty()) entities.push_back(mean(heads));
        if (s >= kRolloutPrompts) continue;
        flows.push_back(analysis::flow_share(rollout.flow(analysis::Flow::magnitude), row, prompt.numbers[0].begin,
                                             prompt.numbers[0].end));
        signed_flows.push_back(analysis::flow_share(rollout.flow(analysis::Flow::signed_map), row,
                                                    prompt.numbers[0].begin, prompt.numbers[0].end));
      }
    }
    // The product of one row with the vocabulary takes its sums in another order than that of many rows: logits of
    // about 5, as in tests/model.
    ASSERT_EQ(measures["knockout_logit"].windows[0].size(), logits.size());
    for (size_t q = 0; q < logits.size(); ++q)
      EXPECT_NEAR(measures["knockout_logit"].windows[0][q], logits[q], 2e-5);
    EXPECT_EQ(measures["knockout_rank"].windows, std::vector<std::vector<double>>{ranks});
    EXPECT_GT(*std::max_element(logits.begin(), logits.end()), 0);  // the edges count
    ASSERT_EQ(measures["entity_key_mass"].windows[0].size(), entities.size());
    for (size_t q = 0; q < entities.size(); ++q)
      EXPECT_NEAR(measures["entity_key_mass"].windows[0][q], entities[q], 1e-6);  // P in f32 here
    EXPECT_EQ(measures["rollout_key_share"].windows, std::vector<std::vector<double>>{flows});
    EXPECT_EQ(measures["signed_rollout_key_share"].windows, std::vector<std::vector<double>>{signed_flows});
    EXPECT_EQ(measures["signed_rollout_key_share"].windows == measures["rollout_key_share"].windows,
              std::string(attention) == "softmax");
    const auto without = accuracy_without_noise(in, *tokenizer, needle.form, tasks);
    ASSERT_EQ(without.size(), 3u);
    for (const auto& accuracy : without) EXPECT_EQ(accuracy.has_value(), std::string(attention) != "softmax");
  }
}

}  // namespace
}  // namespace unchain::study
