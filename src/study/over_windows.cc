#include "study/over_windows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "analysis/head_importance.h"
#include "analysis/rank_correlation.h"
#include "base/check.h"
#include "study/statistics.h"

namespace unchain::study {
namespace {

using Chosen = std::span<const Window* const>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> pooled(Chosen windows) {
  std::vector<double> all;
  for (const Window* window : windows) all.insert(all.end(), window->begin(), window->end());
  return all;
}

// Number by number, over windows that hold equally many.
std::vector<double> sums(Chosen windows) {
  std::vector<double> sum(windows.empty() ? 0 : windows[0]->size());
  for (const Window* window : windows) {
    if (window->size() != sum.size())
      fail(ErrorCode::usage, "windows: one holds {} numbers, another {}", sum.size(), window->size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += (*window)[i];
  }
  return sum;
}

std::vector<double> means(Chosen windows) {
  std::vector<double> mean = sums(windows);
  for (double& x : mean) x /= static_cast<double>(windows.size());
  return mean;
}

// Calls each(first, second) for numbers that stand in pairs.
void for_pairs(std::span<const double> numbers, const auto& each) {
  if (numbers.size() % 2 != 0) fail(ErrorCode::usage, "windows: {} numbers, expected pairs", numbers.size());
  for (size_t i = 0; i < numbers.size(); i += 2) each(numbers[i], numbers[i + 1]);
}

double layers_in_rank_band(Chosen windows) {
  std::map<double, std::vector<double>> ranks;  // by layer
  for_pairs(pooled(windows), [&](double layer, double rank) { ranks[layer].push_back(rank); });
  const auto inside = std::ranges::count_if(ranks, [](const auto& layer) {
    const double median = quantile(layer.second, 0.5);
    return median >= kLowRank && median <= kHighRank;
  });
  return ranks.empty() ? kNan : static_cast<double>(inside) / static_cast<double>(ranks.size());
}

double area(Chosen windows) {
  std::vector<double> scores;
  std::vector<bool> right;
  for_pairs(pooled(windows), [&](double score, double is_right) {
    scores.push_back(score);
    right.push_back(is_right != 0);
  });
  return area_under_curve(scores, right).value_or(kNan);
}

double explained(Chosen windows) {
  std::vector<double> shares;
  for_pairs(sums(windows), [&](double residual, double variation) { shares.push_back(1 - residual / variation); });
  return mean(shares);
}

double correlation(Chosen windows) {
  const std::vector<double> both = means(windows);
  if (both.size() % 2 != 0) fail(ErrorCode::usage, "windows: {} numbers, expected two lists", both.size());
  const auto lists = std::span(both);
  const size_t layers = both.size() / 2;
  return analysis::rank_correlation(lists.first(layers), lists.last(layers)).value_or(kNan);
}

double unevenness(Chosen windows) {
  std::vector<double> heads = means(windows);
  for (double& head : heads) head = std::max(head, 0.0);
  return analysis::gini(heads).value_or(kNan);
}

}  // namespace

double over_windows(OverWindows statistic, Chosen windows) {
  switch (statistic) {
    case OverWindows::none:
      break;
    case OverWindows::mean:
      return mean(pooled(windows));
    case OverWindows::median:
      return quantile(pooled(windows), 0.5);
    case OverWindows::layers_in_rank_band:
      return layers_in_rank_band(windows);
    case OverWindows::area_under_curve:
      return area(windows);
    case OverWindows::explained:
      return explained(windows);
    case OverWindows::rank_correlation:
      return correlation(windows);
    case OverWindows::gini:
      return unevenness(windows);
  }
  return kNan;
}

std::optional<double> over_windows(OverWindows statistic, const Windows& windows) {
  std::vector<const Window*> all;
  for (const auto& text : windows)
    for (const Window& window : text) all.push_back(&window);
  const double value = over_windows(statistic, all);
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

std::vector<Window> singles(const std::vector<double>& values) {
  std::vector<Window> windows;
  windows.reserve(values.size());
  for (const double value : values) windows.push_back({value});
  return windows;
}

}  // namespace unchain::study
