// The statistics of the judge (docs/claims.md): intervals over paired seeds and over windows nested in texts, the power
// of a comparison, and the scores that claims are made of. All in f64.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace unchain::study {

struct Interval {
  double low = 0, high = 0;
};

double mean(std::span<const double> values);                // NaN of none
double standard_deviation(std::span<const double> values);  // divided by n − 1; NaN below two values

// P(T > t) of Student's t with so many degrees of freedom ν, t ≥ 0: ½ I_{ν/(ν+t²)}(ν/2, ½), I the regularised
// incomplete beta function. Relative error below 1e-11 for ν up to 1e4; it grows with ν, as that of ln Γ does.
double student_t_tail(double t, double degrees);

// The t with P(T > t) = tail, for 0 < tail ≤ ½; relative error below 1e-10 for ν up to 1e4. Error: usage (another tail,
// degrees ≤ 0).
double student_t_quantile(double tail, double degrees);

// mean ± t·SD/√n, which holds the true mean of normal values with the probability `level`; absent below two values.
std::optional<Interval> t_interval(std::span<const double> values, double level);

// What decides whether an effect is seen: n normal numbers, and the noise floor of as many runs.
struct Design {
  double sd = 0;  // of the numbers
  int64_t n = 0;  // ≥ 2
  double floor = 0;
  bool floor_is_threshold = false;  // the floor is the threshold; otherwise the mean must exceed it, too
  double level = 0.95;
};

// The probability that numbers whose true mean lies `effect` beyond the threshold are found to: their t interval above
// it, and their mean above the floor. With s = x·SD the sample's SD, y·floor the sample's floor, both √(χ²/(n − 1)),
// taken as independent, and e = SD/√n,
//   ∫∫ f(x) f(y) Φ((effect − need)/e), need = max(y·floor, t x e), or t x e + (1 − y)·floor if the floor is the
//   threshold.
// Without a floor it is the upper tail of the noncentral t distribution. SD > 0. Absolute error below 1e-3 (Simpson),
// for floors up to 100 e.
double power_of_effect(double effect, const Design& design);

// The effect that is found with the probability `power`, to 1e-4 of itself; the floor if the SD is 0. Error: usage (n
// below 2).
double detectable_effect(const Design& design, double power);

// Numbers of windows, the texts' windows counted one after another.
using Drawn = std::vector<size_t>;

// Percentile bootstrap over windows nested in texts: texts are drawn with replacement, then windows within each text
// drawn. `statistic` gets the drawn windows of each corpus; corpora, lists of how many windows each text has, are drawn
// independently. Of one text its windows alone are drawn, and the interval says nothing of other texts. Absent if a
// corpus has fewer than two windows, if there is none, or if a statistic is not finite. The same seed gives the same
// resamples. Source: Davison & Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8.
std::optional<Interval> nested_bootstrap(const std::vector<std::vector<size_t>>& corpora,
                                         const std::function<double(const std::vector<Drawn>&)>& statistic,
                                         double level, uint64_t seed = 0, int resamples = 2000);

// The value below which the share q of the values lies, interpolated linearly between neighbours; NaN of none.
double quantile(std::vector<double> values, double q);

// The probability that a right item scores higher than a wrong one, ties counting one half (Mann & Whitney, 1947):
// 1 perfect, ½ chance. Absent if all are right or all are wrong. Error: usage (unequal lengths).
std::optional<double> area_under_curve(std::span<const double> scores, const std::vector<bool>& right);

}  // namespace unchain::study
