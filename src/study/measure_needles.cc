// What attention does before an answer: src/study/measure.h.
#include <algorithm>

#include "analysis/attribution.h"
#include "analysis/key_tokens.h"
#include "base/check.h"
#include "model/context.h"
#include "study/measure.h"
#include "study/measure_windows.h"
#include "study/statistics.h"

namespace unchain::study {
namespace {

using analysis::HeadKeyMass;

// Means over layers and heads, question by question.
struct Masses {
  std::vector<double> share, share_positive, share_value_weighted, mass, mass_rescaled;

  void add(const std::vector<analysis::LayerKeyMass>& layers) {
    add_mean(share, layers, &HeadKeyMass::share);
    add_mean(share_positive, layers, &HeadKeyMass::share_positive);
    add_mean(share_value_weighted, layers, &HeadKeyMass::share_value_weighted);
    add_mean(mass, layers, &HeadKeyMass::mass);
    add_mean(mass_rescaled, layers, &HeadKeyMass::mass_rescaled);
  }

 private:
  static void add_mean(std::vector<double>& to, const std::vector<analysis::LayerKeyMass>& layers,
                       std::optional<double> HeadKeyMass::*which) {
    std::vector<double> values;
    for (const analysis::LayerKeyMass& layer : layers)
      for (const HeadKeyMass& head : layer.heads)
        if (const auto& value = head.*which) values.push_back(*value);
    if (const auto mean = mean_of(values)) to.push_back(*mean);
  }
};

// Absolute attribution that reaches the keys, over all layers and heads, and the share that the span has of the tokens.
std::optional<analysis::DirectedShare> directed(const std::vector<analysis::LayerAttribution>& layers,
                                                analysis::TokenSpan keys) {
  double on_span = 0, all = 0, expected = 0;
  for (const analysis::LayerAttribution& layer : layers) {
    for (const std::vector<double>& head : layer.heads) {
      for (size_t j = 0; j < head.size(); ++j) {
        all += std::abs(head[j]);
        if (keys.contains(static_cast<int64_t>(j))) on_span += std::abs(head[j]);
      }
      expected = static_cast<double>(keys.count) / static_cast<double>(head.size());
    }
  }
  if (all == 0) return std::nullopt;
  return analysis::DirectedShare{on_span / all, expected};
}

}  // namespace

void measure_needles(Measures& measures, model::Trainable* trainable, const MeasureInputs& in,
                     const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                     const std::vector<eval::NeedleTask>& tasks, const eval::NeedleResult& result) {
  if (tasks.size() != result.cells.size())
    fail(ErrorCode::usage, "needles: {} tasks, {} results", tasks.size(), result.cells.size());
  size_t longest = 1;
  for (const eval::NeedleTask& task : tasks)
    for (const text::NeedlePrompt& prompt : task.prompts)
      longest = std::max(longest, eval::first_digit_context(tokenizer, form, prompt).size());
  model::Context context(in.model, static_cast<int64_t>(longest));
  Masses masses;
  std::vector<double> shares, ratios;
  std::vector<bool> right;
  for (size_t t = 0; t < tasks.size(); ++t) {
    for (size_t s = 0; s < tasks[t].prompts.size(); ++s) {
      const text::NeedlePrompt& prompt = tasks[t].prompts[s];
      const Ids ids = eval::first_digit_context(tokenizer, form, prompt);
      const text::TokenSpan number = prompt.numbers[0];
      const analysis::TokenSpan keys = {number.begin, number.end - number.begin};
      analysis::KeyMass mass(analysis::span_keys({static_cast<int64_t>(ids.size()) - 1, 1}, keys));
      const attention::Taps taps{{&mass}, {}};
      context.truncate(0);
      context.extend(ids, 1, &taps);
      masses.add(mass.results());
      right.push_back(result.cells[t].samples[s].answers[0].right);
      if (!trainable) continue;
      // Digits are pieces of their own, so the answer begins with the token that the needle's number begins with.
      const int32_t answer = prompt.ids[static_cast<size_t>(number.begin)];
      const auto reached = directed(analysis::attribute(*trainable, ids, answer), keys);
      if (!reached) continue;
      shares.push_back(reached->share);
      ratios.push_back(reached->share / reached->expected);
    }
  }
  // Questions are the windows of one text.
  const auto set = [&](const char* name, const std::vector<double>& values) {
    measures[name] = {mean_of(values), {values}};
  };
  set("needle_key_mass", masses.share);
  set("a1_needle_key_mass", masses.share_positive);
  set("needle_key_mass_value_weighted", masses.share_value_weighted);
  set("needle_key_weight", masses.mass);
  set("needle_key_weight_rescaled", masses.mass_rescaled);
  if (trainable) {
    set("attribution_key_share", shares);
    set("attribution_key_ratio", ratios);
  }
  std::vector<double> found, missed;
  for (const eval::NeedleCell& cell : result.cells) {
    for (const eval::NeedleSample& sample : cell.samples) {
      for (const eval::NeedleAnswer& answer : sample.answers) {
        found.push_back(answer.right ? 1 : 0);
        missed.push_back(answer.right ? 0 : 1);
      }
    }
  }
  set("needle_accuracy", found);
  set("needle_error", missed);
  if (masses.share.size() == right.size()) measures["key_mass_auc"].value = area_under_curve(masses.share, right);
}

}  // namespace unchain::study
