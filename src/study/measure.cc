#include "study/measure.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <tuple>

#include "analysis/analyzer.h"
#include "analysis/simplex.h"
#include "base/check.h"
#include "model/context.h"
#include "study/measure_windows.h"
#include "study/statistics.h"

namespace unchain::study {
namespace {

using analysis::LayerResults;
using analysis::MapKind;
using analysis::Measure;

std::string text_name(size_t text) {
  return fmt::format("validation text {}", text + 1);
}

// Calls body(text, ids) for the windows of each text.
void for_windows(const MeasureInputs& in, int64_t count, int64_t most,
                 const std::function<void(size_t text, const Ids& ids)>& body) {
  for (size_t text = 0; text < in.texts.size(); ++text) {
    for (const Ids& ids : even_windows(in.texts[text], in.bos, count, most, text_name(text))) body(text, ids);
  }
}

void add_window(Measures& measures, const std::string& name, size_t text, Window window) {
  auto& windows = measures[name].windows;
  windows.resize(std::max(windows.size(), text + 1));
  windows[text].push_back(std::move(window));
}

// Positions 1 … of `ids` whose token completes a sequence of three that the window held before.
std::vector<bool> completes_trigram(const Ids& ids) {
  std::vector<bool> completes(ids.size(), false);
  std::set<std::tuple<int32_t, int32_t, int32_t>> seen;
  for (size_t i = 2; i < ids.size(); ++i) completes[i] = !seen.emplace(ids[i - 2], ids[i - 1], ids[i]).second;
  return completes;
}

double share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

// The measures of one window's maps that are means over layers and heads, with the names that claims give them.
struct MeanMeasure {
  const char* name;
  MapKind kind;
  Measure measure;
};
constexpr MeanMeasure kMeans[] = {
    {"entropy_normalised", MapKind::map, Measure::entropy_normalised},
    {"a1_entropy_normalised", MapKind::positive, Measure::entropy_normalised},
    {"top_mass_5", MapKind::map, Measure::top_mass_5},
    {"negative_mass", MapKind::map, Measure::negative_mass},
    {"negative_share", MapKind::map, Measure::negative_share},
};
// Those that are medians.
constexpr MeanMeasure kMedians[] = {
    {"a2_block_rank_entropy", MapKind::noise, Measure::block_rank_entropy},
    {"a2_block_rank_entropy_squared", MapKind::noise, Measure::block_rank_entropy_squared},
    {"a2_block_rank_stable", MapKind::noise, Measure::block_rank_stable},
    {"a2_block_rank_r90", MapKind::noise, Measure::block_rank_r90},
    {"a1_block_rank_entropy", MapKind::positive, Measure::block_rank_entropy},
};
// Of one window's results. A map without a noise term is its own positive map.
std::vector<double> values_of(const analysis::AnalysisResults& results, const MeanMeasure& measure) {
  std::vector<double> values;
  for (const LayerResults& layer : results.layers) {
    const MapKind kind = measure.kind == MapKind::positive && !layer.noise ? MapKind::map : measure.kind;
    for (const analysis::HeadResults& head : layer.heads) {
      const auto& summary = head.measures[static_cast<size_t>(kind)][static_cast<size_t>(measure.measure)];
      if (summary) values.push_back(summary->mean);
    }
  }
  return values;
}

class MapMeasures {
 public:
  explicit MapMeasures(Measures& measures) : measures_(measures) {}

