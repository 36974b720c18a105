// Against closed forms, printed tables, values by hand and simulation with another generator.
#include "study/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <random>

#include "support/temporary_folder.h"

namespace unchain::study {
namespace {

using Values = std::vector<double>;

// 1 and 2 degrees of freedom in closed form, without the cancellation in 1 − P(T ≤ t); 4 as a polynomial.
TEST(StudentT, TailsInClosedForm) {
  for (const double t : {0.0, 1e-6, 0.3, 1.0, 2.5, 12.7, 400.0}) {
    const double one = std::atan2(1.0, t) / std::numbers::pi;
    const double root = std::sqrt(2 + t * t), two = 1 / (root * (root + t));
    EXPECT_NEAR(student_t_tail(t, 1), one, 1e-11 * one) << t;
    EXPECT_NEAR(student_t_tail(t, 2), two, 1e-11 * two) << t;
    const double u = 1 + t * t / 4, four = 0.5 - 0.375 * t / std::sqrt(u) * (1 - t * t / (12 * u));
    EXPECT_NEAR(student_t_tail(t, 4), four, 1e-14) << t;  // absolute: the closed form cancels
  }
}

TEST(StudentT, QuantilesOfPrintedTables) {
  struct Row {
    double tail, degrees, t;
  };
  // Half a unit of the last printed digit.
  for (const Row& row : {Row{0.025, 1, 12.7062},
                         {0.025, 3, 3.1824},
                         {0.025, 7, 2.3646},
                         {0.025, 10, 2.2281},
                         {0.025, 30, 2.0423},
                         {0.025, 120, 1.9799},
                         {0.05, 5, 2.0150},
                         {0.005, 7, 3.4995}})
    EXPECT_NEAR(student_t_quantile(row.tail, row.degrees), row.t, 0.5e-4) << row.tail << ", " << row.degrees;
  for (const double tail : {1e-6, 0.001, 0.025, 0.2, 0.49}) {
    const double one = std::tan(std::numbers::pi * (0.5 - tail));
    EXPECT_NEAR(student_t_quantile(tail, 1), one, 1e-10 * one);
    const double two = (1 - 2 * tail) / std::sqrt(2 * tail * (1 - tail));
    EXPECT_NEAR(student_t_quantile(tail, 2), two, 1e-10 * two);
  }
  EXPECT_EQ(student_t_quantile(0.5, 7), 0);
  // The normal quantile z and its expansion in 1/ν; the next term is below 1e-10 at ν = 1e4.
  const double z = 1.959963984540054, z2 = z * z;
  const double many = z + z * (z2 + 1) / 4e4 + z * (5 * z2 * z2 + 16 * z2 + 3) / 96e8;
  EXPECT_NEAR(student_t_quantile(0.025, 1e4), many, 2e-10);
  for (const double tail : {0.0, 0.6})
    test::expect_error([&] { student_t_quantile(tail, 7); }, ErrorCode::usage, {"Student's t", "0.5"});
  test::expect_error([] { student_t_quantile(0.025, 0); }, ErrorCode::usage, {"Student's t", "more than 0"});
}

TEST(Statistics, MeanSdAndIntervalByHand) {
  const Values values = {1, 2, 3, 4};
  EXPECT_EQ(mean(values), 2.5);
  EXPECT_NEAR(standard_deviation(values), std::sqrt(5.0 / 3), 1e-15);
  const auto interval = t_interval(values, 0.95);  // 2.5 ± 3.18245 · √(5/3)/2
  EXPECT_NEAR(interval->low, 2.5 - 2.05426, 1e-5);
  EXPECT_NEAR(interval->high, 2.5 + 2.05426, 1e-5);
  EXPECT_FALSE(t_interval(Values{1}, 0.95));
  EXPECT_TRUE(std::isnan(standard_deviation(Values{1})));
  EXPECT_TRUE(std::isnan(mean(Values{})));
  EXPECT_EQ(quantile({10, 1, 3, 2}, 0.5), 2.5);
  EXPECT_EQ(quantile({10, 1, 3, 2}, 1), 10);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

// How many pairs find an effect of d standard deviations with a power of 80 %, two-sided at 5 %, is printed in every
// book on sample sizes: 199 for d = 0.2, 34 for 0.5, 15 for 0.8; one fewer must not do.
TEST(Power, SampleSizesOfBooks) {
  for (const auto& [effect, pairs] : {std::pair{0.2, 199}, {0.5, 34}, {0.8, 15}}) {
    EXPECT_GE(power_of_effect(effect, {.sd = 1, .n = pairs}), 0.8) << effect;
    EXPECT_LT(power_of_effect(effect, {.sd = 1, .n = pairs - 1}), 0.8) << effect;
  }
  EXPECT_NEAR(power_of_effect(0, {.sd = 1, .n = 8}), 0.025, 1e-3);  // nothing to find: the level's upper half
}

// One sample of a design: is an effect found?
bool found(double effect, const Design& design, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const auto moments = [&](double middle, double sd) {
    Values x;
    for (int64_t i = 0; i < design.n; ++i) x.push_back(middle + sd * normal(random));
    double sum = 0, squares = 0;
    for (const double v : x) sum += v;
    const double average = sum / static_cast<double>(design.n);
    for (const double v : x) squares += (v - average) * (v - average);
    return std::pair{average, std::sqrt(squares / static_cast<double>(design.n - 1))};
  };
  const double t = design.n == 3 ? 4.30265 : 2.36462;  // of a table, n = 8 otherwise
  const auto [middle, sd] = moments(design.floor_is_threshold ? effect - design.floor : effect, design.sd);
  const double floor = moments(0, design.floor).second;  // as many other runs, whose SD is the floor
  const double half = t * sd / std::sqrt(static_cast<double>(design.n));
  return design.floor_is_threshold ? middle - half > -floor : middle > half && middle > floor;
}

TEST(Power, AgreesWithSimulation) {
  std::mt19937_64 random(5);
  constexpr int kTrials = 20000;
  for (const int64_t n : {3, 8}) {
    for (const double floor : {0.0, 0.3, 1.5, 8.0}) {
      for (const bool threshold : {false, true}) {
        const Design design = {1, n, floor, threshold, 0.95};
        for (const double effect : {0.5, 1.5, 3.0, 10.0}) {
          int count = 0;
          for (int trial = 0; trial < kTrials; ++trial) count += found(effect, design, random) ? 1 : 0;
          const double power = power_of_effect(effect, design);
          // Four standard errors of the count, and the error that power_of_effect() states.
          const double tolerance = 4 * std::sqrt(0.25 / kTrials) + 1e-3;
          EXPECT_NEAR(power, static_cast<double>(count) / kTrials, tolerance) << n << " " << floor << " " << effect;
        }
      }
    }
  }
}

TEST(Power, DetectableEffectHasThePower) {
  for (const int64_t n : {2, 3, 8, 100}) {
    for (const double floor : {0.0, 2.0}) {
      const Design design = {0.7, n, floor, false, 0.95};
      const double effect = detectable_effect(design, 0.8);
      EXPECT_NEAR(power_of_effect(effect, design), 0.8, 1e-3) << n << " " << floor;
    }
  }
  EXPECT_EQ(detectable_effect({.sd = 0, .n = 3, .floor = 0.5}, 0.8), 0.5);
  EXPECT_EQ(detectable_effect({.sd = 0, .n = 3, .floor = 0.5, .floor_is_threshold = true}, 0.8), 0);
  test::expect_error([] { detectable_effect({.sd = 1, .n = 1}, 0.8); }, ErrorCode::usage, {"2 or more"});
}

TEST(NestedBootstrap, KnownValues) {
  const Values values = {0, 1};
  const auto middle = [&](const std::vector<Drawn>& drawn) {
    double sum = 0;
    for (const size_t i : drawn[0]) sum += values[i];
    return sum / static_cast<double>(drawn[0].size());
  };
  const auto two = nested_bootstrap({{1, 1}}, middle, 0.95);  // means 0, ½, 1 with probability ¼, ½, ¼
  EXPECT_EQ(two->low, 0);
  EXPECT_EQ(two->high, 1);
  const auto one = nested_bootstrap({{2}}, middle, 0.95);  // of one text its windows are drawn
  EXPECT_EQ(one->low, 0);
  EXPECT_EQ(one->high, 1);
  EXPECT_FALSE(nested_bootstrap({{1}}, middle, 0.95));
  EXPECT_FALSE(nested_bootstrap({}, middle, 0.95));
  EXPECT_FALSE(nested_bootstrap({{1, 1}, {1}}, middle, 0.95));
  const auto constant = nested_bootstrap(
      {{1, 1}}, [](auto) { return 0.3; }, 0.95);
  EXPECT_EQ(constant->low, 0.3);
  EXPECT_EQ(constant->high, 0.3);
  EXPECT_FALSE(nested_bootstrap(
      {{1, 1}}, [](auto) { return std::numeric_limits<double>::quiet_NaN(); }, 0.95));
  // Windows stay with their text: of texts {0, 0, 0} and {1} a draw holds all three numbers of the first, or none.
  const auto numbers = [](const std::vector<Drawn>& drawn) { return static_cast<double>(drawn[0].size()); };
  const auto sizes = nested_bootstrap({{3, 1}}, numbers, 0.95);
  EXPECT_EQ(sizes->low, 2);
  EXPECT_EQ(sizes->high, 6);
  // And are drawn within it: of texts {0, 1}, {0, 1} all four drawn are 0 in 1 of 16 draws, and 1 in as many.
  const auto same = [&](const std::vector<Drawn>& drawn) {
    double sum = 0;
    for (const size_t i : drawn[0]) sum += static_cast<double>(i % 2) / static_cast<double>(drawn[0].size());
    return sum;
  };
  const auto within = nested_bootstrap({{2, 2}}, same, 0.95);
  EXPECT_EQ(within->low, 0);
  EXPECT_EQ(within->high, 1);
}

// What is drawn of one corpus says nothing of what is drawn of another: each of the four pairs of ends comes up.
TEST(NestedBootstrap, CorporaAreDrawnIndependently) {
  std::set<std::pair<size_t, size_t>> ends;
  const auto look = [&](const std::vector<Drawn>& drawn) {
    EXPECT_EQ(drawn.size(), 2u);
    EXPECT_EQ(drawn[0].size(), 2u);
    EXPECT_EQ(drawn[1].size(), 3u);
    const auto [low, high] = std::minmax_element(drawn[1].begin(), drawn[1].end());
    if (drawn[0][0] == drawn[0][1] && *low == *high) ends.insert({drawn[0][0], *low});
    return 0.0;
  };
  ASSERT_TRUE(nested_bootstrap({{2}, {3}}, look, 0.95));
  EXPECT_EQ(ends.size(), 6u);
}

// Windows of one text are alike: a bootstrap that took them as independent would have an interval far too short.
// Drawing in both stages adds the windows' variance once more, 0.04/4 to 1.01 here, which makes up for the 40 texts'
// finite n.
TEST(NestedBootstrap, CoversTheMeanOfNestedWindows) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  constexpr int kTrials = 400, kTexts = 40, kWindows = 4;
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Values values;
    for (int text = 0; text < kTexts; ++text) {
      const double of_text = normal(random);
      for (int window = 0; window < kWindows; ++window) values.push_back(of_text + 0.2 * normal(random));
    }
    const auto middle = [&](const std::vector<Drawn>& drawn) {
      double sum = 0;
      for (const size_t i : drawn[0]) sum += values[i];
      return sum / static_cast<double>(drawn[0].size());
    };
    const auto interval = nested_bootstrap({std::vector<size_t>(kTexts, kWindows)}, middle, 0.95, 0, 500);
    covered += interval->low <= 0 && interval->high >= 0 ? 1 : 0;
  }
  EXPECT_GE(covered, 0.92 * kTrials);
  EXPECT_LE(covered, 0.98 * kTrials);
}

TEST(Scores, AreaUnderTheCurveByHand) {
  EXPECT_EQ(area_under_curve(Values{1, 2, 3, 4}, {false, false, true, true}), 1.0);
  EXPECT_EQ(area_under_curve(Values{4, 3, 2, 1}, {false, false, true, true}), 0.0);
  EXPECT_EQ(area_under_curve(Values{0.1, 0.4, 0.35, 0.8}, {false, false, true, true}), 0.75);  // 3 of 4 pairs
  EXPECT_EQ(area_under_curve(Values{5, 5, 5}, {true, false, true}), 0.5);
  EXPECT_EQ(area_under_curve(Values{1, 2, 2, 3}, {false, true, false, true}), 0.875);  // 3 pairs and half of one, of 4
  EXPECT_FALSE(area_under_curve(Values{1, 2}, {true, true}));
  EXPECT_FALSE(area_under_curve(Values{}, {}));
  test::expect_error([] { area_under_curve(Values{1}, {}); }, ErrorCode::usage, {"1 scores of 0 items"});
}

}  // namespace
}  // namespace unchain::study
