// The loss along λ → m·λ: is the λ that a model has the best one, given all else? At a minimum that training has found
// the slope at m = 1 is 0 whatever λ is good for, so this describes; runs with λ held judge. docs/analyses/lambda.md.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "analysis/window_loss.h"

namespace unchain::analysis {

// Values are of the loss's unit; those of lambda_curves() in nats a token.
struct LambdaCurve {
  std::vector<double> m, loss;  // at m = 0, 0.25 … 2
  double best_m = 1;            // of all that were tried, the grid and the golden section in the best bracket of it
  double best_loss = 0;
  bool at_border = false;  // best_m is 0 or 2: the minimum may lie beyond
  double loss_at_one = 0;
  double slope_at_one = 0;  // d loss/d m at m = 1, five points of the grid: exact for polynomials to degree 4
};

// The curve of any loss. The golden section halves nothing finer than `tolerance` in m, and finds the minimum of the
// bracket where the loss has one only in it. Calls: 9, and 2 + log₁.₆₁₈(0.5/tolerance) at most. Errors: usage
// (tolerance outside (0, 0.25]); numeric (a loss that is not finite, with m); whatever `loss` throws. Sources: golden
// section: Kiefer, Proc. AMS 4 (1953); the slope: the central difference of fourth order.
LambdaCurve lambda_curve(const std::function<double(double m)>& loss, double tolerance = 0.01);

struct LayerCurves {
  int layer = 0;
  LambdaCurve layer_curve;         // λ of all heads of this layer
  std::vector<LambdaCurve> heads;  // of one head; empty unless asked for
};

struct LambdaCurves {
  LambdaCurve model;                // λ of all layers and heads together
  std::vector<LayerCurves> layers;  // those with a noise term; empty unless asked for
};

enum class CurvesOf { model, layers, heads };  // each with what stands before it

// The curves of the mean NLL (nats a token) over the windows; about 18 passes over all of them for each. Errors: as
// WindowLoss; usage (no layer has a noise term).
LambdaCurves lambda_curves(WindowLoss& loss, CurvesOf what, double tolerance = 0.01);

}  // namespace unchain::analysis
