#include "study/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "analysis/analyzer.h"
#include "analysis/results_json.h"
#include "analysis/summary.h"
#include "base/check.h"
#include "model/context.h"
#include "model/decoding_cost.h"

namespace unchain::study {
namespace {

using nlohmann::ordered_json;

void add(Units& units, const std::string& measure, const char* unit, std::optional<double> value) {
  UnitValues& to = units[measure];
  to.unit = unit;
  to.values.push_back(value);
}

std::optional<double> mean_of(const std::optional<analysis::Summary>& summary) {
  return summary ? std::optional(summary->mean) : std::nullopt;
}

void add_maps(Units& units, const analysis::AnalysisResults& results, const analysis::Selection& selection) {
  constexpr std::array<const char*, analysis::kMapKinds> kPrefixes = {"", "a1_", "a2_"};
  for (size_t kind = 0; kind < analysis::kMapKinds; ++kind) {
    for (size_t m = 0; m < analysis::kMeasureCount; ++m) {
      const analysis::MeasureInfo& info = analysis::info(static_cast<analysis::Measure>(m));
      if (!selection.measures[m] || (kind > 0 && !info.of_parts)) continue;
      add(units, kPrefixes[kind] + std::string(info.name), "window", mean_of(results.summary[kind][m]));
    }
  }
  add(units, "lambda", "window", mean_of(results.lambda));
  if (!selection.redundancy) return;
  add(units, "cosine_distance", "window", mean_of(results.cosine_distance));
  add(units, "cka", "window", mean_of(results.cka));
}

constexpr int64_t kFewestTokens = 8;  // in front of a token, of the first stretch of loss_by_context

// Of the tokens behind the first, which BOS or the part's beginning foretells.
void add_predictions(ComparedModel& compared, model::Context& context, const std::vector<int32_t>& ids, size_t bytes,
                     std::vector<float>& row) {
  Units& units = compared.units;
  std::vector<int32_t> targets(ids.begin() + 1, ids.end());
  targets.push_back(-1);
  std::vector<double> nll(targets.size());
  context.nll(nll, targets);
  double nats = 0, wrong = 0;
  for (const double x : nll) nats += x;
  const auto predicted = static_cast<int64_t>(ids.size()) - 1;
  row.resize(static_cast<size_t>(context.model().config.vocabulary));
  for (int64_t t = 0; t < predicted; ++t) {
    context.logits(Matrix(row.data(), 1, static_cast<int64_t>(row.size())), t, 1);
    wrong += std::max_element(row.begin(), row.end()) - row.begin() != targets[static_cast<size_t>(t)];
  }
  compared.nats += nats;
  compared.tokens += predicted;
  add(units, "loss_nats", "window", nats / static_cast<double>(predicted));
  add(units, "bits_per_byte", "window", nats / std::numbers::ln2 / static_cast<double>(bytes));
  add(units, "token_error", "window", wrong / static_cast<double>(predicted));
  // nll[t] is of the token with t + 1 others in front of it.
  for (int64_t n = kFewestTokens; n <= predicted + 1; n *= 2) {
    const auto first = nll.begin() + n / 2 - 1, end = nll.begin() + n - 1;
    compared.loss_by_context[n].push_back(std::accumulate(first, end, 0.0) / static_cast<double>(end - first));
  }
}

ordered_json model_json(const ComparedModel& model, analysis::Bootstrap& bootstrap) {
  ordered_json measures = ordered_json::object();
  for (const auto& [name, units] : model.units) {
    const auto summary = bootstrap.summarise(units.values);
    ordered_json& out = measures[name] = analysis::summary_json(summary, name);  // null: does not apply
    if (summary) out.update({{"unit", units.unit}, {"units", summary->windows}});
  }
  ordered_json growth = ordered_json::array();
  const auto windows = model.units.find("loss_nats");
  for (const auto& [length, losses] : model.loss_by_context) {
    if (losses.size() < windows->second.values.size()) continue;
    const model::DecodingCost cost = model::decoding_cost(*model.model, length);
    growth.push_back(
        {{"tokens", length},
         {"loss_nats", analysis::summary_json(bootstrap.summarise({losses.begin(), losses.end()}), "loss")},
         {"cache_numbers", cost.cache_numbers},
         {"state_numbers", cost.state_numbers},
         {"multiply_adds", cost.multiply_adds}});
  }
  const auto tokens = static_cast<double>(model.tokens);
  return {{"name", model.name},
          {"tokens", model.tokens},
          {"perplexity", model.tokens > 0 ? ordered_json(std::exp(model.nats / tokens)) : ordered_json()},
          {"measures", measures},
          {"growth", growth}};
}

}  // namespace

std::vector<std::string> cut_text(const tokenizer::Tokenizer& tokenizer, const std::string& text, int64_t tokens,
                                  int64_t windows) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const auto whole = static_cast<int64_t>(ids.size()) / tokens;
  if (whole < 1)
    fail(ErrorCode::usage, "the text has {} tokens, a window needs {}; give a smaller --window", ids.size(), tokens);
  std::vector<std::string> parts;
  for (int64_t w = 0; w < std::min(whole, windows); ++w) {
    const auto first = ids.begin() + w * tokens;
    std::vector<int32_t> part(first, first + tokens);
    parts.push_back(tokenizer.decode(part));
  }
  return parts;
}

