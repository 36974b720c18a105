#include "analysis/outliers.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace unchain::analysis {
namespace {

constexpr int64_t kLogitRows = 32;  // of the vocabulary at a time

// The mean of the two middle ones where their number is even. Changes the order.
template <class T>
double median(std::vector<T>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  const auto upper = static_cast<double>(*middle);
  if (values.size() % 2 == 1) return upper;
  return (upper + static_cast<double>(*std::max_element(values.begin(), middle))) / 2;
}

struct HiddenObserver : attention::Observer {
  explicit HiddenObserver(size_t layers) : searches(layers) {}
  void on_maps(const attention::MapPanel& /*panel*/) override {}
  void on_residual(const attention::ResidualPanel& panel) override {
    searches[static_cast<size_t>(panel.layer)].add(Matrix(const_cast<float*>(panel.x), panel.rows, panel.width));
  }
  std::vector<OutlierSearch> searches;
};

}  // namespace

void OutlierSearch::add(const Matrix& a) {
  for (int64_t r = 0; r < a.rows; ++r, ++rows_) {
    magnitudes_.assign(a.f32(r), a.f32(r) + a.cols);
    for (int64_t i = 0; i < a.cols; ++i) {
      float& magnitude = magnitudes_[static_cast<size_t>(i)];
      magnitude = std::abs(magnitude);
      if (!std::isfinite(magnitude))
        fail(ErrorCode::numeric, "outliers: position {}, channel {}: not finite", rows_, i);
      if (static_cast<double>(magnitude) <= found_.largest) continue;
      found_.largest = magnitude;
      found_.position = rows_;
      found_.channel = i;
    }
    medians_.push_back(median(magnitudes_));
  }
}

Outlier OutlierSearch::result() const {
  if (medians_.empty()) fail(ErrorCode::usage, "outliers: no activations");
  Outlier found = found_;
  std::vector<double> medians = medians_;
  found.typical = median(medians);
  return found;
}

Outliers activation_outliers(model::Context& context, std::span<const int32_t> ids) {
  HiddenObserver observer(context.model().layers.size());
  const attention::Taps taps{{&observer}, {}};
  context.truncate(0);
  context.extend(ids, -1, &taps);
  Outliers outliers;
  for (const OutlierSearch& search : observer.searches) outliers.hidden.push_back(search.result());
  OutlierSearch last, logits;
  last.add(context.hidden(0, context.kept()));
  outliers.hidden.push_back(last.result());
  const int64_t vocabulary = context.model().config.vocabulary;
  std::vector<float> rows(static_cast<size_t>(std::min(kLogitRows, context.kept()) * vocabulary));
  for (int64_t first = 0; first < context.kept(); first += kLogitRows) {
    const Matrix block(rows.data(), std::min(kLogitRows, context.kept() - first), vocabulary);
    context.logits(block, first, block.rows);
    logits.add(block);
  }
  outliers.logits = logits.result();
  return outliers;
}

}  // namespace unchain::analysis
