#include "eval/needle.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "attention/maps.h"
#include "base/check.h"
#include "eval/generate.h"
#include "model/context.h"

namespace unchain::eval {
namespace {

using Ids = std::vector<int32_t>;

template <class Value>
void check_list(const std::vector<Value>& values, const char* name) {
  if (values.empty()) fail(ErrorCode::usage, "needle: no {} are given", name);
  for (auto at = values.begin(); at != values.end(); ++at) {
    if (std::find(values.begin(), at, *at) != at) fail(ErrorCode::usage, "needle: {} {} is given twice", name, *at);
  }
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// How much of the last row's weight lies on some tokens.
class ShareOnSpan : public attention::Observer {
 public:
  explicit ShareOnSpan(text::TokenSpan span) : span_(span) {}
  void on_maps(const attention::MapPanel& panel) override {
    const auto layer = static_cast<size_t>(panel.layer);
    if (shares_.size() <= layer) shares_.resize(layer + 1);
    shares_[layer].assign(static_cast<size_t>(panel.heads), 0);
    const int64_t row = panel.rows - 1;
    std::vector<float> weights(static_cast<size_t>(panel.keys));
    for (int h = 0; h < panel.heads; ++h) {
      panel.signed_row(h, row, weights.data());
      double all = 0, on_span = 0;
      for (int64_t j = panel.first_key(row); j < panel.keys; ++j) {
        const double weight = std::abs(weights[static_cast<size_t>(j)]);
        all += weight;
        if (j >= span_.begin && j < span_.end) on_span += weight;
      }
      shares_[layer][static_cast<size_t>(h)] = all > 0 ? on_span / all : 0;
    }
  }
  std::vector<std::vector<double>> take() { return std::move(shares_); }

 private:
  text::TokenSpan span_;
  std::vector<std::vector<double>> shares_;
};

// The tokens between a question and the first digit of its answer: none, or a blank.
Ids lead(const tokenizer::Tokenizer& tokenizer, text::NeedleForm form, const text::Needle& needle) {
  const std::string question = text::needle_question(form, needle.city);
  const std::string whole = question + text::needle_answer(form, needle.number);
  const Ids ids = tokenizer.encode(whole);
  const std::vector<size_t> ends = text::token_ends(tokenizer, whole, ids);
  const size_t digit = whole.find_first_of("0123456789", question.size());
  Ids result;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ends[i] > question.size() && ends[i] <= digit) result.push_back(ids[i]);
  }
  return result;
}

// One model, one context, one prompt after another.
class Asker {
 public:
  Asker(const std::shared_ptr<const model::Transformer>& model, const tokenizer::Tokenizer& tokenizer,
        text::NeedleForm form, int64_t capacity, const std::vector<attention::Editor*>& editors)
      : tokenizer_(tokenizer),
        form_(form),
        edited_{{}, editors},
        context_(model, capacity),
        logits_(static_cast<size_t>(model->config.vocabulary)) {}

  NeedleSample ask(const text::NeedlePrompt& prompt) {
    NeedleSample sample{prompt.depth, static_cast<int64_t>(prompt.ids.size()), {}};
    context_.truncate(0);
    Ids unread = prompt.ids;
    for (size_t q = 0; q < prompt.asked.size(); ++q) {
      if (q > 0) unread.insert(unread.end(), prompt.questions[q - 1].begin(), prompt.questions[q - 1].end());
      sample.answers.push_back(answer(unread, prompt.asked[q], prompt.numbers[q], prompt.answer_tokens));
    }
    return sample;
  }

 private:
  // `unread` ends with the question; afterwards it holds what the context has not read of the answer.
  NeedleAnswer answer(Ids& unread, const text::Needle& asked, text::TokenSpan number, int64_t room) {
    NeedleAnswer result{asked, "", false, {}};
    const Ids before_digit = lead(tokenizer_, form_, asked);
    const int32_t last = unread.back();
    const size_t skipped = tokenizer_.decode({last}).size();
    if (unread.size() > 1) context_.extend(std::span(unread).first(unread.size() - 1), 1, edited());
    Ids words = {last};  // decoded behind the question's end, since some tokenizers drop a blank at the beginning
    unread = {last};
    bool watching = true;
    while (static_cast<int64_t>(words.size()) <= room) {
      const size_t said = words.size() - 1;
      const bool digit_next = watching && said == before_digit.size();
      if (digit_next) watching = false;
      read(unread, digit_next ? &result.attention : nullptr, number);
      unread.clear();
      context_.logits(Matrix(logits_.data(), 1, static_cast<int64_t>(logits_.size())), 0, 1);
      const int32_t next = sample(logits_, {}, rng_);
      if (watching && next != before_digit[said]) {
        const int64_t position = context_.position();
        read(Ids(before_digit.begin() + static_cast<int64_t>(said), before_digit.end()), &result.attention, number);
        context_.truncate(position);
        watching = false;
      }
      const bool digits = std::any_of(result.text.begin(), result.text.end(), is_digit);
      if (std::find(tokenizer_.stops.begin(), tokenizer_.stops.end(), next) != tokenizer_.stops.end()) break;
      words.push_back(next);
      std::string text = tokenizer_.decode(words).substr(skipped);
      // The next question begins with a line end of its own.
      if (digits && text.find('\n', result.text.size()) != std::string::npos) break;
      result.text = std::move(text);
      unread = {next};
      if (is_over(result.text)) break;
    }
    result.right = text::is_right_answer(result.text, asked.number);
    return result;
  }

