// The judge on results that are made up, so that the truth is known. Simulations draw from another generator than the
// code does; counts are held against the rates that the rules promise (docs/claims.md).
#include "study/judge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "support/temporary_folder.h"

namespace unchain::study {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A file with one claim of these parts.
Claims claims_of(const std::string& parts, const std::string& more = "") {
  return parse_claims(R"({"level": 0.95,
    "roles": {"diff": "diff_v2", "variant": "lowrank_diff", "twin": "softmax"},
    "beside": {"of": {"diff": ["diff_v1"]}, "against": {"twin": ["wide"]}},
    "measures": {
      "loss": {"unit": "nats", "rows": "all", "layers": "all", "over": "tokens", "windows": "mean"},
      "rank": {"unit": "directions", "rows": "all", "layers": "all", "over": "layers", "windows": "median"},
      "score": {"unit": "share", "rows": "all", "layers": "all", "over": "items"},
      "size": {"unit": "numbers", "rows": "none", "layers": "all", "over": "tensors", "count": true}},
    "claims": [{"id": 1, "source": "seed", "name": "so", "statement": "It is so.", "kind": "measured", "note": "n", "parts": [)" +
                          parts + "]" + more + "}]}",
                      "c.json");
}

// A part out of its keys; language unless they say otherwise.
std::string part(const std::string& keys) {
  const bool track = keys.find("\"track\"") != std::string::npos;
  return "{" + keys + (track ? "}" : R"(, "track": "language"})");
}

const std::string kLower =
    part(R"("measure": "loss", "comparison": "difference", "of": "diff", "against": "twin", "direction": "below",
            "threshold": 0)");
const std::string kNoWorse =
    part(R"("measure": "loss", "comparison": "difference", "of": "diff", "against": "twin", "direction": "below",
            "threshold": "floor")");
const std::string kAboveHalf =
    part(R"("measure": "loss", "comparison": "value", "of": "diff", "direction": "above", "threshold": 0.5)");
const std::string kRatio = part(
    R"("measure": "loss", "comparison": "ratio", "of": "diff", "against": "twin", "direction": "above",
       "threshold": 0.3)");

class World {
 public:
  World& add(const std::string& member, int64_t seed, const std::string& measure, std::optional<double> value,
             const std::string& size = "small", const std::string& track = "language") {
    observations_.all.push_back({size, track, member, seed, measure, value, {}, {}});
    return *this;
  }
  // One value a seed, from seed 0.
  World& add_all(const std::string& member, const std::string& measure, const std::vector<double>& values,
                 const std::string& size = "small", const std::string& track = "language") {
    for (size_t seed = 0; seed < values.size(); ++seed)
      add(member, static_cast<int64_t>(seed), measure, values[seed], size, track);
    return *this;
  }
  Observations& observations() { return observations_; }
  ClaimResult judge_one(const Claims& claims) const { return judge(claims, observations_).front(); }

 private:
  Observations observations_ = {{{"language", {"small", "large"}}, {"retrieval", {"small"}}}, {}};
};

// Pairs of runs: what a seed gives both, and what is each one's own.
struct Pairs {
  int seeds = 8;
  double shared = 0.6, own = 0.4;  // standard deviations
  double softmax_sd() const { return std::hypot(shared, own); }
  double difference_sd() const { return std::sqrt(2.0) * own; }
  double floor() const { return std::sqrt(2.0 / seeds) * softmax_sd(); }

  World draw(double softmax, double diff, std::mt19937_64& random) const {
    std::normal_distribution<double> normal;
    World world;
    for (int seed = 0; seed < seeds; ++seed) {
      const double both = shared * normal(random);
      world.add("softmax", seed, "loss", softmax + both + own * normal(random));
      world.add("diff_v2", seed, "loss", diff + both + own * normal(random));
    }
    return world;
  }
};

constexpr int kStudies = 200;

int supported(const Claims& claims, const Pairs& pairs, double softmax, double diff, std::mt19937_64& random) {
  int count = 0;
  for (int study = 0; study < kStudies; ++study)
    count += pairs.draw(softmax, diff, random).judge_one(claims).verdict == Verdict::supported ? 1 : 0;
  return count;
}

// The truth lies on the threshold: of one side of a 95 % interval 2.5 % are wrong, so 5 of 200 are expected, fewer
// where the floor holds more back. More than 10 would come up in 1 % of such tests; the seed is fixed.
TEST(Judge, NullsAreSeldomSupported) {
  std::mt19937_64 random(11);
  for (const int seeds : {3, 8}) {
    const Pairs pairs = {seeds};
    const double allowed = 0.05 * kStudies;
    EXPECT_LE(supported(claims_of(kLower), pairs, 5, 5, random), allowed) << seeds;
    EXPECT_LE(supported(claims_of(kAboveHalf), pairs, 5, 0.5, random), allowed) << seeds;
    EXPECT_LE(supported(claims_of(kNoWorse), pairs, 5, 5 + pairs.floor(), random), allowed) << seeds;
    const Pairs steady = {seeds, 0.06, 0.04};  // a ratio of means is the mean of ratios for small scatter
    EXPECT_LE(supported(claims_of(kRatio), steady, 10, 13, random), allowed) << seeds;
  }
}

// Supported in at least 80 % less two standard errors of a count of 200, whether the t interval decides or the floor.
TEST(Judge, EffectsOfTheDetectableSizeAreFound) {
  std::mt19937_64 random(12);
  for (const int seeds : {3, 8}) {
    for (const double shared : {0.0, 0.6, 2.0}) {
      const Pairs pairs = {seeds, shared, 0.4};
      for (const bool threshold : {false, true}) {
        const Design design = {pairs.difference_sd(), seeds, pairs.floor(), threshold, 0.95};
        const double effect = detectable_effect(design, 0.8), line = threshold ? pairs.floor() : 0;
        const Claims claims = claims_of(threshold ? kNoWorse : kLower);
        EXPECT_GE(supported(claims, pairs, 5, 5 + line - effect, random), 0.74 * kStudies)
            << seeds << " seeds, shared " << shared << ", floor " << threshold;
      }
    }
  }
}

// 95 % of 400, within 2.7 standard errors of that count.
TEST(Judge, IntervalsCoverTheTruth) {
  std::mt19937_64 random(13);
  constexpr int kTrials = 400;
  for (const int seeds : {2, 3, 8}) {
    const Claims claims = claims_of(kLower);
    const Pairs pairs = {seeds};
    int covered = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      const auto result = pairs.draw(5, 4.7, random).judge_one(claims).parts[0];
      covered += result.estimate.interval->low <= -0.3 && result.estimate.interval->high >= -0.3 ? 1 : 0;
    }
    EXPECT_GE(covered, 0.92 * kTrials) << seeds;
    EXPECT_LE(covered, 0.98 * kTrials) << seeds;
  }
}

// One run a member: texts differ, windows of a text are alike, and both members read the same ones. Intervals that
// forgot the pairing would hold the texts' scatter, 1, and cover always; ones that forgot the nesting would be half as
// wide, as 4 windows share what the members make of a text.
TEST(Judge, OneRunHasAnIntervalOverTextsAndWindows) {
  std::mt19937_64 random(14);
  std::normal_distribution<double> normal;
  const Claims claims = claims_of(kLower);
  constexpr int kTrials = 200;
  int covered = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Observation softmax = {"small", "language", "softmax", 0, "loss", 0.0, {}, {}}, diff = softmax;
    diff.member = "diff_v2";
    for (int text = 0; text < 40; ++text) {
      const double hard = normal(random), change = -0.3 + 0.2 * normal(random);
      softmax.windows.emplace_back();
      diff.windows.emplace_back();
      for (int window = 0; window < 4; ++window) {
        softmax.windows.back().push_back({hard + 0.03 * normal(random)});
        diff.windows.back().push_back({hard + change + 0.03 * normal(random)});
      }
    }
    const Observations observations = {{{"language", {"small"}}}, {softmax, diff}};
    const ClaimResult result = judge(claims, observations).front();
    EXPECT_EQ(result.verdict, Verdict::undecided);
    const auto interval = result.parts[0].estimate.interval;
    ASSERT_TRUE(interval);
    covered += interval->low <= -0.3 && interval->high >= -0.3 ? 1 : 0;
  }
  EXPECT_GE(covered, 0.92 * kTrials);
  EXPECT_LE(covered, 0.98 * kTrials);
}

// Two seeds: their t interval would be 12.7 SD/√2 wide, and no window plays a part in it.
TEST(Judge, TwoRunsHaveAnIntervalOverWindowsToo) {
  World world;
  for (int64_t seed = 0; seed < 2; ++seed) {
    const auto shift = static_cast<double>(seed);
    world.observations().all.push_back({"small", "language", "softmax", seed, "loss", 2.5, {singles({2, 3})}, {}});
    world.observations().all.push_back(
        {"small", "language", "diff_v2", seed, "loss", 2 + shift, {singles({2 + shift, 2 + shift})}, {}});
  }
  const PartResult result = world.judge_one(claims_of(kLower)).parts[0];
  EXPECT_EQ(result.verdict, Verdict::undecided);
  EXPECT_EQ(result.estimate.mean, 0);
  // Both windows of softmax are 2 in one of four draws, and 3 in another; seeds shift diff_v2 by ½ on average.
  ASSERT_TRUE(result.estimate.interval);
  EXPECT_EQ(result.estimate.interval->low, -0.5);
  EXPECT_EQ(result.estimate.interval->high, 0.5);
  world.observations().all.back().windows.clear();
  const auto of_seeds = world.judge_one(claims_of(kLower)).parts[0].estimate.interval;
  ASSERT_TRUE(of_seeds);
  EXPECT_NEAR(of_seeds->high, 12.7062 / 2, 1e-3) << "without windows that of the seeds";
}

TEST(Judge, WindowsMustBeTheSameOnes) {
  Observation softmax = {"small", "language", "softmax", 0, "loss", 2.0, {singles({1, 2}), singles({3})}, {}},
              diff = softmax;
  diff.member = "diff_v2";
  const auto interval = [&](const std::string& of) {
    const Observations observations = {{{"language", {"small"}}}, {softmax, diff}};
    return judge(claims_of(of), observations).front().parts[0].estimate.interval;
  };
  EXPECT_EQ(interval(kLower)->low, 0);  // equal windows, drawn together: no difference in any draw
  EXPECT_EQ(interval(kLower)->high, 0);
  diff.windows = {singles({1}), singles({2, 3})};
  EXPECT_FALSE(interval(kLower));
  diff.windows.clear();
  EXPECT_FALSE(interval(kLower));
  // A measure that says that it does not follow from windows has no such interval; a median is taken as one.
  for (const char* measure : {"score", "rank"}) {
    diff.measure = measure;
    diff.windows = Windows(2, singles({1, 1, 1, 1, 1, 1, 1, 900}));  // 900 is half of a draw in 1 of 4000
    const auto of = part(fmt::format(
        R"("measure": "{}", "comparison": "value", "of": "diff", "direction": "above", "threshold": 0)", measure));
    const auto found = interval(of);
    EXPECT_EQ(found.has_value(), std::string(measure) == "rank");
    if (found) {
      EXPECT_EQ(found->high, 1);
    }
  }
}

// N is that of the runs; of runs that do not say, that of the measure; none where the measure has none.
TEST(Judge, PartsSayTheirTokens) {
  Claims claims = claims_of(kLower);
  Observation diff = {"small", "language", "diff_v2", 0, "loss", 2.0, {}, 64};
  const auto tokens = [&] {
    const Observations observations = {{{"language", {"small"}}}, {diff}};
    const ClaimResult result = judge(claims, observations).front();
    const auto json = to_json(result, claims)["parts"][0]["tokens"];
    EXPECT_EQ(json.is_null() ? std::nullopt : std::optional<int64_t>(json), result.parts[0].tokens);
    return result.parts[0].tokens;
  };
  claims.measures.at("loss").tokens = 256;
  EXPECT_EQ(tokens(), 64);
  diff.tokens.reset();
  EXPECT_EQ(tokens(), 256);
  diff.tokens = 64;
  claims.measures.at("loss").tokens.reset();
  EXPECT_FALSE(tokens());
}

// A gain beside that of another track: the windows of each track are drawn apart, whatever their numbers.
TEST(Judge, WindowsOfTwoTracksAreDrawnApart) {
  World world;
  const auto add = [&](const char* member, const char* track, const std::vector<double>& windows) {
    const double value = std::accumulate(windows.begin(), windows.end(), 0.0) / static_cast<double>(windows.size());
    world.observations().all.push_back({"small", track, member, 0, "loss", value, {singles(windows)}, {}});
  };
  add("softmax", "retrieval", {1, 1, 1});
  add("diff_v2", "retrieval", {0.5, 0.5, 0.5});
  add("softmax", "language", {2, 2});
  add("diff_v2", "language", {1, 2});
  const PartResult result =
      world
          .judge_one(claims_of(part(
              R"("measure": "loss", "comparison": "gain", "of": "diff", "against": "twin", "track": "retrieval",
                 "reference": "loss", "reference_track": "language", "direction": "above", "threshold": 0)")))
          .parts[0];
  EXPECT_EQ(result.estimate.mean, 0.25);
  ASSERT_TRUE(result.estimate.interval);  // of language all windows are the first in one draw of four: ½ − ½
  EXPECT_EQ(result.estimate.interval->low, 0);
  EXPECT_EQ(result.estimate.interval->high, 0.5);
}

// Every comparison, planted true and planted false: five seeds around a mean, the scatter far below the effect.
TEST(Judge, PlantedClaims) {
  const auto world = [](double diff, double twin, double reference, double reference_twin) {
    World out;
    for (int64_t seed = 0; seed < 5; ++seed) {
      const double e = 1 + 1e-3 * static_cast<double>(seed * seed % 5);
      out.add("diff_v2", seed, "loss", diff * e).add("softmax", seed, "loss", twin / e);
      out.add("diff_v2", seed, "score", reference * e * e).add("softmax", seed, "score", reference_twin);
      out.add("diff_v2", seed, "score", reference * e, "small", "retrieval");
      out.add("softmax", seed, "score", reference_twin * e, "small", "retrieval");
    }
    return out;
  };
  const auto verdict = [&](const std::string& keys, const World& of) {
    return of.judge_one(claims_of(part("\"measure\": \"loss\", \"of\": \"diff\", " + keys))).verdict;
  };
  const std::string value = R"("comparison": "value", "direction": )";
  EXPECT_EQ(verdict(value + R"("above", "threshold": 2)", world(3, 1, 1, 1)), Verdict::supported);
  EXPECT_EQ(verdict(value + R"("above", "threshold": 2)", world(1, 1, 1, 1)), Verdict::refuted);
  EXPECT_EQ(verdict(value + R"("below", "threshold": 2)", world(1, 1, 1, 1)), Verdict::supported);
  EXPECT_EQ(verdict(value + R"("below", "threshold": 2)", world(3, 1, 1, 1)), Verdict::refuted);
  EXPECT_EQ(verdict(value + R"("inside", "threshold": [2, 5])", world(3, 1, 1, 1)), Verdict::supported);
  EXPECT_EQ(verdict(value + R"("inside", "threshold": [2, 5])", world(1, 1, 1, 1)), Verdict::refuted);
  EXPECT_EQ(verdict(value + R"("inside", "threshold": [2, 5])", world(6, 1, 1, 1)), Verdict::refuted);
  EXPECT_EQ(verdict(value + R"("inside", "threshold": [2, 5])", world(5, 1, 1, 1)), Verdict::undecided);

  const std::string against = R"("against": "twin", "comparison": )";
  const std::string lower = against + R"("difference", "direction": "below", "threshold": 0)";
  EXPECT_EQ(verdict(lower, world(1, 2, 1, 1)), Verdict::supported);
  EXPECT_EQ(verdict(lower, world(2, 1, 1, 1)), Verdict::refuted);
  const std::string ratio = against + R"("ratio", "direction": "above", "threshold": 0.3)";
  EXPECT_EQ(verdict(ratio, world(1.4, 1, 1, 1)), Verdict::supported);
  EXPECT_EQ(verdict(ratio, world(1.2, 1, 1, 1)), Verdict::refuted);
  const std::string other = against + R"("difference", "reference": "score", "direction": "above", "threshold": 0)";
  EXPECT_EQ(verdict(other, world(2, 9, 9, 1)), Verdict::supported);  // diff's loss against softmax's score
  EXPECT_EQ(verdict(other, world(1, 0.5, 0.5, 2)), Verdict::refuted);

  const std::string within = R"("comparison": "within", "reference": "score", "direction": "above", "threshold": 0)";
  EXPECT_EQ(verdict(within, world(2, 9, 1, 9)), Verdict::supported);
  EXPECT_EQ(verdict(within, world(1, 0.5, 2, 0.5)), Verdict::refuted);
  const std::string own = R"("comparison": "ratio", "reference": "score", "direction": "above", "threshold": 0.3)";
  EXPECT_EQ(verdict(own, world(1.5, 9, 1, 9)), Verdict::supported);
  EXPECT_EQ(verdict(own, world(1.1, 0.1, 1, 0.1)), Verdict::refuted);

  // Errors fall from 4 to 1 (by 3/4) against 4 to 2 (by 1/2), and the other way round.
  const std::string gain =
      against + R"("gain", "reference": "score", "reference_track": "retrieval", "direction": "above", "threshold": 0)";
  EXPECT_EQ(verdict(gain, world(1, 4, 2, 4)), Verdict::supported);
  EXPECT_EQ(verdict(gain, world(2, 4, 1, 4)), Verdict::refuted);
}

// Values with this mean and SD exactly, whatever the number of seeds.
std::vector<double> values_of(int64_t n, double middle, double sd) {
  std::vector<double> out;
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    out.push_back(static_cast<double>(i) - static_cast<double>(n - 1) / 2);
    squares += out.back() * out.back();
  }
  for (double& x : out) x = middle + sd * x / std::sqrt(squares / static_cast<double>(n - 1));
  return out;
}

// No floor, a mean well off the threshold, and an interval of ± 2.48 across it.
TEST(Judge, AnIntervalAcrossTheThresholdDecidesNothing) {
  const auto verdict = [](const std::string& rule, double middle) {
    World world;
    world.add_all("softmax", "loss", {5, 5, 5}).add_all("diff_v2", "loss", values_of(3, middle, 1));
    const std::string keys = R"("measure": "loss", "comparison": "value", "of": "diff", )";
    return world.judge_one(claims_of(part(keys + rule))).verdict;
  };
  for (const double middle : {-2.0, 2.0}) {
    EXPECT_EQ(verdict(R"("direction": "above", "threshold": 0)", middle), Verdict::undecided);
    EXPECT_EQ(verdict(R"("direction": "below", "threshold": 0)", middle), Verdict::undecided);
    EXPECT_EQ(verdict(R"("direction": "inside", "threshold": [-1, 1])", middle), Verdict::undecided);
    EXPECT_EQ(verdict(R"("direction": "inside", "threshold": [-4, 4])", middle), Verdict::undecided);
  }
  EXPECT_EQ(verdict(R"("direction": "inside", "threshold": [-4, 4])", 0), Verdict::supported);
}

TEST(Judge, FloorByHand) {
  // Softmax: SD 1 over four seeds, so √(2/4) = 0.7071. Differences −0.5, −0.5, −0.5, −0.4: mean −0.475, SD 0.05, an
  // interval of ±0.0796, clear of 0 and yet within the floor.
  const std::vector<double> softmax = {-1.2247448713915890 / 2, 1.2247448713915890 / 2, 1.0606601717798212,
                                       -1.0606601717798212};
  World world;
  world.add_all("softmax", "loss", softmax);
  double squares = 0;
  for (const double x : softmax) squares += x * x;
  ASSERT_NEAR(squares / 3, 1, 1e-12);
  const std::vector<double> change = {-0.5, -0.5, -0.5, -0.4};
  for (size_t i = 0; i < 4; ++i) world.add("diff_v2", static_cast<int64_t>(i), "loss", softmax[i] + change[i]);
  const PartResult lower = world.judge_one(claims_of(kLower)).parts[0];
  EXPECT_NEAR(*lower.floor, std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(lower.estimate.mean, -0.475, 1e-12);
  EXPECT_NEAR(lower.estimate.interval->high, -0.475 + 3.18245 * 0.05 / 2, 1e-6);
  EXPECT_EQ(lower.verdict, Verdict::undecided);
  EXPECT_EQ(*lower.threshold, 0);

  // "No worse than the floor" already holds the floor: here the interval, all below 0.7071, decides alone.
  const PartResult no_worse = world.judge_one(claims_of(kNoWorse)).parts[0];
  EXPECT_NEAR(*no_worse.threshold, std::sqrt(0.5), 1e-12);
  EXPECT_EQ(no_worse.verdict, Verdict::supported);
  const PartResult no_less =
      world
          .judge_one(claims_of(part(R"("measure": "loss", "comparison": "difference", "of": "diff", "against": "twin",
                                       "direction": "above", "threshold": "-floor")")))
          .parts[0];
  EXPECT_NEAR(*no_less.threshold, -std::sqrt(0.5), 1e-12);
  EXPECT_EQ(no_less.verdict, Verdict::supported);  // −0.475 ± 0.08 lies above −0.7071
}

TEST(Judge, FloorOfRatiosOfOtherMembersAndOfCounts) {
  // A ratio's floor is relative: SD 1, mean 5, three seeds.
  World ratio;
  ratio.add_all("softmax", "loss", {4, 5, 6}).add_all("diff_v2", "loss", {8, 10, 12});
  EXPECT_NEAR(*ratio.judge_one(claims_of(kRatio)).parts[0].floor, std::sqrt(2.0 / 3) / 5, 1e-12);
  EXPECT_EQ(ratio.judge_one(claims_of(kRatio)).verdict, Verdict::supported);  // 1, without any scatter

  // Softmax has no such measure, or it does not apply: the judged member's SD, 2.
  World own;
  own.add_all("diff_v2", "loss", {8, 10, 12});
  EXPECT_NEAR(*own.judge_one(claims_of(kAboveHalf)).parts[0].floor, 2 * std::sqrt(2.0 / 3), 1e-12);
  for (int64_t seed = 0; seed < 3; ++seed) own.add("softmax", seed, "loss", std::nullopt);
  EXPECT_NEAR(*own.judge_one(claims_of(kAboveHalf)).parts[0].floor, 2 * std::sqrt(2.0 / 3), 1e-12);

  World count;
  count.add_all("softmax", "size", {100, 101, 99}).add_all("diff_v2", "size", {110, 111.1, 108.9});
  const std::string band = part(
      R"("measure": "size", "comparison": "ratio", "of": "diff", "against": "twin", "direction": "inside",
         "threshold": [0.08, 0.12])");
  const ClaimResult counted = count.judge_one(claims_of(band));
  EXPECT_EQ(counted.parts[0].floor, 0.0);
  EXPECT_LT(*counted.parts[0].detectable, 1e-12);
  EXPECT_EQ(counted.verdict, Verdict::supported);
}

TEST(Judge, MissingFailedAndNotApplicableAreThreeThings) {
  const Claims claims = claims_of(kLower);
  const auto softmax = [](int seeds) {
    World world;
    for (int64_t seed = 0; seed < seeds; ++seed)
      world.add("softmax", seed, "loss", 5 + 0.1 * static_cast<double>(seed));
    return world;
  };
  const auto diff = [](World world, std::vector<std::optional<double>> values) {
    for (size_t seed = 0; seed < values.size(); ++seed)
      world.add("diff_v2", static_cast<int64_t>(seed), "loss", values[seed]);
    return world;
  };
  const auto expect = [&](const World& world, Verdict verdict, int64_t seeds, const std::string& note) {
    const ClaimResult result = world.judge_one(claims);
    EXPECT_EQ(result.verdict, verdict) << note;
    EXPECT_EQ(result.parts[0].estimate.seeds, seeds) << note;
    const std::string notes = fmt::format("{}", fmt::join(result.parts[0].notes, "; "));
    EXPECT_NE(notes.find(note), std::string::npos) << notes;
  };
  expect(World(), Verdict::missing, 0, "");
  expect(softmax(4), Verdict::missing, 0, "loss of diff_v2 is missing");
  expect(diff(softmax(4), {2, 2.1, 2.2}), Verdict::supported, 3, "seed 3 is left out: loss of diff_v2 is missing");
  expect(diff(softmax(4), {2, 2.1}), Verdict::undecided, 2, "2 of at least 3 seeds");
  expect(diff(softmax(4), {2}), Verdict::undecided, 1, "1 of at least 3 seeds");
  // A run that failed cannot be left out.
  expect(diff(softmax(4), {2, 2.1, 2.2, kNan}), Verdict::undecided, 3, "seed 3 has no finite number");
  expect(diff(softmax(4), {kNan, kNan, kNan, kNan}), Verdict::undecided, 0, "seed 0 has no finite number");
  expect(diff(softmax(4), {2, 2.1, 2.2, std::numeric_limits<double>::infinity()}), Verdict::undecided, 3, "seed 3");
  expect(diff(softmax(4), {{}, {}, {}, {}}), Verdict::not_applicable, 0, "loss does not apply to diff_v2");
  expect(diff(softmax(4), {{}, 2.1, 2.2, 2.3}), Verdict::supported, 3, "seed 0 is left out: loss does not apply");
  // Nothing to divide by.
  World zero;
  zero.add_all("softmax", "loss", {0, 1, 1, 1}).add_all("diff_v2", "loss", {2, 2, 2, 2});
  EXPECT_EQ(zero.judge_one(claims_of(kRatio)).verdict, Verdict::undecided);
  World infinite;  // the ratio to it would be −1, far below 0.3
  const double infinity = std::numeric_limits<double>::infinity();
  infinite.add_all("softmax", "loss", {1, 1, 1, infinity}).add_all("diff_v2", "loss", {2, 2, 2, 2});
  EXPECT_EQ(infinite.judge_one(claims_of(kRatio)).verdict, Verdict::undecided);
  EXPECT_EQ(infinite.judge_one(claims_of(kRatio)).parts[0].estimate.seeds, 3);
}

TEST(Judge, PartsAreJoinedByAnd) {
  // A part about a member and measure of its own, so that each state can be planted.
  const auto about = [](const char* measure) {
    return part(fmt::format(
        R"("measure": "{}", "comparison": "value", "of": "diff", "direction": "above", "threshold": 1)", measure));
  };
  using States = std::vector<std::optional<double>>;
  const States yes = {2, 2.01, 2}, no = {0, 0.01, 0}, unsure = {0, 2, 1}, absent = {}, none = {{}, {}, {}};
  const auto verdict = [&](const States& first, const States& second) {
    World world;
    for (size_t i = 0; i < first.size(); ++i) world.add("diff_v2", static_cast<int64_t>(i), "loss", first[i]);
    for (size_t i = 0; i < second.size(); ++i) world.add("diff_v2", static_cast<int64_t>(i), "score", second[i]);
    return world.judge_one(claims_of(about("loss") + "," + about("score"))).verdict;
  };
  for (const auto& [a, b, expected] : {std::tuple{yes, yes, Verdict::supported},
                                       {yes, unsure, Verdict::undecided},
                                       {yes, no, Verdict::refuted},
                                       {unsure, no, Verdict::refuted},
                                       {absent, no, Verdict::refuted},
                                       {none, no, Verdict::refuted},
                                       {no, no, Verdict::refuted},
                                       {unsure, unsure, Verdict::undecided},
                                       {yes, absent, Verdict::missing},
                                       {unsure, absent, Verdict::missing},
                                       {yes, none, Verdict::not_applicable},
                                       {unsure, none, Verdict::not_applicable},
                                       {none, absent, Verdict::missing}}) {
    EXPECT_EQ(verdict(a, b), expected);
    EXPECT_EQ(verdict(b, a), expected);
  }
}

TEST(Judge, IdentitiesNeedNoRuns) {
  Claims claims = claims_of(kAboveHalf);
  claims.claims[0].kind = ClaimKind::identity;
  EXPECT_EQ(World().judge_one(claims).verdict, Verdict::identity);
  World against;
  against.add_all("diff_v2", "loss", {0, 0.01, 0});
  const ClaimResult result = against.judge_one(claims);
  EXPECT_EQ(result.verdict, Verdict::identity);
  EXPECT_EQ(result.parts[0].verdict, Verdict::refuted);  // shown, not judged
}

TEST(Judge, TheSmallestSizeDecidesUnlessEveryOneMust) {
  const std::string every = part(
      R"("measure": "loss", "comparison": "value", "of": "diff", "direction": "above", "threshold": 0.5,
         "sizes": "every")");
  World world;
  world.add_all("diff_v2", "loss", {2, 2.01, 2}).add_all("diff_v2", "loss", {0, 0.01, 0}, "large");
  const ClaimResult one = world.judge_one(claims_of(kAboveHalf));
  EXPECT_EQ(one.verdict, Verdict::supported);
  ASSERT_EQ(one.parts.size(), 1u);
  EXPECT_EQ(one.sensitivity[0].size, "large");
  EXPECT_EQ(one.sensitivity[0].verdict, Verdict::refuted);
  const ClaimResult both = world.judge_one(claims_of(every));
  EXPECT_EQ(both.verdict, Verdict::refuted);
  ASSERT_EQ(both.parts.size(), 2u);
  EXPECT_EQ(both.parts[0].verdict, Verdict::supported);
}

// As in the preset `small`: retrieval has a size of its own, smaller than those of the texts.
TEST(Judge, SizesBelongToTheirTrack) {
  const auto about = [](const std::string& track) {
    return R"({"measure": "loss", "comparison": "gain", "of": "diff", "against": "twin", "reference": "score",
               "track": ")" +
           track + R"(", "reference_track": "language", "direction": "above", "threshold": 0, "sizes": "every"})";
  };
  World world;
  world.observations().sizes = {{"language", {"small", "large"}}, {"retrieval", {"needles"}}};
  for (int64_t seed = 0; seed < 4; ++seed) {
    const double e = 1 + 1e-3 * static_cast<double>(seed * seed % 5);
    world.add("diff_v2", seed, "loss", 1 * e, "needles", "retrieval");
    world.add("softmax", seed, "loss", 4, "needles", "retrieval");
    world.add("diff_v2", seed, "score", 2 * e).add("softmax", seed, "score", 4);
    world.add("diff_v2", seed, "score", 0.1, "large").add("softmax", seed, "score", 4, "large");
    world.add("diff_v2", seed, "loss", 2).add("softmax", seed, "loss", 8);
    world.add("diff_v2", seed, "loss", 2 * e, "large").add("softmax", seed, "loss", 2 / e, "large");
  }
  const ClaimResult across = world.judge_one(claims_of(about("retrieval")));
  ASSERT_EQ(across.parts.size(), 1u);
  EXPECT_EQ(across.parts[0].size, "needles");
  EXPECT_EQ(across.verdict, Verdict::supported) << "beside the smallest of the other track, not its last";
  EXPECT_EQ(across.parts[0].estimate.seeds, 4);

  const ClaimResult same = world.judge_one(claims_of(about("language")));
  ASSERT_EQ(same.parts.size(), 2u);
  EXPECT_EQ(same.parts[0].size, "small");
  EXPECT_EQ(same.parts[0].verdict, Verdict::supported);
  EXPECT_EQ(same.parts[1].size, "large");
  EXPECT_EQ(same.parts[1].verdict, Verdict::refuted) << "beside the same size, where the other track has it";

  world.observations().sizes.erase("retrieval");
  std::erase_if(world.observations().all, [](const Observation& each) { return each.track == "retrieval"; });
  const Claims claims = claims_of(about("retrieval"));
  const ClaimResult none = world.judge_one(claims);
  EXPECT_EQ(none.verdict, Verdict::missing);
  ASSERT_EQ(none.parts.size(), 1u) << "a row that says so";
  EXPECT_TRUE(to_json(none, claims)["parts"][0]["size"].is_null());
  EXPECT_EQ(to_json(none, claims)["parts"][0]["note"], "no runs on retrieval");
}

TEST(Judge, OtherMembersAndMeasuresMoveNoVerdict) {
  const Claims claims = claims_of(
      kLower, R"(, "sensitivity": [{"measure": "score", "comparison": "value", "of": "diff", "track": "language",
                                    "direction": "above", "threshold": 0}])");
  World world;
  world.add_all("softmax", "loss", {5, 5.1, 5.2}).add_all("diff_v2", "loss", {2, 2.1, 2.21});
  world.add_all("diff_v1", "loss", {8, 8.1, 8.21}).add_all("wide", "loss", {1, 1.1, 1.21});
  world.add_all("diff_v2", "score", {-1, -1, -1.01});
  const ClaimResult result = world.judge_one(claims);
  EXPECT_EQ(result.verdict, Verdict::supported);
  std::vector<std::string> seen;
  for (const PartResult& each : result.sensitivity) {
    if (each.size != "small") continue;
    EXPECT_EQ(each.verdict, Verdict::refuted);
    for (const MemberValue& value : each.values) seen.push_back(value.member);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"diff_v2", "diff_v1", "softmax", "diff_v2", "wide"}));
}

