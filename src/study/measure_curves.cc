// What the loss becomes along one number: src/study/measure.h.
#include <algorithm>

#include "analysis/functional_rank.h"
#include "study/measure.h"
#include "study/measure_windows.h"
#include "study/statistics.h"

namespace unchain::study {
namespace {

// Of each text: fitting maps takes long, and pictures need less than verdicts do.
constexpr int64_t kCurveWindows = 1;

std::vector<RankLoss> rank_losses(const MeasureInputs& in, const std::vector<Ids>& windows,
                                  const analysis::MeanMaps& calibration, analysis::MapPart part,
                                  std::optional<double>& rows) {
  analysis::FunctionalRankOptions options;
  options.part = part;
  options.methods = {analysis::RankMethod::fitted, analysis::RankMethod::mean, analysis::RankMethod::fixed_rows};
  options.divide = {true};
  const auto result = analysis::functional_rank(in.model, windows, &calibration, options);
  std::vector<RankLoss> losses;
  for (const analysis::FunctionalRankPoint& point : result.points) {
    const double loss = mean(point.nll_nats);
    if (point.method == analysis::RankMethod::fixed_rows)
      rows = loss;
    else
      losses.push_back({point.method == analysis::RankMethod::mean, point.rank, loss});
  }
  return losses;
}

}  // namespace

RunCurves measure_curves(const MeasureInputs& in, const analysis::MeanMaps& calibration) {
  const auto windows = all_windows(in, room(in) + 1, std::min(kCurveWindows, in.keys.windows));
  RunCurves curves;
  curves.positive = rank_losses(in, windows, calibration, analysis::MapPart::positive, curves.positive_rows);
  analysis::WindowLoss loss(in.model, windows);
  curves.loss_nats = loss.mean({});
  if (!has_noise(*in.model)) return curves;
  curves.noise = rank_losses(in, windows, calibration, analysis::MapPart::noise, curves.noise_rows);
  curves.lambda = analysis::lambda_curves(loss, analysis::CurvesOf::heads, 0.05);
  return curves;
}

}  // namespace unchain::study
