#include "analysis/functional_rank.h"

#include <algorithm>
#include <limits>
#include <numeric>

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
  const bool by_mean =
      std::find(options.methods.begin(), options.methods.end(), RankMethod::mean) != options.methods.end();
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
  size_t done = 0;
  const size_t passes = windows.size() * (1 + options.methods.size() * options.divide.size() * ranks.size());
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
    std::vector<FixedMaps> fixed(ranks.size());
    if (method == RankMethod::mean) fixed = fixed_maps(*mean, options.part, ranks);
    for (const bool divide : options.divide) {
      for (size_t r = 0; r < ranks.size(); ++r) {
        const ReplacementOptions what{options.part, divide, options.layers, options.heads};
        std::unique_ptr<attention::Editor> editor;
        if (method == RankMethod::mean) {
          editor = std::make_unique<FixedReplacement>(what, fixed[r]);
        } else {
          const auto approximation = method == RankMethod::fitted ? Approximation::fitted : Approximation::truncated;
          editor = std::make_unique<OwnLowRank>(what, approximation, ranks[r]);
        }
        const auto rank = r + 1 < ranks.size() ? std::optional(ranks[r]) : std::nullopt;
        out.points.push_back({method, divide, rank, read(editor.get())});
      }
    }
  }
  return out;
}

}  // namespace unchain::analysis
