// What attention does before an answer: src/study/measure.h.
#include <algorithm>
#include <set>

#include "analysis/attribution.h"
#include "analysis/edits.h"
#include "analysis/key_tokens.h"
#include "analysis/rollout.h"
#include "base/check.h"
#include "model/context.h"
#include "study/measure.h"
#include "study/measure_windows.h"
#include "study/statistics.h"

namespace unchain::study {
namespace {

using analysis::Flow;
using analysis::HeadKeyMass;

// The first question of a prompt, as far as the row that predicts the answer's first digit.
struct Question {
  Ids ids;
  analysis::TokenSpan number, city;
  int32_t answer = 0;  // the token that this row should predict
  bool right = false;  // what was answered
  bool rollout = false;

  int64_t row() const { return static_cast<int64_t>(ids.size()) - 1; }
};

// By sample, then length and depth: the prompts of a sample share haystack and needles, so that they are the windows of
// one text.
std::vector<std::vector<Question>> questions_of(const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                                                const std::vector<eval::NeedleTask>& tasks,
                                                const eval::NeedleResult& result) {
  if (tasks.size() != result.cells.size())
    fail(ErrorCode::usage, "needles: {} tasks, {} results", tasks.size(), result.cells.size());
  std::vector<std::vector<Question>> questions;
  for (size_t t = 0; t < tasks.size(); ++t) {
    questions.resize(std::max(questions.size(), tasks[t].prompts.size()));
    for (size_t s = 0; s < tasks[t].prompts.size(); ++s) {
      const text::NeedlePrompt& prompt = tasks[t].prompts[s];
      const text::TokenSpan number = prompt.numbers[0], city = prompt.cities[0];
      Question& question = questions[s].emplace_back();
      question.ids = eval::first_digit_context(tokenizer, form, prompt);
      question.number = {number.begin, number.end - number.begin};
      question.city = {city.begin, city.end - city.begin};
      // Digits are pieces of their own, so the answer begins with the token that the needle's number begins with.
      question.answer = prompt.ids[static_cast<size_t>(number.begin)];
      question.right = result.cells[t].samples[s].answers[0].right;
      question.rollout = s < kRolloutSamples && question.row() < kRolloutTokens;
    }
  }
  return questions;
}

// The logit of a token, and how many tokens are as likely or likelier, itself among them.
struct Place {
  double logit = 0, rank = 0;
};

class Reader {
 public:
  Reader(const MeasureInputs& in, int64_t longest)
      : context_(in.model, longest), logits_(static_cast<size_t>(in.model->config.vocabulary)) {}

  // Of a question's answer, as its last row has it.
  Place read(const Question& question, const attention::Taps& taps) {
    context_.truncate(0);
    context_.extend(question.ids, 1, &taps);
    context_.logits(Matrix(logits_.data(), 1, static_cast<int64_t>(logits_.size())), 0, 1);
    const float logit = logits_[static_cast<size_t>(question.answer)];
    const auto as_likely = std::ranges::count_if(logits_, [&](float other) { return other >= logit; });
    return {logit, static_cast<double>(as_likely)};
  }

 private:
  model::Context context_;
  std::vector<float> logits_;
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

constexpr const char* kAuc = "key_mass_auc";

// Question by question; of a measure that one of them lacks no values by window are kept.
class Values {
 public:
  explicit Values(Measures& measures) : measures_(measures) {}

  // Begins the windows of the next text.
  void begin_sample() { ++sample_; }
  void add(const std::string& name, const std::optional<double>& value) {
    Windows& windows = values_[name];
    windows.resize(sample_);
    if (value)
      windows.back().push_back({*value});
    else
      incomplete_.insert(name);
  }
  void add(const std::string& name, Window window) {
    Windows& windows = values_[name];
    windows.resize(sample_);
    windows.back().push_back(std::move(window));
  }
  void finish() {
    for (auto& [name, windows] : values_) {
      const auto statistic = name == kAuc ? OverWindows::area_under_curve : OverWindows::mean;
      measures_[name].value = over_windows(statistic, windows);
      if (!incomplete_.contains(name)) measures_[name].windows = std::move(windows);
    }
  }

