#include "analysis/window_loss.h"

#include <algorithm>

#include "analysis/row_measures.h"
#include "base/check.h"

namespace unchain::analysis {
namespace {

int64_t longest(const TokenWindows& windows) {
  if (windows.empty()) fail(ErrorCode::usage, "loss over windows: no window given");
  size_t most = 0;
  for (size_t w = 0; w < windows.size(); ++w) {
    if (windows[w].size() < 2)
      fail(ErrorCode::usage, "loss over windows: window {} has {} tokens, expected 2 at least", w, windows[w].size());
    most = std::max(most, windows[w].size());
  }
  return static_cast<int64_t>(most);
}

}  // namespace

WindowLoss::WindowLoss(std::shared_ptr<const model::Transformer> model, TokenWindows windows)
    : windows_(std::move(windows)), context_(std::move(model), longest(windows_)) {}

std::optional<double> WindowLoss::of_window(size_t window, const attention::Taps& taps, Scored scored) {
  const std::span<const int32_t> ids(windows_[window]);
  // The prediction of the last token is of no use here, so it is not computed.
  const size_t rows = ids.size() - 1;
  std::vector<int32_t> targets(ids.begin() + 1, ids.end());
  auto count = static_cast<int64_t>(rows);
  if (scored == Scored::induction) {
    const InductionTargets induction(ids);
    for (size_t i = 0; i < rows; ++i) {
      if (!induction.keys(static_cast<int64_t>(i)).empty()) continue;
      targets[i] = -1;
      --count;
    }
  }
  if (count == 0) return std::nullopt;
  context_.truncate(0);
  context_.extend(ids.first(rows), -1, &taps);
  std::vector<double> nll(rows);
  context_.nll(nll, targets);
  double sum = 0;
  for (const double x : nll) sum += x;
  return sum / static_cast<double>(count);
}

double WindowLoss::mean(const attention::Taps& taps) {
  double sum = 0, tokens = 0;
  for (size_t w = 0; w < windows_.size(); ++w) {
    const auto scored = static_cast<double>(windows_[w].size() - 1);
    sum += *of_window(w, taps) * scored;
    tokens += scored;
  }
  return sum / tokens;
}

}  // namespace unchain::analysis