TEST(Judge, OrderDoesNotMatter) {
  std::mt19937_64 random(15);
  World world = Pairs{7}.draw(5, 4.5, random);
  world.add("diff_v1", 3, "loss", 2.5).add("diff_v2", 9, "loss", kNan).add("wide", 1, "loss", std::nullopt);
  const Claims claims = claims_of(kLower + "," + kAboveHalf);
  const std::string before = to_json(world.judge_one(claims), claims).dump();
  for (int i = 0; i < 5; ++i) {
    std::shuffle(world.observations().all.begin(), world.observations().all.end(), random);
    EXPECT_EQ(to_json(world.judge_one(claims), claims).dump(), before);
  }
}

TEST(Judge, SeedsNeededWouldDecide) {
  const Claims claims = claims_of(kAboveHalf);
  const auto result = [&](int64_t seeds, double middle, double sd) {
    World world;
    world.add_all("diff_v2", "loss", values_of(seeds, middle, sd));
    return world.judge_one(claims).parts[0];
  };
  for (const double middle : {0.9, 0.1}) {  // to be supported, to be refuted
    const PartResult now = result(3, middle, 0.6);
    ASSERT_EQ(now.verdict, Verdict::undecided);
    ASSERT_TRUE(now.seeds_needed);
    EXPECT_GT(*now.seeds_needed, 3);
    EXPECT_EQ(result(*now.seeds_needed - 1, middle, 0.6).verdict, Verdict::undecided);
    EXPECT_EQ(result(*now.seeds_needed, middle, 0.6).verdict, middle > 0.5 ? Verdict::supported : Verdict::refuted);
  }
  EXPECT_FALSE(result(3, 0.5001, 0.6).seeds_needed);  // more than anyone would train
  EXPECT_FALSE(result(8, 9, 0.6).seeds_needed);       // decided
  EXPECT_EQ(result(2, 9, 0.6).seeds_needed, 3);       // never decided below three
  // "No worse than the floor" with a mean above 0: the floor shrinks as seeds come, so that fewer than there are would
  // have supported. Softmax's SD is 1, the differences' 0.1: at 12 seeds 0.408 against 0.35 ± 0.0635, undecided.
  const std::vector<double> softmax = values_of(12, 0, 1), change = values_of(12, 0.35, 0.1);
  World world;
  world.add_all("softmax", "loss", softmax);
  for (size_t i = 0; i < 12; ++i) world.add("diff_v2", static_cast<int64_t>(i), "loss", softmax[i] + change[i]);
  const PartResult no_worse = world.judge_one(claims_of(kNoWorse)).parts[0];
  EXPECT_EQ(no_worse.verdict, Verdict::undecided);
  EXPECT_EQ(no_worse.seeds_needed, 22);  // √(2/22) = 0.3015 < 0.35 − 2.0796·0.1/√22 = 0.3057, at 21 0.3086 > 0.3045
}