 private:
  Measures& measures_;
  std::map<std::string, Windows> values_;
  std::set<std::string> incomplete_;
  size_t sample_ = 0;
};

}  // namespace

void measure_needles(Measures& measures, model::Trainable* trainable, const MeasureInputs& in,
                     const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                     const std::vector<eval::NeedleTask>& tasks, const eval::NeedleResult& result) {
  const auto samples = questions_of(tokenizer, form, tasks, result);
  int64_t longest = 1;
  for (const auto& sample : samples)
    for (const Question& question : sample) longest = std::max(longest, question.row() + 1);
  Reader reader(in, longest);
  Values values(measures);
  for (const auto& sample : samples) {
    values.begin_sample();
    for (const Question& question : sample) {
      const int64_t row = question.row();
      analysis::KeyMass number(analysis::span_keys({row, 1}, question.number));
      analysis::KeyMass city(analysis::span_keys({row, 1}, question.city), false);
      attention::Taps taps{{&number, &city}, {}};
      std::optional<analysis::Rollout> rollout;
      if (question.rollout) taps.observers.push_back(&rollout.emplace(row + 1));
      const Place whole = reader.read(question, taps);
      const auto layers = number.results();
      const auto share = mean_over_heads(layers, &HeadKeyMass::share);
      values.add("needle_key_mass", share);
      values.add("a1_needle_key_mass", mean_over_heads(layers, &HeadKeyMass::share_positive));
      values.add("needle_key_mass_value_weighted", mean_over_heads(layers, &HeadKeyMass::share_value_weighted));
      values.add("needle_key_weight", mean_over_heads(layers, &HeadKeyMass::mass));
      values.add("needle_key_weight_rescaled", mean_over_heads(layers, &HeadKeyMass::mass_rescaled));
      values.add("entity_key_mass", mean_over_heads(city.results(), &HeadKeyMass::share));
      if (share) values.add(kAuc, Window{*share, question.right ? 1.0 : 0.0});
      analysis::KnockOut knock_out(*in.model, {question.number.first, question.number.end()}, {row});
      const Place cut = reader.read(question, {{}, {&knock_out}});
      values.add("knockout_logit", cut.logit - whole.logit);
      values.add("knockout_rank", cut.rank - whole.rank);
      if (rollout) {
        const auto flow = [&](Flow which) {
          return analysis::flow_share(rollout->flow(which), row, question.number.first, question.number.end());
        };
        values.add("rollout_key_share", flow(Flow::magnitude));
        values.add("signed_rollout_key_share", flow(Flow::signed_map));
      }
      if (!trainable) continue;
      const auto reached = directed(analysis::attribute(*trainable, question.ids, question.answer), question.number);
      values.add("attribution_key_share", reached ? std::optional(reached->share) : std::nullopt);
      values.add("attribution_key_ratio", reached ? std::optional(reached->share / reached->expected) : std::nullopt);
    }
  }
  values.finish();
  for (const char* name : {"rollout_key_share", "signed_rollout_key_share"})
    measures[name];  // without a value if too long
}

NoiseAccuracy accuracy_by_layer(const MeasureInputs& in, const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                                const std::vector<eval::NeedleTask>& tasks) {
  NoiseAccuracy accuracy;
  accuracy.without.resize(in.model->layers.size());
  if (!has_noise(*in.model)) return accuracy;
  const auto ask = [&](double m, const analysis::Where& where) {
    analysis::ScaleLambda scaled(*in.model, m, where);
    return eval::ask_needles(in.model, tokenizer, form, tasks, {}, {&scaled}).accuracy.value();
  };
  accuracy.with = ask(1, {});
  for (size_t layer = 0; layer < accuracy.without.size(); ++layer) {
    if (in.model->layers[layer].attention.family.has_noise())
      accuracy.without[layer] = ask(0, {{static_cast<int>(layer)}, {}});
  }
  return accuracy;
}

}  // namespace unchain::study
