#include "study/description.h"

#include <map>

#include "support/temporary_folder.h"

namespace unchain::study {
namespace {

const char* const kSmall = R"({
  // two members, two seeds
  "vocabulary_size": 300,
  "sizes": {"s": {"model": {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1,
                            "num_attention_heads": 2}, "train": {"tokens": 1e4, "context": 32, "batch_tokens": 64}}},
  "members": ["softmax", {"name": "held", "preset": "diff_v2", "lambda": 0.5}],
  "seeds": [0, 7],
  "tracks": {
    "language": {
      "data": {"train": "a.txt", "valid": ["b.txt"]},
      "needle": [{"form": "pair", "lengths": [64], "depths": [0, 1], "needles": 2, "queries": 2, "samples": 3}]
    },
    "retrieval": {
      "data": {"train": "a.txt", "valid": ["b.txt"], "needles": {"share": 0.5}},
      "last_words": "words.jsonl",
      "hessian": {"members": ["held"], "seeds": [1, 2, 3]},
      "needle": [{"needles": 2}, {"needles": 4}],
      "pilot": {"members": ["softmax"], "seeds": [100]},
      "runs": [{"seeds": [0]}, {"members": ["held"], "seeds": [1, 2]}]
    }
  },
  "analyses": {"windows": 3}
})";

Description with(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return parse_description(text.replace(at, from.size(), to), "d.json");
}

TEST(Description, PlansPilotsThenSeedBySeedTrackByTrackAndMemberByMember) {
  const Description description = parse_description(kSmall, "d.json");
  const auto runs = plan(description, "d.json", "out/vocabulary", {"train.learning_rate=0.5"});
  std::vector<std::string> names;
  for (const PlannedRun& run : runs) {
    names.push_back(run.name());
    EXPECT_EQ(run.pilot, run.seed == 100);
    EXPECT_EQ(run.config.train.tokens, 10000);
    EXPECT_EQ(run.config.train.seed, run.seed);
    EXPECT_EQ(run.config.train.learning_rate, 0.5);
    EXPECT_EQ(run.config.data.vocabulary, "out/vocabulary");
    EXPECT_EQ(run.config.data.train, std::vector<std::string>{"a.txt"});
    EXPECT_EQ(run.config.data.needles.share, run.track == "retrieval" ? 0.5 : 0);
    EXPECT_EQ(run.config.model["hidden_size"], 32);
    EXPECT_EQ(run.last_words, run.track == "retrieval" ? "words.jsonl" : "");
    EXPECT_EQ(run.hessian, run.track == "retrieval" && run.member == "held" && run.seed > 0);
    EXPECT_EQ(run.config.train.keep, run.hessian ? 1000 : 2);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"retrieval-s-softmax-100", "language-s-softmax-0", "language-s-held-0",
                                             "retrieval-s-softmax-0", "retrieval-s-held-0", "retrieval-s-held-1",
                                             "retrieval-s-held-2", "language-s-softmax-7", "language-s-held-7"}));
  EXPECT_EQ(runs[2].config.model["attention"], nlohmann::json({{"preset", "diff_v2"}, {"lambda", 0.5}}));
  const eval::NeedleOptions& needle = description.tracks[0].needle.at(0);
  EXPECT_EQ(needle.form, text::NeedleForm::pair);
  EXPECT_EQ(needle.lengths, std::vector<int64_t>{64});
  EXPECT_EQ(needle.depths, (std::vector<double>{0, 1}));
  EXPECT_EQ(needle.queries, 2u);
  EXPECT_EQ(needle.samples, 3);
  EXPECT_EQ(description.tracks[1].needle.at(1).needles, 4u);
  EXPECT_EQ(description.analyses.windows, 3);
  EXPECT_EQ(description.analyses.loss_windows, 100);
}

TEST(Description, PresetsAreDescriptions) {
  const auto runs = plan(parse_description(std::string(preset("smoke")), "smoke"), "smoke", "v", {});
  EXPECT_EQ(runs.size(), 5u);
  EXPECT_EQ(runs[0].member, "softmax");
  // Members × seeds: 6 × 8 and 6 × 2 of each track, on text 6 × 3 at 4 M, 4 held λ and 2 hybrids × 3; and two pilots.
  const auto small = plan(parse_description(std::string(preset("small")), "small"), "small", "v", {});
  EXPECT_EQ(small.size(), 2u * (6 * 8 + 6 * 2) + 6 * 3 + 6 * 3 + 2);
  EXPECT_TRUE(small[0].pilot && small[1].pilot && !small[2].pilot);
  // Nine of these have their Hessian looked at.
  EXPECT_EQ(std::ranges::count_if(small, [](const PlannedRun& run) { return run.hessian; }), 9);
  // 6 × 8 at two sizes and on retrieval, 6 × 3 at 16 M, 12 × 3 others on text and 6 × 3 on retrieval, and two pilots.
  const auto full = plan(parse_description(std::string(preset("full")), "full"), "full", "v", {});
  EXPECT_EQ(full.size(), 3u * 6 * 8 + 6 * 3 + 12 * 3 + 6 * 3 + 2);
}

