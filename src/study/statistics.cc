#include "study/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <unsupported/Eigen/SpecialFunctions>

#include "analysis/rank_correlation.h"
#include "base/check.h"
#include "base/rng.h"

namespace unchain::study {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double normal_below(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2);
}

// The density of Student's t.
double student_t_density(double t, double degrees) {
  const double half = degrees / 2;
  return std::exp(std::lgamma(half + 0.5) - std::lgamma(half) - (half + 0.5) * std::log1p(t * t / degrees)) /
         std::sqrt(degrees * std::numbers::pi);
}

// A place of an integral and its share in it.
struct Node {
  double at = 0, weight = 0;
};

// Simpson's nodes of ∫ f(x) … dx, f the density of x = √(χ²/degrees), the SD of a sample divided by the true one:
//   f(x) = 2 (ν/2)^(ν/2)/Γ(ν/2) · x^(ν−1) e^(−ν x²/2).
// Outside of 1 ± 6/√ν, more than eight of its standard deviations, lies less than 1e-11 of it.
std::vector<Node> chi_nodes(double degrees, int panels) {
  const double low = std::max(0.0, 1 - 6 / std::sqrt(degrees)), width = (1 + 6 / std::sqrt(degrees) - low) / panels;
  const double constant = std::log(2.0) + degrees / 2 * std::log(degrees / 2) - std::lgamma(degrees / 2);
  std::vector<Node> nodes;
  for (int i = 0; i <= 2 * panels; ++i) {
    const double x = low + i * width / 2;
    const double power = degrees == 1 ? 0 : (degrees - 1) * std::log(x);  // −∞ at 0, where the density is then 0
    const double simpson = i == 0 || i == 2 * panels ? 1 : i % 2 == 1 ? 4 : 2;
    nodes.push_back({x, simpson * width / 6 * std::exp(constant + power - degrees * x * x / 2)});
  }
  return nodes;
}

}  // namespace

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_deviation(std::span<const double> values) {
  if (values.size() < 2) return kNan;
  const double middle = mean(values);
  double sum = 0;
  for (const double x : values) sum += (x - middle) * (x - middle);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

double student_t_tail(double t, double degrees) {
  // I_x(a, b) = 1 − I_{1−x}(b, a): of the two, the one whose x is not rounded to 1.
  const double far = degrees / (degrees + t * t), near = t * t / (degrees + t * t);
  return far < near ? 0.5 * Eigen::numext::betainc(degrees / 2, 0.5, far)
                    : 0.5 - 0.5 * Eigen::numext::betainc(0.5, degrees / 2, near);
}

double student_t_quantile(double tail, double degrees) {
  if (!(tail > 0 && tail <= 0.5 && degrees > 0))
    fail(ErrorCode::usage,
         "Student's t: a tail of {} with {} degrees of freedom, expected 0 < tail <= 0.5 and more than 0", tail,
         degrees);
  // The tail is convex in t > 0, so Newton's steps from 0 rise to the root and never pass it, but for rounding.
  double t = 0;
  for (double step = 1; step > 1e-13 * t;) {
    step = (student_t_tail(t, degrees) - tail) / student_t_density(t, degrees);
    t += step;
  }
  return t;
}

std::optional<Interval> t_interval(std::span<const double> values, double level) {
  if (values.size() < 2) return std::nullopt;
  const double n = static_cast<double>(values.size()), middle = mean(values);
  const double half = student_t_quantile((1 - level) / 2, n - 1) * standard_deviation(values) / std::sqrt(n);
  return Interval{middle - half, middle + half};
}

double power_of_effect(double effect, const Design& design) {
  const double degrees = static_cast<double>(design.n - 1);
  const double error = design.sd / std::sqrt(static_cast<double>(design.n));
  const double t = student_t_quantile((1 - design.level) / 2, degrees);
  const std::vector<Node> spread = chi_nodes(degrees, 40);
  std::vector<Node> floors = {{1, 1}};
  // A floor far above the error makes Φ steep in y.
  if (design.floor > 0) floors = chi_nodes(degrees, static_cast<int>(std::min(400.0, 12 + 4 * design.floor / error)));
  double sum = 0;
  for (const Node& y : floors) {
    for (const Node& x : spread) {
      const double half = t * x.at * error;
      const double need =
          design.floor_is_threshold ? half + (1 - y.at) * design.floor : std::max(y.at * design.floor, half);
      sum += y.weight * x.weight * normal_below((effect - need) / error);
    }
  }
  return sum;
}

double detectable_effect(const Design& design, double power) {
  if (design.n < 2) fail(ErrorCode::usage, "detectable effect: {} numbers, expected 2 or more", design.n);
  if (design.sd == 0) return design.floor_is_threshold ? 0 : design.floor;
  double low = 0, high = design.floor + design.sd;
  for (; power_of_effect(high, design) < power; high *= 2) low = high;
  while (high - low > 1e-4 * high) {
    const double middle = (low + high) / 2;
    (power_of_effect(middle, design) < power ? low : high) = middle;
  }
  return high;
}

std::optional<Interval> nested_bootstrap(const std::vector<std::vector<size_t>>& corpora,
                                         const std::function<double(const std::vector<Drawn>&)>& statistic,
                                         double level, uint64_t seed, int resamples) {
  const auto windows_in = [](const std::vector<size_t>& texts) { return std::reduce(texts.begin(), texts.end()); };
  if (corpora.empty() || std::ranges::any_of(corpora, [&](const auto& texts) { return windows_in(texts) < 2; }))
    return std::nullopt;
  Rng rng(seed);
  std::vector<double> statistics;
  std::vector<Drawn> drawn(corpora.size());
  for (int resample = 0; resample < resamples; ++resample) {
    for (size_t c = 0; c < corpora.size(); ++c) {
      const std::vector<size_t>& texts = corpora[c];
      drawn[c].clear();
      for (size_t i = 0; i < texts.size(); ++i) {
        const size_t text = rng.below(texts.size());
        const size_t first = std::reduce(texts.begin(), texts.begin() + static_cast<std::ptrdiff_t>(text));
        for (size_t j = 0; j < texts[text]; ++j) drawn[c].push_back(first + rng.below(texts[text]));
      }
    }
    statistics.push_back(statistic(drawn));
    if (!std::isfinite(statistics.back())) return std::nullopt;
  }
  return Interval{quantile(statistics, (1 - level) / 2), quantile(statistics, (1 + level) / 2)};
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return kNan;
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(place), above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

std::optional<double> area_under_curve(std::span<const double> scores, const std::vector<bool>& right) {
  if (scores.size() != right.size())
    fail(ErrorCode::usage, "area under the curve: {} scores of {} items, expected one each", scores.size(),
         right.size());
  const std::vector<double> rank = analysis::mid_ranks(scores);
  double sum = 0, rights = 0;
  for (size_t i = 0; i < rank.size(); ++i) {
    if (!right[i]) continue;
    sum += rank[i];
    ++rights;
  }
  const double wrongs = static_cast<double>(rank.size()) - rights;
  if (rights == 0 || wrongs == 0) return std::nullopt;
  return (sum - rights * (rights + 1) / 2) / (rights * wrongs);
}

}  // namespace unchain::study
