#include "analysis/summary.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace unchain::analysis {
namespace {

// The quantile q of sorted values, interpolated linearly between neighbours.
double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Bootstrap::Bootstrap(uint64_t seed, int resamples) : seed_(seed), resamples_(resamples) {
  if (resamples < 1) fail(ErrorCode::usage, "bootstrap: {} resamples, expected at least 1", resamples);
}

const std::vector<uint32_t>& Bootstrap::resamples_of(size_t count) {
  auto& indices = indices_[count];
  if (indices.empty()) {
    Rng rng(seed_, count);
    indices.resize(static_cast<size_t>(resamples_) * count);
    for (uint32_t& index : indices) index = static_cast<uint32_t>(rng.below(count));
  }
  return indices;
}

std::optional<Summary> Bootstrap::summarise(const std::vector<std::optional<double>>& values) {
  std::vector<double> x;
  for (const auto& value : values) {
    if (value) x.push_back(*value);
  }
  if (x.empty()) return std::nullopt;
  Summary out;
  out.windows = static_cast<int64_t>(x.size());
  for (const double v : x) out.mean += v / static_cast<double>(x.size());
  const auto [smallest, largest] = std::minmax_element(x.begin(), x.end());
  if (*smallest == *largest) {
    const double value = *smallest;
    out.mean = out.median = value;
    if (x.size() > 1) out.interval = {value, value};
    return out;
  }
  const uint32_t* index = resamples_of(x.size()).data();
  means_.resize(static_cast<size_t>(resamples_));
  for (double& mean : means_) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[*index++];
    mean = sum / static_cast<double>(x.size());
  }
  std::sort(means_.begin(), means_.end());
  out.interval = {quantile(means_, 0.025), quantile(means_, 0.975)};
  std::sort(x.begin(), x.end());
  out.median = quantile(x, 0.5);
  return out;
}

}  // namespace unchain::analysis
