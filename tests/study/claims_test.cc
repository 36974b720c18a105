#include "study/claims.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "support/temporary_folder.h"

namespace unchain::study {
namespace {

Claims shipped() {
  return parse_claims(std::string(claims_text()), "study/claims.json");
}

// What was fixed before the first run, once more in full: a change of the file alone does not pass.
TEST(Claims, AreThoseThatWereFixed) {
  struct Row {
    int64_t id;
    const char *measure, *comparison, *of, *against, *reference, *track, *direction, *threshold;
  };
  const std::vector<Row> rows = {
      {1, "a2_block_rank_entropy", "value", "diff_v2", "", "", "language", "inside", "2 5"},
      {2, "a2_layers_in_rank_band", "value", "diff_v2", "", "", "language", "above", "0.9"},
      {3, "a2_explained_by_place", "value", "diff_v2", "", "", "language", "above", "0.5"},
      {3, "a2_explained_by_place", "within", "diff_v2", "", "a1_explained_by_place", "language", "above", "0"},
      {4, "needle_key_mass", "ratio", "diff_v2", "softmax", "", "retrieval", "above", "0.3"},
      {5, "entropy_normalised", "within", "diff_v2", "", "a1_entropy_normalised", "language", "below", "0"},
      {5, "entropy_normalised", "difference", "diff_v2", "softmax", "", "language", "below", "0"},
      {6, "non_key_small_or_negative_share", "value", "diff_v2", "", "", "language", "above", "0.5"},
      {6, "non_key_small_or_negative_share", "difference", "diff_v2", "softmax", "", "language", "above", "0"},
      {7, "row_sum_off_share", "value", "diff_v2", "", "", "language", "above", "0"},
      {8, "rescaled_over_one_share", "value", "diff_v2", "", "", "language", "above", "0"},
      {9, "attribution_key_share", "difference", "diff_v2", "softmax", "", "retrieval", "above", "0"},
      {10, "key_mass_auc", "value", "diff_v2", "", "", "retrieval", "above", "0.6"},
      {11, "loss_nats", "difference", "held_00", "diff_v2", "", "language", "above", "-floor"},
      {11, "loss_nats", "difference", "held_02", "diff_v2", "", "language", "above", "-floor"},
      {11, "loss_nats", "difference", "held_05", "diff_v2", "", "language", "above", "-floor"},
      {11, "loss_nats", "difference", "held_08", "diff_v2", "", "language", "above", "-floor"},
      {12, "gain_task_correlation", "value", "diff_v2", "", "", "language", "above", "0.3"},
      {12, "gain_last_third_nats", "within", "diff_v2", "", "gain_other_layers_nats", "language", "above", "0"},
      {13, "needle_error", "gain", "diff_v2", "softmax", "token_error", "retrieval", "above", "0"},
      {14, "loss_nats", "difference", "diff_v2", "softmax", "", "language", "below", "0"},
      {15, "loss_nats", "difference", "lowrank_diff", "diff_v2", "", "language", "below", "floor"},
      {16, "needle_accuracy", "difference", "diff_v2", "softmax", "", "retrieval", "above", "0"},
      {16, "needle_accuracy", "difference", "lowrank_diff", "diff_v2", "", "retrieval", "above", "-floor"},
      {17, "parameters", "ratio", "diff_v2", "softmax", "", "language", "inside", "0.08 0.12"},
      {17, "parameters_without_embeddings", "ratio", "diff_v2", "softmax", "", "language", "inside", "0.08 0.12"},
      {17, "parameters", "ratio", "lowrank_diff", "softmax", "", "language", "inside", "-0.03 0.02"},
      {17, "parameters_without_embeddings", "ratio", "lowrank_diff", "softmax", "", "language", "inside", "-0.03 0.02"},
      {18, "loss_fixed_a2_nats", "within", "diff_v2", "", "loss_full_maps_nats", "language", "below", "floor"},
      {18, "loss_fixed_a2_nats", "within", "diff_v2", "", "loss_fixed_a1_nats", "language", "below", "0"},
      {19, "loss_nats", "difference", "lowrank_diff", "diff_v2", "", "language", "below", "floor"},
      {20, "noise_removes_share", "value", "diff_v2", "", "", "language", "above", "0"},
      {20, "noise_removes_share", "within", "diff_v2", "", "random_removes_share", "language", "above", "0"},
      {21, "negative_mass", "value", "diff_v2", "", "", "language", "above", "0.01"},
      {22, "head_cosine_distance", "difference", "diff_v2", "softmax", "", "language", "above", "0"},
      {22, "head_cka_distance", "difference", "diff_v2", "softmax", "", "language", "above", "0"},
      {23, "hessian_negative_share", "difference", "diff_v2", "softmax", "", "language", "below", "0"},
      {24, "head_importance_gini", "difference", "diff_v2", "softmax", "", "language", "below", "0"},
  };
  const Claims claims = shipped();
  EXPECT_EQ(claims.level, 0.95);
  size_t row = 0;
  for (const Claim& claim : claims.claims) {
    EXPECT_EQ(claim.source, claim.id <= 20 ? "seed" : "paper");
    EXPECT_EQ(claim.kind, claim.id == 7 ? ClaimKind::identity : ClaimKind::measured);
    for (const Part& part : claim.parts) {
      ASSERT_LT(row, rows.size());
      const Row& expected = rows[row++];
      SCOPED_TRACE(expected.id);
      EXPECT_EQ(claim.id, expected.id);
      EXPECT_EQ(part.measure, expected.measure);
      EXPECT_EQ(kComparisons[static_cast<size_t>(part.comparison)], expected.comparison);
      EXPECT_EQ(claims.roles.at(part.of), expected.of);
      EXPECT_EQ(part.against.empty() ? "" : claims.roles.at(part.against), expected.against);
      EXPECT_EQ(part.reference, expected.reference);
      EXPECT_EQ(part.track, expected.track);
      EXPECT_EQ(part.reference_track, "language" == part.track || claim.id == 13 ? "language" : "retrieval");
      EXPECT_EQ(kDirections[static_cast<size_t>(part.direction)], expected.direction);
      const std::string threshold = part.floor_sign > 0   ? "floor"
                                    : part.floor_sign < 0 ? "-floor"
                                    : part.direction == Direction::inside
                                        ? fmt::format("{:g} {:g}", part.low, part.high)
                                        : fmt::format("{:g}", part.low);
      EXPECT_EQ(threshold, expected.threshold);
      EXPECT_EQ(part.every_size, claim.id == 2);
    }
  }
  EXPECT_EQ(row, rows.size());
  ASSERT_EQ(claims.claims.size(), 24u);
}

TEST(Claims, EveryMeasureIsDocumentedAndUsed) {
  const Claims claims = shipped();
  const std::string page = test::read_file(std::string(UNCHAIN_SOURCE_DIR) + "/docs/claims.md");
  std::set<std::string> used;
  for (const Claim& claim : claims.claims) {
    for (const auto* parts : {&claim.parts, &claim.sensitivity})
      for (const Part& part : *parts) used.insert({part.measure, part.reference});
  }
  used.erase("");
  for (const auto& [name, measure] : claims.measures) {
    EXPECT_NE(page.find("| `" + name + "` | " + measure.unit + " |"), std::string::npos) << name;
    EXPECT_TRUE(used.contains(name)) << name;
  }
  // And the page names no measure that the file has not, but for those that it says no claim asks for.
  for (size_t at = page.find("\n| `"); at != std::string::npos; at = page.find("\n| `", at + 1)) {
    const std::string name = page.substr(at + 4, page.find('`', at + 4) - at - 4);
    const std::string row = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
    EXPECT_EQ(claims.measures.contains(name), !row.ends_with("| – |")) << name;
  }
}

const char* const kSmall = R"({
  "level": 0.95,
  "roles": {"diff": "diff_v2", "twin": "softmax"},
  "beside": {"of": {"diff": ["diff_v1"]}},
  "measures": {"loss": {"unit": "nats", "tokens": 256, "rows": "all", "layers": "all", "over": "tokens"}},
  "claims": [{"id": 1, "source": "seed", "name": "n", "statement": "s", "kind": "measured", "note": "n", "parts": [
    {"measure": "loss", "comparison": "difference", "of": "diff", "against": "twin", "track": "language",
     "direction": "below", "threshold": 0.5, "effect": 2}]}]
})";

