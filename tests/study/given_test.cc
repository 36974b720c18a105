#include "study/given.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "study/judge.h"
#include "study/observe.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace unchain::study {
namespace {

Claims shipped() {
  return parse_claims(std::string(claims_text()), "study/claims.json");
}

TEST(Given, MembersAndRolesWithTheirModelsInOrder) {
  const auto models = parse_given({"softmax=a,b", "diff=c,d,e", "variant=f", "wide=g"}, shipped());
  ASSERT_EQ(models.size(), 7u);
  const std::vector<std::tuple<std::string, std::string, int64_t>> expected = {
      {"softmax", "a", 0}, {"softmax", "b", 1},      {"diff_v2", "c", 0}, {"diff_v2", "d", 1},
      {"diff_v2", "e", 2}, {"lowrank_diff", "f", 0}, {"wide", "g", 0}};
  for (size_t i = 0; i < models.size(); ++i)
    EXPECT_EQ(std::tuple(models[i].member, models[i].path, models[i].seed), expected[i]);
}

TEST(Given, BadInput) {
  const Claims claims = shipped();
  const auto expect = [&](const std::vector<std::string>& models, std::initializer_list<std::string> parts) {
    test::expect_error([&] { parse_given(models, claims); }, ErrorCode::usage, parts);
  };
  expect({"models/softmax"}, {"--models models/softmax", "MEMBER=PATH"});
  expect({"=a"}, {"MEMBER=PATH"});
  expect({"softmaks=a"}, {"no claim speaks of softmaks", "softmax"});
  expect({"softmax=a,,b"}, {"empty path"});
  expect({"softmax="}, {"empty path"});
  expect({"diff=a", "diff_v2=b"}, {"diff_v2 stands twice", "diff_v2=A,B"});
}

// "llama", a softmax that can be trained here, and "variant", a lowrank_diff that cannot.
void write_models(const test::TemporaryFolder& folder) {
  test::write_tiny_model(folder / "llama", {});
  test::TinyModel variant{"gemma3", "gemma_like", false, {}};
  variant.attention = "lowrank_diff";
  test::write_tiny_model(folder / "variant", variant);
}

// Two windows a text, four of the calibration's, and prompts of two needles.
GivenOptions few_needles() {
  GivenOptions options;
  options.keys = {2, 3, 4};
  options.needle.form = text::NeedleForm::pair;
  options.needle.lengths = {96};
  options.needle.needles = 2;
  options.needle.samples = 2;
  return options;
}

// A softmax that can be trained here, and a variant that cannot: what needs gradients is missing there alone.
TEST(Given, WhatIsMeasuredIsWhatClaimsAsk) {
  const test::TemporaryFolder folder;
  write_models(folder);
  const Claims claims = shipped();
  GivenOptions options = few_needles();
  for (int i = 0; i < 30; ++i) options.text += "The river meets the sea " + std::to_string(i) + " times, and stays.\n";
  options.calibration = options.text;
  options.window = 64;
  std::vector<std::string> notes;
  options.on_note = [&](const std::string& note) { notes.push_back(note); };
  const auto results = measure_given(
      parse_given({"softmax=" + (folder / "llama").string(), "variant=" + (folder / "variant").string()}, claims),
      options);
  ASSERT_EQ(results.size(), 4u);
  ASSERT_EQ(notes.size(), 4u) << "each model is named, the one of another vocabulary, and the one without gradients";
  EXPECT_NE(notes[2].find("other tokens than " + (folder / "llama").string()), std::string::npos) << notes[2];
  EXPECT_NE(notes[3].find("gradients"), std::string::npos);
  EXPECT_EQ(results[0]["track"], "language");
  EXPECT_EQ(results[1]["track"], "retrieval");
  EXPECT_EQ(results[1]["needle"][0]["asked"], 10);
  EXPECT_EQ(results[2]["member"], "lowrank_diff");
  const auto has = [&](int result, const char* name) { return results[result]["measures"].contains(name); };
  for (const int language : {0, 2}) EXPECT_TRUE(has(language, "loss_nats") && has(language, "entropy_normalised"));
  EXPECT_TRUE(has(0, "head_importance_gini") && !has(2, "head_importance_gini"));
  EXPECT_TRUE(has(1, "attribution_key_share") && !has(3, "attribution_key_share"));
  EXPECT_TRUE(has(1, "needle_key_mass") && has(3, "needle_key_mass"));
  // A value is what the claims' statistic makes of the windows that were kept, and those were kept that claims draw.
  for (const auto& result : results) {
    EXPECT_EQ(result["context"], 64);
    for (const auto& [name, measured] : result["measures"].items()) {
      const auto info = claims.measures.find(name);
      if (info == claims.measures.end()) continue;
      SCOPED_TRACE(name);
      Windows windows;
      for (const auto& text : measured["windows"]) {
        windows.emplace_back();
        for (const auto& window : text)
          windows.back().push_back(window.is_array() ? window.get<Window>() : Window{window.get<double>()});
      }
      const auto value = over_windows(info->second.windows, windows);
      ASSERT_EQ(value.has_value(), measured["value"].is_number());
      if (!value) continue;
      // Numbers are kept to eight digits; the variance of ln A2 is a difference of such.
      EXPECT_NEAR(*value, measured["value"].get<double>(), 2e-7 * std::max(1.0, std::abs(*value)));
    }
  }
  // One model a member decides nothing, and what takes training has no runs.
  const auto judged = judge(claims, observe(claims, results));
  for (const ClaimResult& claim : judged) {
    EXPECT_NE(claim.verdict, Verdict::supported) << claim.claim.id;
    EXPECT_NE(claim.verdict, Verdict::refuted) << claim.claim.id;
    const bool takes_training = claim.claim.id == 11 || claim.claim.id == 23;
    EXPECT_TRUE(!takes_training || claim.verdict == Verdict::missing) << claim.claim.id;
  }
}

// Windows of 16 tokens of a text in which nothing comes again so soon: no row has a target of induction, no token
// completes a sequence that was there before. What rests on those is not measured, and nothing is decided by it,
// however many models there are.
TEST(Given, WindowsWithoutKeyTokensDecideNothing) {
  const test::TemporaryFolder folder;
  write_models(folder);
  const Claims claims = shipped();
  GivenOptions options = few_needles();
  for (int i = 0; i < 4; ++i) options.text += "qwertyuiopasdfghjklzxcvbnmQWERTYUIOPASDFGHJKLZXCVBNM1234567890\n";
  options.calibration = options.text;
  options.window = 16;
  const std::string softmax = (folder / "llama").string(), diff = (folder / "variant").string();
  const auto results =
      measure_given(parse_given({fmt::format("softmax={0},{0},{0}", softmax), fmt::format("variant={0},{0},{0}", diff),
                                 fmt::format("diff={0},{0},{0}", diff)},
                                claims),
                    options);
  ASSERT_EQ(results.size(), 18u);
  const std::set<std::string> without = {"non_key_small_share", "non_key_small_or_negative_share", "ngram_error"};
  for (const auto& result : results) {
    if (result["track"] != "language") continue;
    for (const std::string& name : without) EXPECT_TRUE(result["measures"][name]["value"].is_null()) << name;
    EXPECT_TRUE(result["measures"]["loss_nats"]["value"].is_number());
    for (const auto& layer : result["layers"]["sensitivity_nats"]) EXPECT_TRUE(layer.is_null());
  }
  const std::set<std::string> members = {"softmax", "diff_v2", "lowrank_diff"};
  size_t parts = 0;
  for (const ClaimResult& claim : judge(claims, observe(claims, results))) {
    SCOPED_TRACE(claim.claim.id);
    std::vector<PartResult> all = claim.parts;
    all.insert(all.end(), claim.sensitivity.begin(), claim.sensitivity.end());
    for (const PartResult& part : all) {
      if (!without.contains(part.part.measure) && part.part.measure != "gain_task_correlation") continue;
      // Other members stand beside: of those there are no models.
      if (!std::ranges::all_of(part.values, [&](const MemberValue& value) { return members.contains(value.member); })) {
        EXPECT_EQ(part.verdict, Verdict::missing) << part.part.measure;
        continue;
      }
      ++parts;
      EXPECT_EQ(part.verdict, Verdict::not_applicable) << part.part.measure;
      EXPECT_FALSE(part.estimate.interval) << part.part.measure;
    }
    const bool decided = claim.verdict == Verdict::supported || claim.verdict == Verdict::refuted;
    const bool lacks = std::ranges::any_of(
        claim.parts, [](const PartResult& part) { return part.verdict == Verdict::not_applicable; });
    const bool refuted =
        std::ranges::any_of(claim.parts, [](const PartResult& part) { return part.verdict == Verdict::refuted; });
    EXPECT_TRUE(!lacks || !decided || refuted);
  }
  EXPECT_GE(parts, 4u);
}

}  // namespace
}  // namespace unchain::study
