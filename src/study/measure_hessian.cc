// The curvature of the loss on the way: src/study/measure.h.
#include "analysis/hessian_model.h"
#include "model/model_file.h"
#include "study/measure.h"
#include "study/measure_windows.h"

namespace unchain::study {
namespace {

// Of the training text, read at once: one fixed batch for all members and steps.
constexpr int64_t kHessianWindows = 4;

}  // namespace

std::vector<HessianPoint> measure_hessian(Measures& measures,
                                          const std::vector<std::pair<int64_t, std::filesystem::path>>& checkpoints,
                                          const MeasureInputs& in) {
  Ids inputs, targets;
  const auto windows = even_windows(in.calibration, in.bos, room(in) + 1, kHessianWindows, "training text");
  for (const Ids& ids : windows) {
    inputs.insert(inputs.end(), ids.begin(), ids.end() - 1);
    targets.insert(targets.end(), ids.begin() + 1, ids.end());
  }
  const model::TrainRows batch = {static_cast<int64_t>(windows.size()), in.context, inputs, targets, {}, {}};
  analysis::HessianOptions options;
  options.seed = in.seed;
  std::vector<HessianPoint> points;
  std::vector<double> shares, weights;
  for (const auto& [step, folder] : checkpoints) {
    model::Trainable trainable(model::ModelFile::open(folder), DType::f32);
    points.push_back({step, analysis::model_hessian(trainable, {&batch, 1}, options)});
    shares.push_back(points.back().spectrum.negative_share.mean);
    weights.push_back(points.back().spectrum.negative_weight.mean);
  }
  measures["hessian_negative_share"].value = mean_of(shares);
  measures["hessian_negative_weight"].value = mean_of(weights);
  return points;
}

}  // namespace unchain::study
