// Functional rank: how much a model loses when one of its maps is replaced by one of rank R, in nats a token, for R =
// 0, 1, 2 … and all. Methods, protocol, how to read it: docs/analyses/functional-rank.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "analysis/mean_map.h"
#include "analysis/replacement.h"
#include "model/transformer.h"

namespace unchain::analysis {

// What stands in place of the map: this text's map truncated, or fitted; the mean map of other texts, fitted; or the
// mixture of fixed_diff's rows nearest to that mean (fixed_rows.h), which has the one rank that these rows have.
enum class RankMethod : uint8_t { truncated, fitted, mean, fixed_rows };

struct FunctionalRankOptions {
  MapPart part = MapPart::noise;
  std::vector<RankMethod> methods = {RankMethod::truncated, RankMethod::fitted, RankMethod::mean};
  std::vector<bool> divide = {false, true};               // rows as they fall, and over their sums
  std::vector<int64_t> ranks = {0, 1, 2, 3, 5, 8, 16};    // the full rank follows them
  std::set<int> layers, heads;                            // as in ReplacementOptions
  std::function<void(size_t done, size_t all)> progress;  // passes over a window; may be empty
};

struct FunctionalRankPoint {
  RankMethod method = RankMethod::truncated;
  bool divided = false;
  std::optional<int64_t> rank;   // absent: full
  std::vector<double> nll_nats;  // of each window, mean over its tokens but the first
};

struct FunctionalRank {
  MapPart part = MapPart::noise;
  std::vector<double> nll_nats;  // of each window with nothing replaced
  std::vector<FunctionalRankPoint> points;
};

// Reads every window (ids, the last of which is only predicted) once as the model is and once for each method, way of
// dividing and rank, with all chosen layers replaced at once. `mean`: of other texts, of all these layers and as many
// positions as the windows have rows (tokens − 1) or more; nullptr where the first two methods alone are asked for.
// Work: besides the passes, a decomposition a head, layer, window and rank of the first two methods; memory of the
// third: N² f64 numbers twice a head and layer. Errors: usage (a window of fewer than two tokens, no map to replace, a
// layer that is not there or not in the mean); as the editors and Context.
FunctionalRank functional_rank(const std::shared_ptr<const model::Transformer>& model,
                               const std::vector<std::vector<int32_t>>& windows, const MeanMaps* mean,
                               const FunctionalRankOptions& options = {});

}  // namespace unchain::analysis