Claims with(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse_claims(text.replace(at, from.size(), to), "c.json");
}

TEST(Claims, Values) {
  const Claims claims = parse_claims(kSmall, "c.json");
  const Part& part = claims.claims[0].parts[0];
  EXPECT_EQ(part.low, 0.5);
  EXPECT_EQ(part.high, 0.5);
  EXPECT_EQ(part.effect, 2);
  EXPECT_EQ(part.reference_track, "language");
  EXPECT_FALSE(part.every_size);
  EXPECT_EQ(claims.measures.at("loss").tokens, 256);
  EXPECT_FALSE(claims.measures.at("loss").count);
  EXPECT_EQ(claims.beside_of.at("diff"), std::vector<std::string>{"diff_v1"});
  const Part band = with(R"("below", "threshold": 0.5)", R"("inside", "threshold": [1, 2])").claims[0].parts[0];
  EXPECT_EQ(band.low, 1);
  EXPECT_EQ(band.high, 2);
  EXPECT_EQ(with("0.5", "\"-floor\"").claims[0].parts[0].floor_sign, -1);
}

TEST(Claims, BadFiles) {
  const auto expect = [](const std::string& from, const std::string& to, std::initializer_list<std::string> parts) {
    SCOPED_TRACE(to);
    test::expect_error([&] { with(from, to); }, ErrorCode::usage, parts);
  };
  expect("\"level\": 0.95", "\"level\": 95", {"c.json: level is 95", "between 0 and 1", "docs/claims.md"});
  expect("\"level\"", "\"levle\"", {"levle is no key", "level"});
  expect("\"measure\": \"loss\"", "\"measure\": \"lass\"", {"claims[0].parts[0].measure is \"lass\"", "measures"});
  expect("\"difference\"", "\"quotient\"", {"claims[0].parts[0].comparison is \"quotient\"", "within, ratio"});
  expect("\"of\": \"diff\", ", "\"of\": \"dif\", ", {"parts[0].of is \"dif\"", "roles"});
  expect("\"of\": \"diff\", ", "", {"parts[0].of is missing"});
  expect("\"against\": \"twin\"", "\"against\": \"diff_v1\"", {"parts[0].against is \"diff_v1\"", "roles"});
  expect("\"against\": \"twin\", ", "", {"parts[0].against is missing", "difference"});
  expect("\"difference\"", "\"value\"", {"parts[0].against is \"twin\"", "not to be there", "value"});
  expect("\"difference\"", "\"gain\"", {"parts[0].reference is missing", "gain"});
  expect("\"against\": \"twin\"", "\"reference_track\": \"language\", \"against\": \"twin\"",
         {"parts[0].reference_track", "not to be there"});
  expect("\"difference\", \"of\": \"diff\", \"against\": \"twin\"", "\"ratio\", \"of\": \"diff\"",
         {"parts[0].reference is missing", "ratio where against is missing"});
  expect("\"track\": \"language\"", "\"track\": \"speech\"", {"parts[0].track", "language or retrieval"});
  expect("\"below\"", "\"under\"", {"parts[0].direction is \"under\"", "above, below, inside"});
  expect("\"below\"", "\"inside\"", {"parts[0].threshold is 0.5", "[low, high]"});
  expect("\"below\", \"threshold\": 0.5", "\"inside\", \"threshold\": [2, 1]", {"parts[0].threshold is [2,1]"});
  expect("0.5", "\"flour\"", {"parts[0].threshold is \"flour\"", "-floor"});
  expect("0.5", "[1, 2]", {"parts[0].threshold is [1,2]", "a number"});
  expect("\"effect\": 2", "\"effect\": \"2\"", {"parts[0].effect is \"2\"", "a number"});
  expect("\"effect\"", "\"efect\"", {"claims[0].parts[0].efect is no key", "effect"});
  expect("\"effect\": 2", "\"sizes\": \"all\"", {"parts[0].sizes is \"all\"", "smallest, every"});
  expect("\"kind\": \"measured\"", "\"kind\": 3", {"claims[0].kind is 3", "text"});
  expect("\"kind\": \"measured\"", "\"kind\": \"true\"", {"claims[0].kind", "measured, identity"});
  expect("\"source\": \"seed\"", "\"source\": \"hearsay\"", {"claims[0].source", "seed or paper"});
  expect("\"id\": 1", "\"id\": \"1\"", {"claims[0].id", "whole number"});
  expect("\"note\": \"n\", ", "", {"claims[0].note is missing"});
  expect("\"unit\": \"nats\", ", "", {"measures.loss.unit is missing"});
  expect("\"tokens\": 256", "\"tokens\": 0.5", {"measures.loss.tokens is 0.5", "whole number"});
  expect("\"over\": \"tokens\"", "\"over\": \"tokens\", \"count\": 1", {"measures.loss.count is 1", "true or false"});
  expect("\"over\": \"tokens\"", "\"over\": \"tokens\", \"windows\": \"mode\"", {"measures.loss.windows", "median"});
  expect("{\"diff\": \"diff_v2\", \"twin\": \"softmax\"}", "7", {"roles is 7", "role to member"});
  expect("{\"diff\": [\"diff_v1\"]}", "{\"dif\": [\"diff_v1\"]}", {"beside.of.dif", "roles"});
  expect("[\"diff_v1\"]", "\"diff_v1\"", {"beside.of.diff", "a list of members"});
  expect("{\"of\": {\"diff\"", "{\"off\": {\"diff\"", {"beside.off is no key", "beside.of"});
  expect("\"parts\": [", "\"parts\": [], \"sensitivity\": [", {"claims[0].parts is []", "a part or more"});
  test::expect_error([] { parse_claims("{", "c.json"); }, ErrorCode::format, {"c.json"});
  std::string twice = kSmall;
  const size_t begin = twice.find("{\"id\""), end = twice.rfind(']');
  twice.insert(begin, twice.substr(begin, end - begin) + ",");
  test::expect_error([&] { parse_claims(twice, "c.json"); }, ErrorCode::usage, {"claims[1].id is 1", "no other claim"});
}

}  // namespace
}  // namespace unchain::study
