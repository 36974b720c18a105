#include "study/description.h"

#include "support/temporary_folder.h"

namespace unchain::study {
namespace {

const char* const kSmall = R"({
  // two members, two seeds
  "vocabulary_size": 300,
  "data": {"train": "a.txt", "valid": ["b.txt"], "needles": {"share": 0.5}},
  "sizes": {"s": {"model": {"hidden_size": 32}, "train": {"tokens": 1e4, "context": 32, "batch_tokens": 64}}},
  "members": ["softmax", {"name": "held", "preset": "diff_v2", "lambda": 0.5}],
  "seeds": [0, 7],
  "needle": {"form": "pair", "lengths": [64], "depths": [0, 1], "needles": 2, "queries": 2, "samples": 3}
})";

Description with(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse_description(text.replace(at, from.size(), to), "d.json");
}

TEST(Description, PlansSeedBySeedAndMemberByMember) {
  const Description description = parse_description(kSmall, "d.json");
  const auto runs = plan(description, "d.json", "out/vocabulary", {"train.learning_rate=0.5"});
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0].name(), "s-softmax-0");
  EXPECT_EQ(runs[1].name(), "s-held-0");
  EXPECT_EQ(runs[3].name(), "s-held-7");
  for (const PlannedRun& run : runs) {
    EXPECT_EQ(run.config.train.tokens, 10000);
    EXPECT_EQ(run.config.train.seed, run.seed);
    EXPECT_EQ(run.config.train.learning_rate, 0.5);
    EXPECT_EQ(run.config.data.vocabulary, "out/vocabulary");
    EXPECT_EQ(run.config.data.train, std::vector<std::string>{"a.txt"});
    EXPECT_EQ(run.config.model["hidden_size"], 32);
  }
  EXPECT_EQ(runs[1].config.model["attention"], nlohmann::json({{"preset", "diff_v2"}, {"lambda", 0.5}}));
  EXPECT_EQ(description.needle.form, text::NeedleForm::pair);
  EXPECT_EQ(description.needle.lengths, std::vector<int64_t>{64});
  EXPECT_EQ(description.needle.depths, (std::vector<double>{0, 1}));
  EXPECT_EQ(description.needle.queries, 2u);
  EXPECT_EQ(description.needle.samples, 3);
}

TEST(Description, PresetsAreDescriptions) {
  const auto runs = plan(parse_description(std::string(preset("smoke")), "smoke"), "smoke", "v", {});
  EXPECT_EQ(runs.size(), 5u);
  EXPECT_EQ(runs[0].member, "softmax");
}

TEST(Description, BadInput) {
  const auto expect = [](const std::string& from, const std::string& to, std::initializer_list<std::string> parts) {
    SCOPED_TRACE(to);
    test::expect_error([&] { with(from, to); }, ErrorCode::usage, parts);
  };
  expect("\"seeds\"", "\"seed\"", {"d.json", "seed is no key", "seeds", "docs/study.md"});
  expect("\"queries\"", "\"query\"", {"needle.query", "needle.queries"});
  expect("\"vocabulary_size\": 300,", "", {"vocabulary_size is missing"});
  expect("300", "3.5", {"vocabulary_size is 3.5", "whole number"});
  expect("[0, 7]", "[0, 0]", {"seeds names 0 twice"});
  expect("[0, 7]", "[]", {"seeds", "a seed or more"});
  expect("[0, 7]", "[-1]", {"seeds is -1"});
  expect("\"held\"", "\"softmax\"", {"members names softmax twice"});
  expect("\"held\"", "\"../up\"", {"members is \"../up\"", "letters, digits and _"});
  expect("\"name\"", "\"title\"", {"members", "a name"});
  expect("{\"s\":", "{\"a/b\":", {"sizes is \"a/b\""});
  expect("\"train\": {\"tokens\"", "\"trian\": {\"tokens\"", {"sizes.s.trian", "sizes.s.train"});
  expect("[0, 1]", "[0, 50]", {"needle.depths is 50", "from 0 to 1"});
  expect("\"pair\"", "\"pear\"", {"pear"});
  expect("\"a.txt\"", "\"a.txt\", \"vocabulary\": \"v\"", {"data.vocabulary", "leave it out"});
  test::expect_error([] { preset("large"); }, ErrorCode::usage, {"--preset large", "smoke"});
  test::expect_error([] { parse_description("{", "d.json"); }, ErrorCode::format, {"d.json"});
  // What belongs to a training configuration is found when the runs are planned.
  const Description misspelt = with("\"context\"", "\"contex\"");
  test::expect_error([&] { plan(misspelt, "d.json", "v", {}); }, ErrorCode::usage, {"train.contex", "train.context"});
}

}  // namespace
}  // namespace unchain::study
