// How a training run went, from its metrics.jsonl (docs/training.md): curves, leaps of the loss, and whether it still
// fell at the end. What it tells: docs/analyses/dynamics.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unchain::analysis {

inline constexpr size_t kCurvePoints = 200;
// Losses that differ by less are taken as equal: 0.2 % of a perplexity.
inline constexpr double kFlatNats = 0.002;

// At most kCurvePoints points, in the order of steps. A point is the mean over neighbouring steps that have the value,
// as many in each point but for one; empty if no step has it.
struct Curve {
  std::vector<double> steps, values;
};

// The least-squares line through the losses of the last tenth of a run.
struct Ending {
  double slope_nats = 0;  // change of the loss in a tenth of the run
  double error_nats = 0;  // standard error of that
  bool is_flat = false;   // |slope| < 2 errors or < kFlatNats: no fall is seen, or none that counts
};

struct TrainingDynamics {
  int64_t first_step = 0, last_step = 0;
  Curve loss_nats;
  Curve gradient_norm;                          // before clipping
  std::map<std::string, Curve> gradient_norms;  // by group of parameters
  std::map<std::string, Curve> update_ratios;   // ‖change of the weights in a step‖/‖weights‖, by group
  std::vector<Curve> lambda;                    // by layer, mean over its heads; empty where there is none
  int64_t loss_spikes = 0;                      // of SpikeDetector (base/spikes.h)
  std::optional<Ending> ending;                 // absent if the last tenth has fewer than ten steps
};

// `metrics`: the text of a metrics.jsonl, a JSON object a line, steps ascending; `where` names it in messages. Each
// line has step and loss_nats; what else a curve needs may be missing, or null. Errors, with the line: format (no JSON;
// a key is missing or of another kind; steps that do not ascend; layers that change in number; no line at all).
TrainingDynamics training_dynamics(std::string_view metrics, const std::string& where);

}  // namespace unchain::analysis