TEST(Judge, JsonHasAllKeysAndNullForWhatThereIsNot) {
  const Claims claims = claims_of(kLower);
  World world;
  world.add_all("softmax", "loss", {5, 5.1, 5.2}).add_all("diff_v2", "loss", {2, 2.1, 2.21});
  const auto json = to_json(world.judge_one(claims), claims);
  for (const char* key : {"id", "source", "name", "statement", "measure", "threshold", "floor", "detectable", "effect",
                          "values", "verdict", "decides", "note", "parts", "sensitivity"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["verdict"], "supported");
  EXPECT_EQ(json["threshold"], 0);
  EXPECT_NEAR(json["values"]["softmax"]["mean"].get<double>(), 5.1, 1e-12);
  EXPECT_EQ(json["values"]["diff_v2"]["seeds"], 3);
  EXPECT_NEAR(json["parts"][0]["mean"].get<double>(), (2 + 2.1 + 2.21) / 3 - 5.1, 1e-12);
  EXPECT_TRUE(json["effect"].is_null());
  const Claims within = claims_of(
      part(R"("measure": "loss", "comparison": "within", "of": "diff", "reference": "score", "direction": "above",
              "threshold": 0)"));
  world.add_all("diff_v2", "score", {7, 8, 9});
  const auto inside = to_json(world.judge_one(within), within)["parts"][0];
  EXPECT_NEAR(inside["values"]["diff_v2"]["mean"].get<double>(), (2 + 2.1 + 2.21) / 3, 1e-12);
  EXPECT_EQ(inside["reference_values"]["diff_v2"]["mean"], 8);
  EXPECT_TRUE(json["parts"][0]["reference_values"].empty());
  // Of several parts the claim shows the numbers of the one that decides.
  const Claims two = claims_of(kLower + "," + kAboveHalf + "," + kRatio);
  const auto decided = to_json(world.judge_one(two), two);
  EXPECT_EQ(decided["verdict"], "refuted");
  EXPECT_EQ(decided["decides"], 2);
  EXPECT_EQ(decided["threshold"], 0.3);
  EXPECT_EQ(json["decides"], 0);
  const auto empty = to_json(World().judge_one(claims), claims);
  for (const char* key : {"verdict", "floor", "detectable"}) EXPECT_TRUE(empty[key].is_null()) << key;
  EXPECT_TRUE(empty["parts"][0]["mean"].is_null());
  EXPECT_TRUE(empty["values"]["softmax"]["mean"].is_null());
}

TEST(Judge, WithoutRunsOnlyIdentitiesHaveAVerdict) {
  const Claims claims = parse_claims(std::string(claims_text()), "study/claims.json");
  const auto results = judge(claims, {});
  ASSERT_EQ(results.size(), 24u);
  for (const ClaimResult& result : results)
    EXPECT_EQ(result.verdict, result.claim.id == 7 ? Verdict::identity : Verdict::missing);
}

TEST(Judge, BadObservations) {
  World unknown, twice;
  unknown.add("softmax", 0, "loss", 1, "huge");
  twice.add("softmax", 0, "loss", 1).add("softmax", 0, "loss", 2);
  const Claims claims = claims_of(kLower);
  test::expect_error([&] { unknown.judge_one(claims); }, ErrorCode::usage, {"huge-softmax-0", "small, large"});
  test::expect_error([&] { twice.judge_one(claims); }, ErrorCode::usage, {"small-softmax-0", "loss stands twice"});
}

}  // namespace
}  // namespace unchain::study
