#include "study/summary.h"

#include <gtest/gtest.h>

namespace unchain::study {
namespace {

using nlohmann::ordered_json;

ordered_json run(const std::string& track, const std::string& member, int seed, double loss, double accuracy) {
  return {{"track", track},
          {"size", "s"},
          {"member", member},
          {"seed", seed},
          {"pilot", false},
          {"parameters", member == "softmax" ? 100 : 125},
          {"tokens_per_s", 10 * (seed + 1)},
          {"analysis_seconds", 30 - 10 * seed},
          {"loss_nats", loss},
          {"bits_per_byte", loss / 2},
          {"needle", {{{"accuracy", accuracy}, {"low", accuracy - 0.1}, {"high", accuracy + 0.1}, {"chance", 0.25}}}}};
}

TEST(Summary, MeansOverSeedsWithTheirIntervals) {
  const Claims claims = parse_claims(std::string(claims_text()), "claims");
  ordered_json pilot = run("language", "softmax", 100, 9, 0.9), failed = run("language", "diff_v2", 2, 1, 1);
  pilot["pilot"] = true;
  failed = {{"track", "language"}, {"size", "s"},    {"member", "diff_v2"},
            {"seed", 2},           {"pilot", false}, {"failed", "NaN"}};
  const auto rows = summarize({pilot, run("language", "softmax", 0, 3, 0.5), run("language", "diff_v2", 0, 2, 0.9),
                               failed, run("language", "softmax", 1, 5, 0.7), run("retrieval", "softmax", 0, 14, 0.95)},
                              claims);
  ASSERT_EQ(rows.size(), 3u);
  const MemberSummary &softmax = rows[0], &diff = rows[1], &retrieval = rows[2];
  EXPECT_EQ(softmax.member, "softmax");
  EXPECT_EQ(softmax.seeds, 2);
  EXPECT_EQ(softmax.failed, 0);
  EXPECT_EQ(softmax.parameters, 100);
  EXPECT_EQ(softmax.to_softmax, 0.0);
  // 3 and 5: a mean of 4, and t(0.975, 1) = 12.7062 times SD/√2 = 1.
  EXPECT_DOUBLE_EQ(softmax.loss_nats->mean, 4);
  EXPECT_NEAR(softmax.loss_nats->interval->low, 4 - 12.7062, 1e-3);
  EXPECT_NEAR(softmax.bits_per_byte->interval->high, 2 + 12.7062 / 2, 1e-3);
  EXPECT_DOUBLE_EQ(softmax.needle_accuracy->mean, 0.6);
  EXPECT_EQ(softmax.needle_accuracy->interval->low, 0) << "cut";
  EXPECT_EQ(softmax.needle_accuracy->interval->high, 1) << "cut";
  EXPECT_EQ(softmax.needle_chance, 0.25);
  EXPECT_EQ(softmax.tokens_per_s, 15.0);
  EXPECT_EQ(softmax.analysis_seconds, 25.0);

  EXPECT_EQ(diff.seeds, 1);
  EXPECT_EQ(diff.failed, 1);
  EXPECT_DOUBLE_EQ(*diff.to_softmax, 0.25);
  EXPECT_EQ(diff.loss_nats->mean, 2);
  EXPECT_FALSE(diff.loss_nats->interval);
  EXPECT_NEAR(diff.needle_accuracy->interval->low, 0.8, 1e-12) << "over its questions";

  EXPECT_EQ(retrieval.track, "retrieval");
  EXPECT_FALSE(retrieval.loss_nats) << "no claim asks for the loss of a model that saw no text";
  EXPECT_EQ(retrieval.needle_accuracy->interval->high, 1);
}

TEST(Summary, OfFailedRunsAlone) {
  const Claims claims = parse_claims(std::string(claims_text()), "claims");
  const auto rows = summarize(
      {{{"track", "language"}, {"size", "s"}, {"member", "sink"}, {"seed", 0}, {"pilot", false}, {"failed", "NaN"}}},
      claims);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].seeds, 0);
  EXPECT_EQ(rows[0].failed, 1);
  EXPECT_FALSE(rows[0].parameters);
  EXPECT_FALSE(rows[0].needle_accuracy);
}

}  // namespace
}  // namespace unchain::study
