#include "eval/choice.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.h"
#include "model/context.h"

namespace unchain::eval {
namespace {

int64_t rows_of(const ChoiceTokens& item) {
  int64_t rows = item.shared;
  for (const OptionTokens& option : item.options) rows += static_cast<int64_t>(option.ids.size()) - 1 - item.shared;
  return rows;
}

bool all_likeliest(model::Context& context, std::span<const int32_t> targets, std::vector<float>& logits) {
  const int64_t vocabulary = context.model().config.vocabulary;
  logits.resize(static_cast<size_t>(vocabulary));
  for (size_t i = 0; i < targets.size(); ++i) {
    context.logits(Matrix(logits.data(), 1, vocabulary), static_cast<int64_t>(i), 1);
    if (std::max_element(logits.begin(), logits.end()) - logits.begin() != targets[i]) return false;
  }
  return true;
}

template <class Value>
size_t best(const std::vector<OptionScore>& options, const Value& value) {
  size_t result = 0;
  for (size_t i = 1; i < options.size(); ++i) {
    if (value(options[i]) > value(options[result])) result = i;
  }
  return result;
}

ItemResult score(model::Context& context, const ChoiceTokens& item, bool last_words, std::vector<float>& logits) {
  ItemResult result;
  result.id = item.id;
  result.answer = item.answer;
  context.truncate(0);
  if (item.shared > 0) context.extend(std::span(item.options[0].ids).first(static_cast<size_t>(item.shared)), 1);
  for (const OptionTokens& option : item.options) {
    // The last token predicts nothing that counts, so it is not read.
    const auto shared = static_cast<size_t>(item.shared), first = static_cast<size_t>(option.first);
    const std::span<const int32_t> ids(option.ids), targets = ids.subspan(first);
    context.truncate(item.shared);
    context.extend(ids.subspan(shared, ids.size() - 1 - shared), static_cast<int64_t>(targets.size()));
    std::vector<double> nll(targets.size());
    context.nll(nll, targets);
    OptionScore& out = result.options.emplace_back();
    for (const double x : nll) out.log_likelihood -= x;
    out.tokens = static_cast<int64_t>(targets.size());
    out.bytes = option.bytes;
    if (last_words) out.likeliest = all_likeliest(context, targets, logits);
  }
  result.chosen = best(result.options, [](const OptionScore& o) { return o.log_likelihood; });
  result.chosen_per_byte =
      best(result.options, [](const OptionScore& o) { return o.log_likelihood / static_cast<double>(o.bytes); });
  return result;
}

}  // namespace

int64_t choice_tokens(const std::vector<ChoiceTokens>& items) {
  int64_t total = 0;
  for (const ChoiceTokens& item : items) total += rows_of(item);
  return total;
}

ChoiceResult score_choices(const std::shared_ptr<const model::Transformer>& model,
                           const std::vector<ChoiceTokens>& items, bool last_words,
                           const std::function<void(size_t, size_t)>& progress) {
  size_t longest = 1;
  for (const ChoiceTokens& item : items) {
    for (const OptionTokens& option : item.options) longest = std::max(longest, option.ids.size());
  }
  model::Context context(model, static_cast<int64_t>(longest));
  const int64_t total = choice_tokens(items);
  std::vector<float> logits;
  ChoiceResult result;
  const auto start = std::chrono::steady_clock::now();
  for (const ChoiceTokens& item : items) {
    ItemResult scored = score(context, item, last_words, logits);
    result.accuracy.add(last_words ? scored.options[0].likeliest : scored.chosen == scored.answer);
    if (!last_words) result.per_byte.add(scored.chosen_per_byte == scored.answer);
    result.chance += 1 / static_cast<double>(scored.options.size());
    result.answer_nll -= scored.options[scored.answer].log_likelihood;
    result.items.push_back(std::move(scored));
    result.tokens_read += rows_of(item);
    if (progress) progress(static_cast<size_t>(result.tokens_read), static_cast<size_t>(total));
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.chance /= static_cast<double>(items.size());
  result.answer_nll /= static_cast<double>(items.size());
  return result;
}

}  // namespace unchain::eval