  // Whether a run of digits has begun and ended.
  static bool is_over(const std::string& text) {
    const auto first = std::find_if(text.begin(), text.end(), is_digit);
    return std::find_if_not(first, text.end(), is_digit) != text.end();
  }

  // Reads on; of the last token's row the shares are taken where they are asked for.
  void read(const Ids& ids, std::vector<std::vector<double>>* attention, text::TokenSpan span) {
    if (!attention) return context_.extend(ids, 1, edited());
    if (ids.size() > 1) context_.extend(std::span(ids).first(ids.size() - 1), 1, edited());
    ShareOnSpan observer(span);
    const attention::Taps taps{{&observer}, edited_.editors};
    context_.extend(std::span(ids).last(1), 1, &taps);
    *attention = observer.take();
  }

  // Without editors nothing is tapped, since then all rows would be computed.
  const attention::Taps* edited() const { return edited_.editors.empty() ? nullptr : &edited_; }

  const tokenizer::Tokenizer& tokenizer_;
  text::NeedleForm form_;
  attention::Taps edited_;
  model::Context context_;
  std::vector<float> logits_;
  Rng rng_{0};  // of greedy sampling: unused
};

int64_t tokens_of(const text::NeedlePrompt& prompt) {
  auto tokens =
      static_cast<int64_t>(prompt.ids.size()) + prompt.answer_tokens * static_cast<int64_t>(prompt.asked.size());
  for (const Ids& question : prompt.questions) tokens += static_cast<int64_t>(question.size());
  return tokens;
}

}  // namespace

std::vector<NeedleTask> plan_needles(const tokenizer::Tokenizer& tokenizer, const text::Haystack& haystack,
                                     const NeedleOptions& options) {
  check_list(options.lengths, "lengths");
  check_list(options.depths, "depths");
  if (options.samples < 1) fail(ErrorCode::usage, "needle: {} samples, expected 1 or more", options.samples);
  std::vector<NeedleTask> tasks;
  for (const int64_t length : options.lengths) {
    for (const double depth : options.depths) {
      NeedleTask& task = tasks.emplace_back(NeedleTask{length, depth, {}});
      const text::NeedlePromptOptions prompt = {options.form,    length, options.needles,
                                                options.queries, depth,  options.seed};
      for (int64_t sample = 0; sample < options.samples; ++sample)
        task.prompts.push_back(text::make_needle_prompt(tokenizer, haystack, prompt, static_cast<uint64_t>(sample)));
    }
  }
  return tasks;
}

NeedleResult ask_needles(const std::shared_ptr<const model::Transformer>& model, const tokenizer::Tokenizer& tokenizer,
                         text::NeedleForm form, const std::vector<NeedleTask>& tasks,
                         const std::function<void(size_t, size_t)>& progress,
                         const std::vector<attention::Editor*>& editors) {
  int64_t longest = 1, total = 0;
  for (const NeedleTask& task : tasks) {
    for (const text::NeedlePrompt& prompt : task.prompts) {
      longest = std::max(longest, tokens_of(prompt));
      total += tokens_of(prompt);
    }
  }
  Asker asker(model, tokenizer, form, longest, editors);
  NeedleResult result;
  const auto start = std::chrono::steady_clock::now();
  for (const NeedleTask& task : tasks) {
    NeedleCell& cell = result.cells.emplace_back(NeedleCell{task.length, task.depth, {}, {}, {}});
    for (const text::NeedlePrompt& prompt : task.prompts) {
      const NeedleSample& sample = cell.samples.emplace_back(asker.ask(prompt));
      cell.first.add(sample.answers[0].right);
      for (const NeedleAnswer& answer : sample.answers) {
        cell.all.add(answer.right);
        result.accuracy.add(answer.right);
      }
      result.tokens_read += tokens_of(prompt);
      if (progress) progress(static_cast<size_t>(result.tokens_read), static_cast<size_t>(total));
    }
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::vector<int32_t> first_digit_context(const tokenizer::Tokenizer& tokenizer, text::NeedleForm form,
                                         const text::NeedlePrompt& prompt) {
  Ids ids = prompt.ids;
  const Ids blank = lead(tokenizer, form, prompt.asked[0]);
  ids.insert(ids.end(), blank.begin(), blank.end());
  return ids;
}

double mean_attention(const NeedleAnswer& answer) {
  double sum = 0;
  size_t heads = 0;
  for (const std::vector<double>& layer : answer.attention) {
    for (const double share : layer) sum += share;
    heads += layer.size();
  }
  return heads > 0 ? sum / static_cast<double>(heads) : 0;
}

}  // namespace unchain::eval
