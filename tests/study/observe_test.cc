#include "study/observe.h"

#include <gtest/gtest.h>

#include <cmath>

namespace unchain::study {
namespace {

using nlohmann::ordered_json;

ordered_json run(const std::string& size, const std::string& member, int seed, int parameters) {
  return {{"track", "language"},
          {"size", size},
          {"member", member},
          {"seed", seed},
          {"pilot", false},
          {"parameters", parameters},
          {"bits_per_byte", 1.5},
          {"needle", {{{"accuracy", 0.75}}}},
          {"measures",
           {{"loss_nats", {{"value", 3.5}, {"windows", {{3, 4}, {3.5}}}}},
            {"a2_block_rank_entropy", {{"value", nullptr}, {"windows", ordered_json::array()}}}}}};
}

const Observation* find(const Observations& observations, const std::string& member, const std::string& measure) {
  for (const Observation& one : observations.all)
    if (one.member == member && one.measure == measure) return &one;
  return nullptr;
}

TEST(Observe, ReadsMeasuresNeedlesAndFigures) {
  const Claims claims = parse_claims(std::string(claims_text()), "claims");
  ordered_json pilot = run("s", "pilot", 100, 1), failed = run("s", "failed", 0, 1);
  pilot["pilot"] = true;
  failed.erase("measures");
  failed.erase("needle");
  failed["failed"] = "step 3: the loss is not finite";
  const Observations observations =
      observe(claims, {run("large", "softmax", 0, 200), run("small", "softmax", 0, 100), pilot, failed});
  EXPECT_EQ(observations.sizes, (Sizes{{"language", {"s", "small", "large"}}}));
  const Observation* loss = find(observations, "softmax", "loss_nats");
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->size, "large");
  EXPECT_EQ(loss->track, "language");
  EXPECT_EQ(loss->value, 3.5);
  EXPECT_EQ(loss->windows, (Windows{singles({3, 4}), singles({3.5})}));
  EXPECT_EQ(find(observations, "softmax", "needle_accuracy")->value, 0.75);
  EXPECT_EQ(find(observations, "softmax", "needle_error")->value, 0.25);
  EXPECT_EQ(find(observations, "softmax", "parameters")->value, 200);
  EXPECT_EQ(find(observations, "softmax", "bits_per_byte")->value, 1.5);
  // Not applicable: there, without a value. Not measured: not there. Pilots: not there. Failed: NaN for all.
  ASSERT_TRUE(find(observations, "softmax", "a2_block_rank_entropy"));
  EXPECT_FALSE(find(observations, "softmax", "a2_block_rank_entropy")->value);
  EXPECT_FALSE(find(observations, "softmax", "negative_mass"));
  EXPECT_FALSE(find(observations, "pilot", "loss_nats"));
  for (const auto& [name, info] : claims.measures)
    EXPECT_TRUE(std::isnan(find(observations, "failed", name)->value.value_or(0))) << name;
}

TEST(Observe, SizesAreOrderedWithinTheirTrack) {
  const Claims claims = parse_claims(std::string(claims_text()), "claims");
  ordered_json needles = run("needles", "softmax", 0, 50);
  needles["track"] = "retrieval";
  const Observations observations =
      observe(claims, {run("large", "softmax", 0, 200), needles, run("small", "softmax", 0, 100)});
  EXPECT_EQ(observations.sizes, (Sizes{{"language", {"small", "large"}}, {"retrieval", {"needles"}}}));
}

// Five layers, the first without a noise term: the last two are the last third, rounded up.
TEST(Observe, GainsOfLayersBesideTheTwinOfTheSeed) {
  const Claims claims = parse_claims(std::string(claims_text()), "claims");
  ordered_json diff = run("s", "diff_v2", 3, 100), twin = run("s", "softmax", 3, 90),
               other = run("s", "softmax", 4, 90);
  diff["layers"] = {{"gain_nats", {nullptr, 1, 3, 2, 6}}, {"sensitivity_nats", {9, 9, 9, 9, 9}}};
  twin["layers"] = {{"gain_nats", {nullptr, nullptr, nullptr, nullptr, nullptr}},
                    {"sensitivity_nats", {5, 1, 2, 3, 4}}};
  other["layers"] = {{"gain_nats", ordered_json::array()}, {"sensitivity_nats", {5, 4, 3, 2, 1}}};
  const Observations observations = observe(claims, {diff, twin, other});
  EXPECT_EQ(find(observations, "diff_v2", "gain_last_third_nats")->value, 4.0);
  EXPECT_EQ(find(observations, "diff_v2", "gain_other_layers_nats")->value, 2.0);
  // Ranks 1 3 2 4 and 1 2 3 4: 1 − 6·(1 + 1)/(4·15).
  EXPECT_NEAR(find(observations, "diff_v2", "gain_task_correlation")->value.value(), 0.8, 1e-12);
  EXPECT_TRUE(find(observations, "diff_v2", "gain_last_third_nats")->windows.empty());
  // Windows, where they were kept: two of the first text, one of the second.
  const auto flat = [](double x) { return ordered_json{{x, x + 1}, {x + 2}}; };
  diff["layers"]["gain_windows"] = {ordered_json::array(), flat(1), flat(3), flat(2), flat(6)};
  const Observations kept = observe(claims, {diff, twin, other});
  EXPECT_EQ(find(kept, "diff_v2", "gain_last_third_nats")->windows, (Windows{singles({4, 5}), singles({6})}));
  EXPECT_EQ(find(kept, "diff_v2", "gain_other_layers_nats")->windows, (Windows{singles({2, 3}), singles({4})}));
  EXPECT_TRUE(find(kept, "diff_v2", "gain_task_correlation")->windows.empty()) << "those of the twin were not kept";
  // Of each window the gains of the layers with a noise term, then what the twin's layers are needed for.
  twin["layers"]["sensitivity_windows"] = {flat(50), flat(10), flat(20), flat(30), flat(40)};
  const Observations both = observe(claims, {diff, twin, other});
  EXPECT_EQ(find(both, "diff_v2", "gain_task_correlation")->windows,
            (Windows{{{1, 3, 2, 6, 10, 20, 30, 40}, {2, 4, 3, 7, 11, 21, 31, 41}}, {{3, 5, 4, 8, 12, 22, 32, 42}}}));
  // A layer whose windows are other ones, or of which none were kept.
  for (const ordered_json& odd : {ordered_json{{1, 2}}, ordered_json{{1}, {2}}, ordered_json::array()}) {
    twin["layers"]["sensitivity_windows"][2] = odd;
    EXPECT_TRUE(find(observe(claims, {diff, twin, other}), "diff_v2", "gain_task_correlation")->windows.empty()) << odd;
  }
  // A twin that failed is not left out: what is held against it has failed.
  twin.erase("layers");
  twin.erase("measures");
  twin["failed"] = "NaN";
  const Observations beside_failed = observe(claims, {diff, twin, other});
  const Observation* correlation = find(beside_failed, "diff_v2", "gain_task_correlation");
  ASSERT_TRUE(correlation);
  EXPECT_TRUE(std::isnan(correlation->value.value_or(0)));
  // Without a noise term they do not apply.
  ASSERT_TRUE(find(observations, "softmax", "gain_last_third_nats"));
  EXPECT_FALSE(find(observations, "softmax", "gain_last_third_nats")->value);
  EXPECT_FALSE(find(observations, "softmax", "gain_task_correlation")->value);
}

// Softmax loses 1 nat from 100 to 400 parameters, so half a nat is worth a factor of two.
TEST(Observe, ParametersOfASoftmaxOfEqualLoss) {
  const Claims claims = parse_claims(std::string(claims_text()), "claims");
  const auto at_loss = [](ordered_json result, double loss) {
    result["measures"]["loss_nats"]["value"] = loss;
    return result;
  };
  const auto ratio = [&](double small_loss, double large_loss, double loss) {
    const Observations all = observe(
        claims, {at_loss(run("l", "softmax", 0, 400), large_loss), at_loss(run("s", "softmax", 0, 100), small_loss),
                 at_loss(run("l", "softmax", 1, 400), 9), at_loss(run("s", "diff_v2", 0, 110), loss)});
    const Observation* found = find(all, "diff_v2", "equal_loss_parameters_ratio");
    EXPECT_TRUE(found);
    return found ? found->value : std::nullopt;
  };
  EXPECT_NEAR(ratio(4, 3, 3.5).value(), 200.0 / 110, 1e-12);
  EXPECT_NEAR(ratio(4, 3, 4).value(), 100.0 / 110, 1e-12);
  EXPECT_NEAR(ratio(4, 3, 4.5).value(), 50.0 / 110, 1e-12) << "the line goes on";
  EXPECT_NEAR(ratio(4, 3, 2.5).value(), 800.0 / 110, 1e-12);
  EXPECT_FALSE(ratio(3, 4, 3.5)) << "loss that rises with size tells nothing";
  EXPECT_FALSE(find(observe(claims, {run("s", "softmax", 0, 100)}), "softmax", "equal_loss_parameters_ratio"));
}

}  // namespace
}  // namespace unchain::study
