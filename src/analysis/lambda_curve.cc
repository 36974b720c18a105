#include "analysis/lambda_curve.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "analysis/edits.h"
#include "base/check.h"

namespace unchain::analysis {
namespace {

constexpr double kStep = 0.25;
constexpr size_t kPoints = 9;  // 0 … 2

LambdaCurve curve_of(WindowLoss& loss, const Where& where, double tolerance) {
  return lambda_curve(
      [&](double m) {
        ScaleLambda scale(loss.model(), m, where);
        return loss.mean({{}, {&scale}});
      },
      tolerance);
}

}  // namespace

LambdaCurve lambda_curve(const std::function<double(double m)>& loss, double tolerance) {
  if (!(tolerance > 0 && tolerance <= kStep))
    fail(ErrorCode::usage, "λ curve: tolerance {}, expected more than 0 and at most {}", tolerance, kStep);
  LambdaCurve curve;
  const auto value = [&](double m) {
    const double at_m = loss(m);
    if (!std::isfinite(at_m)) fail(ErrorCode::numeric, "λ curve: the loss at m = {} is {}", m, at_m);
    return at_m;
  };
  // Pass 1: the grid, and the best point of it.
  for (size_t i = 0; i < kPoints; ++i) {
    curve.m.push_back(kStep * static_cast<double>(i));
    curve.loss.push_back(value(curve.m.back()));
  }
  const auto best = static_cast<size_t>(std::min_element(curve.loss.begin(), curve.loss.end()) - curve.loss.begin());
  curve.best_m = curve.m[best];
  curve.best_loss = curve.loss[best];
  curve.loss_at_one = curve.loss[4];
  curve.slope_at_one = (curve.loss[2] - 8 * curve.loss[3] + 8 * curve.loss[5] - curve.loss[6]) / (12 * kStep);
  // Pass 2: golden section between its neighbours.
  const double golden = std::numbers::phi - 1;
  double low = curve.m[best > 0 ? best - 1 : 0], high = curve.m[std::min(best + 1, kPoints - 1)];
  const auto tried = [&](double m) {
    const double at_m = value(m);
    if (at_m < curve.best_loss) {
      curve.best_loss = at_m;
      curve.best_m = m;
    }
    return at_m;
  };
  double left = high - golden * (high - low), right = low + golden * (high - low);
  double at_left = tried(left), at_right = tried(right);
  while (high - low > tolerance) {
    if (at_left < at_right) {
      high = right;
      right = left;
      at_right = at_left;
      left = high - golden * (high - low);
      at_left = tried(left);
    } else {
      low = left;
      left = right;
      at_left = at_right;
      right = low + golden * (high - low);
      at_right = tried(right);
    }
  }
  curve.at_border = curve.best_m == curve.m.front() || curve.best_m == curve.m.back();
  return curve;
}

LambdaCurves lambda_curves(WindowLoss& loss, CurvesOf what, double tolerance) {
  LambdaCurves curves;
  curves.model = curve_of(loss, {}, tolerance);
  if (what == CurvesOf::model) return curves;
  const ChosenHeads with_noise(loss.model(), {}, true);
  for (int layer = 0; layer < static_cast<int>(loss.model().layers.size()); ++layer) {
    if (!with_noise.has(layer)) continue;
    curves.layers.push_back({layer, curve_of(loss, {{layer}, {}}, tolerance), {}});
    for (const int head : with_noise.heads(layer)) {
      if (what == CurvesOf::heads) curves.layers.back().heads.push_back(curve_of(loss, {{layer}, {head}}, tolerance));
    }
  }
  return curves;
}

}  // namespace unchain::analysis