  void add(size_t text, const analysis::AnalysisResults& results, const analysis::SimplexCounts& counts) {
    for (const MeanMeasure& each : kMeans) {
      const auto values = values_of(results, each);
      if (!values.empty()) add_window(measures_, each.name, text, {*mean_of(values)});
    }
    for (const MeanMeasure& each : kMedians) {
      Window values = values_of(results, each);
      if (!values.empty()) add_window(measures_, each.name, text, std::move(values));
    }
    Window cosine, cka, noise_ranks;
    for (const LayerResults& layer : results.layers) {
      if (layer.cosine_distance) cosine.push_back(layer.cosine_distance->mean);
      if (layer.cka) cka.push_back(1 - layer.cka->mean);
      add_ranks(positive_ranks_[layer.layer], layer, layer.noise ? MapKind::positive : MapKind::map);
      const auto ranks = add_ranks(noise_ranks_[layer.layer], layer, MapKind::noise);
      for (const double rank : ranks) noise_ranks.insert(noise_ranks.end(), {static_cast<double>(layer.layer), rank});
    }
    if (!cosine.empty()) add_window(measures_, "head_cosine_distance", text, {*mean_of(cosine)});
    if (!cka.empty()) add_window(measures_, "head_cka_distance", text, {*mean_of(cka)});
    if (!noise_ranks.empty()) add_window(measures_, "a2_layers_in_rank_band", text, std::move(noise_ranks));
    add_window(measures_, "row_sum_off_share", text, {share(counts.rows_off, counts.rows)});
    add_window(measures_, "raw_over_one_share", text, {share(counts.over_one, counts.entries)});
    if (counts.rescaled > 0)
      add_window(measures_, "rescaled_over_one_share", text, {share(counts.rescaled_over_one, counts.rescaled)});
    // Without an induction target in any window these do not apply.
    for (const char* name : {"non_key_small_share", "non_key_small_or_negative_share"}) measures_[name];
    if (counts.non_key > 0) {
      add_window(measures_, "non_key_small_share", text, {share(counts.small, counts.non_key)});
      add_window(measures_, "non_key_small_or_negative_share", text, {share(counts.small_or_negative, counts.non_key)});
    }
  }

  // The values over all windows.
  LayerRanks finish() {
    std::map<std::string, OverWindows> statistics = {{"a2_layers_in_rank_band", OverWindows::layers_in_rank_band}};
    for (const MeanMeasure& each : kMedians) statistics[each.name] = OverWindows::median;
    for (const auto& [name, statistic] : statistics)
      measures_[name].value = over_windows(statistic, measures_[name].windows);
    for (auto& [name, measured] : measures_)
      if (!statistics.contains(name)) measured.value = over_windows(OverWindows::mean, measured.windows);
    return {medians(positive_ranks_), medians(noise_ranks_)};
  }

 private:
  // Returns what it adds: the ranks of the layer's heads.
  static std::vector<double> add_ranks(std::vector<double>& to, const LayerResults& layer, MapKind kind) {
    std::vector<double> ranks;
    for (const analysis::HeadResults& head : layer.heads) {
      const auto& rank = head.measures[static_cast<size_t>(kind)][static_cast<size_t>(Measure::block_rank_entropy)];
      if (rank) ranks.push_back(rank->mean);
    }
    to.insert(to.end(), ranks.begin(), ranks.end());
    return ranks;
  }
  static std::vector<std::optional<double>> medians(const std::map<int, std::vector<double>>& by_layer) {
    std::vector<std::optional<double>> result;
    result.reserve(by_layer.size());
    for (const auto& [layer, ranks] : by_layer)
      result.push_back(ranks.empty() ? std::nullopt : std::optional(quantile(ranks, 0.5)));
    return result;
  }

  Measures& measures_;
  std::map<int, std::vector<double>> positive_ranks_, noise_ranks_;  // by layer
};

}  // namespace

std::vector<Ids> even_windows(const Ids& text, int32_t bos, int64_t count, int64_t most, const std::string& name) {
  const int64_t whole = static_cast<int64_t>(text.size()) / count;
  if (whole < 1) fail(ErrorCode::usage, "{}: has {} tokens, a window needs {}", name, text.size(), count);
  const int64_t windows = std::min(whole, most);
  std::vector<Ids> result;
  for (int64_t w = 0; w < windows; ++w) {
    const auto first = text.begin() + w * whole / windows * count;
    result.emplace_back(first, first + count);
    if (bos >= 0) result.back().insert(result.back().begin(), bos);
  }
  return result;
}

std::vector<Ids> all_windows(const MeasureInputs& in, int64_t count, int64_t most) {
  std::vector<Ids> windows;
  for_windows(in, count, most, [&](size_t, const Ids& ids) { windows.push_back(ids); });
  return windows;
}

Windows by_text(const MeasureInputs& in, int64_t count, int64_t most, const std::vector<Window>& windows) {
  Windows texts;
  auto next = windows.begin();
  for (const Ids& text : in.texts) {
    const auto first = next;
    next += std::min(static_cast<int64_t>(text.size()) / count, most);
    texts.emplace_back(first, next);
  }
  return texts;
}

int64_t room(const MeasureInputs& in) {
  return in.context - (in.bos >= 0 ? 1 : 0);
}

std::optional<double> mean_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(mean(values));
}