// The control is as large as the member it stands for, at every size: the widths of configs/1m and configs/4m.
TEST(Description, WideIsAsLargeAsAnother) {
  const auto runs = plan(parse_description(std::string(preset("small")), "small"), "small", "v", {});
  std::map<std::string, int64_t> widths;
  for (const PlannedRun& run : runs) {
    const int64_t width = run.config.model["intermediate_size"];
    const auto [at, fresh] = widths.try_emplace(run.size + " " + run.member, width);
    EXPECT_EQ(at->second, width) << run.name();
  }
  EXPECT_EQ(widths.at("1m softmax"), 352);
  EXPECT_EQ(widths.at("1m wide"), 396);
  EXPECT_EQ(widths.at("4m wide"), 792);
  EXPECT_EQ(widths.at("4m diff_v2"), 704);
}

TEST(Description, BadInput) {
  const auto expect = [](const std::string& from, const std::string& to, std::initializer_list<std::string> parts) {
    SCOPED_TRACE(to);
    test::expect_error([&] { with(from, to); }, ErrorCode::usage, parts);
  };
  expect("\"seeds\": [0, 7]", "\"seed\": [0, 7]", {"d.json", "seed is no key", "seeds", "docs/study.md"});
  expect("\"queries\"", "\"query\"", {"needle.query", "needle.queries"});
  expect("\"vocabulary_size\": 300,", "", {"vocabulary_size is missing"});
  expect("300", "3.5", {"vocabulary_size is 3.5", "whole number"});
  expect("[0, 7]", "[0, 0]", {"seeds names 0 twice"});
  expect("[0, 7]", "[]", {"seeds", "a list"});
  expect("[0, 7]", "[-1]", {"seeds is -1"});
  expect("\"held\"", "\"softmax\"", {"members names softmax twice"});
  expect("\"held\"", "\"../up\"", {"members is \"../up\"", "letters, digits and _"});
  expect("\"name\"", "\"title\"", {"members", "a name"});
  expect("{\"s\":", "{\"a/b\":", {"sizes is \"a/b\""});
  expect("\"train\": {\"tokens\"", "\"trian\": {\"tokens\"", {"sizes.s.trian", "sizes.s.train"});
  expect("[0, 1]", "[0, 50]", {"needle.depths is 50", "from 0 to 1"});
  expect("\"pair\"", "\"pear\"", {"pear"});
  expect("\"a.txt\"", "\"a.txt\", \"vocabulary\": \"v\"", {"tracks.language.data.vocabulary", "leave it out"});
  expect("\"language\"", "\"../up\"", {"tracks is \"../up\""});
  expect("\"pilot\"", "\"pilots\"", {"tracks.retrieval.pilots", "pilot"});
  expect("\"pilot\": {\"members\": [\"softmax\"], \"seeds\": [100]},", "",
         {"2 rungs", "tracks.retrieval.pilot is missing"});
  expect("[100]", "[2]", {"pilot.seeds: 2 is a seed of the runs too"});
  expect("[\"held\"], \"seeds\": [1, 2]}", "[\"hold\"], \"seeds\": [1, 2]}",
         {"tracks.retrieval.runs.members is \"hold\"", "softmax, held"});
  expect("\"lambda\": 0.5", "\"lambda\": 0.5, \"as_large_as\": \"soft\"",
         {"members.as_large_as is \"soft\"", "another member"});
  expect("\"words.jsonl\"", "[\"words.jsonl\"]", {"tracks.retrieval.last_words", "path of a file"});
  expect("\"hessian\": {\"members\": [\"held\"]", "\"hessian\": {\"members\": [\"hold\"]",
         {"tracks.retrieval.hessian.members is \"hold\""});
  expect("{\"windows\": 3}", "{\"windows\": 1}", {"analyses.windows is 1"});
  // A run in two groups.
  const Description twice = with("[1, 2]", "[0, 2]");
  test::expect_error([&] { plan(twice, "d.json", "v", {}); }, ErrorCode::usage, {"retrieval-s-held-0"});
  // No such attention, no such net: said before a vocabulary is learned.
  for (const auto& [from, to, found] : {std::tuple{"\"preset\": \"diff_v2\"", "\"preset\": \"diff_v9\"", "diff_v9"},
                                        std::tuple{"\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_size"}}) {
    SCOPED_TRACE(to);
    const Description bad = with(from, to);
    test::expect_error([&] { plan(bad, "d.json", "v", {}); }, ErrorCode::usage, {"d.json: member", "at size s", found});
  }
  test::expect_error([] { preset("large"); }, ErrorCode::usage, {"--preset large", "smoke"});
  test::expect_error([] { parse_description("{", "d.json"); }, ErrorCode::format, {"d.json"});
  // What belongs to a training configuration is found when the runs are planned.
  const Description misspelt = with("\"context\"", "\"contex\"");
  test::expect_error([&] { plan(misspelt, "d.json", "v", {}); }, ErrorCode::usage, {"train.contex", "train.context"});
}

}  // namespace
}  // namespace unchain::study