void compare_windows(ComparedModel& compared, const std::vector<std::string>& parts,
                     const analysis::Selection& selection, uint64_t seed, const CompareProgress& progress) {
  std::vector<std::vector<int32_t>> windows;
  size_t longest = 0;
  for (const std::string& part : parts) {
    windows.push_back(compared.tokenizer->encode_with_bos(part));
    if (windows.back().size() < 4)
      fail(ErrorCode::usage, "{}: a window of {} tokens, expected at least 4", compared.name, windows.back().size());
    longest = std::max(longest, windows.back().size());
  }
  model::Context context(compared.model, static_cast<int64_t>(longest));
  const size_t layers = compared.model->layers.size();
  std::vector<float> row;
  for (size_t w = 0; w < windows.size(); ++w) {
    const std::vector<int32_t>& ids = windows[w];
    analysis::AnalysisOptions options;
    options.selection = selection;
    options.seed = seed;
    options.excerpt_tokens = 0;
    options.progress = [&](int64_t, int layer) {
      if (progress) progress(w * layers + static_cast<size_t>(layer) + 1, windows.size() * layers);
    };
    analysis::MapAnalyzer analyzer(options);
    const attention::Taps taps{{&analyzer}, {}};
    analyzer.begin_window(static_cast<int64_t>(ids.size()), ids);
    context.truncate(0);
    context.extend(ids, -1, &taps);
    analyzer.end_window();
    add_predictions(compared, context, ids, parts[w].size(), row);
    add_maps(compared.units, analyzer.results(), selection);
  }
}

void compare_needles(ComparedModel& compared, const eval::NeedleOptions& options, const CompareProgress& progress) {
  const text::Haystack haystack;
  const auto tasks = eval::plan_needles(*compared.tokenizer, haystack, options);
  const auto result = eval::ask_needles(compared.model, *compared.tokenizer, options.form, tasks, progress);
  for (const eval::NeedleCell& cell : result.cells) {
    for (const eval::NeedleSample& sample : cell.samples) {
      double right = 0, attention = 0;
      for (const eval::NeedleAnswer& answer : sample.answers) {
        right += answer.right;
        attention += eval::mean_attention(answer);
      }
      const auto asked = static_cast<double>(sample.answers.size());
      add(compared.units, "needle_accuracy", "prompt", right / asked);
      add(compared.units, "needle_attention", "prompt", attention / asked);
    }
  }
}

void compare_choices(ComparedModel& compared, const eval::ChoiceSet& questions, eval::ChoiceTemplate form,
                     const CompareProgress& progress) {
  const auto items = eval::encode_choices(*compared.tokenizer, questions, form, "--choice");
  const auto result = eval::score_choices(compared.model, items, questions.last_words, progress);
  for (const eval::ItemResult& item : result.items) {
    if (questions.last_words) {
      add(compared.units, "last_word_accuracy", "question", item.options[0].likeliest ? 1 : 0);
    } else {
      add(compared.units, "choice_accuracy", "question", item.chosen == item.answer ? 1 : 0);
      add(compared.units, "choice_accuracy_per_byte", "question", item.chosen_per_byte == item.answer ? 1 : 0);
    }
    add(compared.units, "answer_nll_nats", "question", -item.options[item.answer].log_likelihood);
  }
}

ordered_json comparison_json(const std::vector<ComparedModel>& models, uint64_t seed) {
  analysis::Bootstrap bootstrap(seed);
  ordered_json out = {{"models", ordered_json::array()}, {"paired", ordered_json::array()}};
  for (const ComparedModel& model : models) out["models"].push_back(model_json(model, bootstrap));
  const ComparedModel& first = models.front();
  for (size_t m = 1; m < models.size(); ++m) {
    for (const auto& [name, units] : models[m].units) {
      const auto found = first.units.find(name);
      if (found == first.units.end() || found->second.values.size() != units.values.size()) continue;
      std::vector<std::optional<double>> differences;
      for (size_t u = 0; u < units.values.size(); ++u) {
        const auto &a = found->second.values[u], &b = units.values[u];
        differences.push_back(a && b ? std::optional(*b - *a) : std::nullopt);
      }
      const auto summary = bootstrap.summarise(differences);
      if (!summary) continue;
      ordered_json& pair = out["paired"].emplace_back(ordered_json{{"measure", name},
                                                                   {"unit", units.unit},
                                                                   {"model", models[m].name},
                                                                   {"against", first.name},
                                                                   {"units", summary->windows}});
      pair.update(analysis::summary_json(summary, name));
      pair["difference"] = summary->mean;
      pair.erase("mean");
    }
  }
  return out;
}

}  // namespace unchain::study