std::optional<double> mean_over_heads(const std::vector<analysis::LayerKeyMass>& layers,
                                      std::optional<double> analysis::HeadKeyMass::*figure) {
  std::vector<double> values;
  for (const analysis::LayerKeyMass& layer : layers)
    for (const analysis::HeadKeyMass& head : layer.heads)
      if (const auto& value = head.*figure) values.push_back(*value);
  return mean_of(values);
}

void observe(const MeasureInputs& in, const std::vector<Ids>& windows, attention::Observer& observer,
             const std::function<void(const Ids&)>& begin, const std::function<void()>& end) {
  model::Context context(in.model, in.context);
  const attention::Taps taps{{&observer}, {}};
  for (const Ids& ids : windows) {
    if (begin) begin(ids);
    context.truncate(0);
    context.extend(ids, 1, &taps);
    if (end) end();
  }
}

void measure_predictions(Measures& measures, const MeasureInputs& in) {
  model::Context context(in.model, in.context);
  const int64_t vocabulary = in.model->config.vocabulary;
  Buffer<float> numbers(static_cast<size_t>(in.context * vocabulary));
  // A window's last prediction is scored too, so it holds one token more than the context.
  for_windows(in, room(in) + 1, in.keys.loss_windows, [&](size_t text, const Ids& ids) {
    const auto rows = static_cast<int64_t>(ids.size()) - 1;
    const Ids targets(ids.begin() + 1, ids.end());
    context.truncate(0);
    context.extend(std::span(ids).first(static_cast<size_t>(rows)));
    std::vector<double> nll(targets.size());
    context.nll(nll, targets);
    const Matrix logits(numbers.data(), rows, vocabulary);
    context.logits(logits, 0, rows);
    const std::vector<bool> completes = completes_trigram(ids);
    int64_t wrong = 0, repeated = 0, repeated_wrong = 0;
    for (int64_t t = 0; t < rows; ++t) {
      const float* row = logits.f32(t);
      const bool miss = std::max_element(row, row + vocabulary) - row != targets[static_cast<size_t>(t)];
      wrong += miss;
      if (!completes[static_cast<size_t>(t) + 1]) continue;
      ++repeated;
      repeated_wrong += miss;
    }
    add_window(measures, "loss_nats", text, {*mean_of(nll)});
    add_window(measures, "token_error", text, {share(wrong, rows)});
    if (repeated > 0) add_window(measures, "ngram_error", text, {share(repeated_wrong, repeated)});
  });
  for (const char* name : {"loss_nats", "token_error", "ngram_error"}) {
    Measured& measured = measures[name];
    measured.value = over_windows(OverWindows::mean, measured.windows);
  }
}

void measure_last_words(Measures& measures, const MeasureInputs& in, const tokenizer::Tokenizer& tokenizer,
                        const eval::ChoiceSet& texts) {
  const auto items = eval::encode_choices(tokenizer, texts, eval::ChoiceTemplate::plain, "last words");
  const eval::ChoiceResult result = eval::score_choices(in.model, items, texts.last_words);
  Measured& measured = measures["last_word_error"];
  measured.value = 1 - result.accuracy.value();
  measured.windows.emplace_back();
  for (const eval::ItemResult& item : result.items)
    measured.windows.back().push_back({item.options[0].likeliest ? 0.0 : 1.0});
}

LayerRanks measure_maps(Measures& measures, const MeasureInputs& in) {
  model::Context context(in.model, in.context);
  Measures of_maps;
  MapMeasures sums(of_maps);
  for_windows(in, room(in), in.keys.windows, [&](size_t text, const Ids& ids) {
    analysis::AnalysisOptions options;
    options.selection = analysis::parse_selection({"rows", "block", "redundancy"});
    options.seed = in.seed;
    options.excerpt_tokens = 0;
    analysis::MapAnalyzer analyzer(options);
    analysis::SimplexObserver simplex;
    const attention::Taps taps{{&analyzer, &simplex}, {}};
    analyzer.begin_window(static_cast<int64_t>(ids.size()), ids);
    simplex.begin_window(ids);
    context.truncate(0);
    context.extend(ids, 1, &taps);
    analyzer.end_window();
    sums.add(text, analyzer.results(), simplex.total());
  });
  LayerRanks ranks = sums.finish();
  measures.merge(of_maps);
  return ranks;
}

}  // namespace unchain::study
