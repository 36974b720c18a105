// How an answer gets to the row that gives it: src/study/measure.h.
#include <algorithm>

#include "analysis/edits.h"
#include "analysis/key_tokens.h"
#include "analysis/rollout.h"
#include "model/context.h"
#include "study/measure.h"
#include "study/measure_windows.h"

namespace unchain::study {
namespace {

// The logit of a token in a row of logits, and how many tokens are as likely or likelier, itself among them.
struct Place {
  double logit = 0, rank = 0;
};

class Reader {
 public:
  Reader(const MeasureInputs& in, int64_t longest)
      : context_(in.model, longest), logits_(static_cast<size_t>(in.model->config.vocabulary)) {}

  // Of `token` as the one behind `ids`.
  Place place_of(int32_t token, const Ids& ids, const attention::Taps& taps) {
    context_.truncate(0);
    context_.extend(ids, 1, &taps);
    context_.logits(Matrix(logits_.data(), 1, static_cast<int64_t>(logits_.size())), 0, 1);
    const float logit = logits_[static_cast<size_t>(token)];
    const auto as_likely = std::ranges::count_if(logits_, [&](float other) { return other >= logit; });
    return {logit, static_cast<double>(as_likely)};
  }

 private:
  model::Context context_;
  std::vector<float> logits_;
};

std::optional<double> mean_share(const std::vector<analysis::LayerKeyMass>& layers) {
  std::vector<double> shares;
  for (const analysis::LayerKeyMass& layer : layers)
    for (const analysis::HeadKeyMass& head : layer.heads)
      if (head.share) shares.push_back(*head.share);
  return mean_of(shares);
}

}  // namespace

void measure_flow(Measures& measures, const MeasureInputs& in, const tokenizer::Tokenizer& tokenizer,
                  text::NeedleForm form, const std::vector<eval::NeedleTask>& tasks) {
  struct Question {
    Ids ids;  // as far as the answer's first digit
    text::TokenSpan number, city;
    bool rollout = false;
  };
  std::vector<Question> questions;
  size_t longest = 1;
  for (const eval::NeedleTask& task : tasks) {
    for (size_t s = 0; s < task.prompts.size(); ++s) {
      const text::NeedlePrompt& prompt = task.prompts[s];
      questions.push_back({eval::first_digit_context(tokenizer, form, prompt), prompt.numbers[0], prompt.cities[0],
                           s < kRolloutPrompts});
      longest = std::max(longest, questions.back().ids.size());
    }
  }
  Reader reader(in, static_cast<int64_t>(longest));
  std::vector<double> rollouts, signed_rollouts, logits, ranks, entities;
  for (const Question& question : questions) {
    const int64_t tokens = static_cast<int64_t>(question.ids.size()), row = tokens - 1;
    const text::TokenSpan number = question.number, city = question.city;
    // Digits are pieces of their own, so the answer begins with the token that the needle's number begins with.
    const int32_t answer = question.ids[static_cast<size_t>(number.begin)];
    analysis::KeyMass entity(analysis::span_keys({row, 1}, {city.begin, city.end - city.begin}));
    std::optional<analysis::Rollout> rollout;
    attention::Taps taps{{&entity}, {}};
    if (question.rollout && tokens <= kRolloutTokens) taps.observers.push_back(&rollout.emplace(tokens));
    const Place whole = reader.place_of(answer, question.ids, taps);
    analysis::KnockOut knock_out(*in.model, {number.begin, number.end}, {row});
    const Place cut = reader.place_of(answer, question.ids, {{}, {&knock_out}});
    logits.push_back(cut.logit - whole.logit);
    ranks.push_back(cut.rank - whole.rank);
    if (const auto share = mean_share(entity.results())) entities.push_back(*share);
    if (!rollout) continue;
    using analysis::Flow;
    rollouts.push_back(analysis::flow_share(rollout->flow(Flow::magnitude), row, number.begin, number.end));
    signed_rollouts.push_back(analysis::flow_share(rollout->flow(Flow::signed_map), row, number.begin, number.end));
  }
  measures["rollout_key_share"] = {mean_of(rollouts), {rollouts}};
  measures["signed_rollout_key_share"] = {mean_of(signed_rollouts), {signed_rollouts}};
  measures["knockout_logit"] = {mean_of(logits), {logits}};
  measures["knockout_rank"] = {mean_of(ranks), {ranks}};
  measures["entity_key_mass"] = {mean_of(entities), {entities}};
}

std::vector<std::optional<double>> accuracy_without_noise(const MeasureInputs& in,
                                                          const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                                                          const std::vector<eval::NeedleTask>& tasks) {
  std::vector<std::optional<double>> accuracy(in.model->layers.size());
  for (size_t layer = 0; layer < accuracy.size(); ++layer) {
    if (!in.model->layers[layer].attention.family.has_noise()) continue;
    analysis::ScaleLambda zero(*in.model, 0, {{static_cast<int>(layer)}, {}});
    accuracy[layer] = eval::ask_needles(in.model, tokenizer, form, tasks, {}, {&zero}).accuracy.value();
  }
  return accuracy;
}

}  // namespace unchain::study
