#include "analysis/functional_rank.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "analysis/fixed_rows.h"
#include "base/check.h"
#include "model/context.h"

namespace unchain::analysis {
namespace {

void check(const model::Transformer& model, const std::vector<std::vector<int32_t>>& windows, const MeanMaps* mean,
           const FunctionalRankOptions& options) {
  for (const auto& window : windows) {
    if (window.size() < 2)
      fail(ErrorCode::usage, "functional rank: a window of {} tokens, expected at least 2", window.size());
  }
  const auto layers = static_cast<int>(model.layers.size());
  for (const int layer : options.layers) {
    if (layer < 0 || layer >= layers)
      fail(ErrorCode::usage, "functional rank: layer {}, the model has layers 0 to {}", layer, layers - 1);
  }
  const bool by_mean = std::any_of(options.methods.begin(), options.methods.end(), [](RankMethod method) {
    return method == RankMethod::mean || method == RankMethod::fixed_rows;
  });
  bool any = false;
  for (int layer = 0; layer < layers; ++layer) {
    const auto noise = model.layers[static_cast<size_t>(layer)].attention.family.noise;
    const bool there = options.part == MapPart::positive || noise != attention::NoiseMap::none;
    if (!there && options.layers.contains(layer))
      fail(ErrorCode::usage, "functional rank: layer {} has no noise map; replace its positive map", layer);
    if (!there || (!options.layers.empty() && !options.layers.contains(layer))) continue;
    any = true;
    if (by_mean && mean == nullptr)
      fail(ErrorCode::usage, "functional rank: the mean map is asked for, but no mean of other texts is given");
    if (by_mean && !mean->layers().contains(layer))
      fail(ErrorCode::usage, "functional rank: the mean of other texts has no layer {}", layer);
  }
  if (!any) fail(ErrorCode::usage, "functional rank: the model has no noise map; replace its positive map");
}

// Nats a token of the window's tokens but the first.
double mean_nll(model::Context& context, const std::vector<int32_t>& window, const attention::Taps& taps) {
  const std::span<const int32_t> ids(window);
  std::vector<double> nll(window.size() - 1);
  context.truncate(0);
  context.extend(ids.first(nll.size()), -1, &taps);
  context.nll(nll, ids.last(nll.size()));
  return std::accumulate(nll.begin(), nll.end(), 0.0) / static_cast<double>(nll.size());
}

}  // namespace

FunctionalRank functional_rank(const std::shared_ptr<const model::Transformer>& model,
                               const std::vector<std::vector<int32_t>>& windows, const MeanMaps* mean,
                               const FunctionalRankOptions& options) {
  check(*model, windows, mean, options);
  size_t longest = 1;
  for (const auto& window : windows) longest = std::max(longest, window.size());
  model::Context context(model, static_cast<int64_t>(longest));
  // Ranks above the number of tokens count as that number.
  std::vector<int64_t> ranks = options.ranks;
  ranks.push_back(std::numeric_limits<int64_t>::max());
  const attention::AttentionConfig fixed_diff = attention::preset("fixed_diff");
  const std::vector<int64_t> rows_alone = {fixed_diff.state_rank()};
  const auto ranks_of = [&](RankMethod method) -> const std::vector<int64_t>& {
    return method == RankMethod::fixed_rows ? rows_alone : ranks;
  };
  size_t done = 0, points = 0;
  for (const RankMethod method : options.methods) points += options.divide.size() * ranks_of(method).size();
  const size_t passes = windows.size() * (1 + points);
  const auto read = [&](attention::Editor* editor) {
    const attention::Taps taps{{}, editor ? std::vector{editor} : std::vector<attention::Editor*>{}};
    std::vector<double> nll;
    for (const auto& window : windows) {
      nll.push_back(mean_nll(context, window, taps));
      if (options.progress) options.progress(++done, passes);
    }
    return nll;
  };
  FunctionalRank out{options.part, read(nullptr), {}};
  for (const RankMethod method : options.methods) {
    std::vector<FixedMaps> fixed;
    FixedRows rows;
    if (method == RankMethod::mean) fixed = fixed_maps(*mean, options.part, ranks);
    if (method == RankMethod::fixed_rows) rows = fit_fixed_rows(*mean, options.part, fixed_diff.decays);
    const auto editor_of = [&](const ReplacementOptions& what, size_t r) -> std::unique_ptr<attention::Editor> {
      switch (method) {
        case RankMethod::truncated:
          return std::make_unique<OwnLowRank>(what, Approximation::truncated, ranks[r]);
        case RankMethod::fitted:
          return std::make_unique<OwnLowRank>(what, Approximation::fitted, ranks[r]);
        case RankMethod::mean:
          return std::make_unique<FixedReplacement>(what, fixed[r]);
        case RankMethod::fixed_rows:
          return std::make_unique<FixedRowsReplacement>(what, rows);
      }
      return nullptr;
    };
    for (const bool divide : options.divide) {
      for (size_t r = 0; r < ranks_of(method).size(); ++r) {
        const auto editor = editor_of({options.part, divide, options.layers, options.heads}, r);
        const int64_t rank = ranks_of(method)[r];
        const bool full = rank == std::numeric_limits<int64_t>::max();
        out.points.push_back({method, divide, full ? std::nullopt : std::optional(rank), read(editor.get())});
      }
    }
  }
  return out;
}

}  // namespace unchain::analysis
