#include "train/config.h"

#include <map>

#include "base/file.h"
#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

namespace fs = std::filesystem;
using train::parse_config;
using train::RunConfig;

const std::string kGood = R"({
  // A comment.
  "model": {"hidden_size": 32, "attention": {"preset": "diff_v2"}},
  "data": {"train": "a.txt", "valid": ["b.txt", "c.txt"], "vocabulary": "v", /* another */ "needles": {"share": 0.5}},
  "train": {"tokens": 1e6, "context": 128, "batch_tokens": 4096}
})";

RunConfig with(const std::vector<std::string>& settings) {
  return parse_config(kGood, "c.json", settings);
}

TEST(TrainConfig, ReadsKeysCommentsAndDefaults) {
  const RunConfig config = with({});
  EXPECT_EQ(config.model["attention"]["preset"], "diff_v2");
  EXPECT_EQ(config.data.train, std::vector<std::string>{"a.txt"});
  EXPECT_EQ(config.data.valid, (std::vector<std::string>{"b.txt", "c.txt"}));
  EXPECT_EQ(config.data.needles.share, 0.5);
  EXPECT_EQ(config.data.needles.count, 4);
  EXPECT_EQ(config.train.tokens, 1000000);
  EXPECT_EQ(config.train.rows(), 32);
  EXPECT_EQ(config.train.steps(), 245);  // 244.1, the last step whole
  EXPECT_EQ(config.train.schedule, "cosine");
  EXPECT_EQ(config.train.betas, (std::vector<double>{0.9, 0.95}));
}

// In the rows of docs/training.md, with their section where they have one of their own there; what an attention may
// have, in those of docs/attention-family.md.
TEST(TrainConfig, EveryKeyIsDocumented) {
  const fs::path docs = fs::path(UNCHAIN_SOURCE_DIR) / "docs";
  const std::string training = read_text(docs / "training.md"), family = read_text(docs / "attention-family.md");
  for (const auto& [section, keys] : train::known_keys()) {
    for (const std::string& key : keys) {
      const bool attention = section == "model.attention";
      std::string shown = section == "data.needles" ? "needles." + key : key;
      if (key == "needles") shown = "needles.share";
      if (section.empty()) {
        EXPECT_NE(training.find("\n### " + key + "\n"), std::string::npos) << key;
        continue;
      }
      const std::string& page = attention ? family : training;
      bool found = false;
      for (size_t line = page.find("\n| "); line != std::string::npos && !found; line = page.find("\n| ", line + 1)) {
        const std::string first = page.substr(line + 3, page.find(" |", line + 3) - line - 3);
        found = first.find("`" + shown + "`") != std::string::npos;
      }
      EXPECT_TRUE(found) << section << "." << key;
    }
  }
}

TEST(TrainConfig, SettingsReplaceSingleValues) {
  const RunConfig config =
      with({"train.learning_rate=1e-2", "train.schedule=linear", "data.train=[\"x\",\"y\"]", "data.valid=z.txt",
            "model.attention.rank=3", "data.needles.share=0", "train.recompute=true", "train.schedule=\"constant\""});
  EXPECT_EQ(config.train.learning_rate, 1e-2);
  EXPECT_EQ(config.train.schedule, "constant");
  EXPECT_EQ(config.data.train, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(config.data.valid, std::vector<std::string>{"z.txt"});
  EXPECT_EQ(config.model["attention"]["rank"], 3);
  EXPECT_EQ(config.model["attention"]["preset"], "diff_v2");
  EXPECT_EQ(config.data.needles.share, 0);
  EXPECT_TRUE(config.train.recompute);
}

TEST(TrainConfig, WrittenOutItReadsBackTheSame) {
  const auto json = train::to_json(with({"train.seed=7"}));
  EXPECT_EQ(train::to_json(parse_config(json.dump(), "again")), json);
  EXPECT_EQ(train::first_difference(json, json, train::Compared::all), "");
}

TEST(TrainConfig, UnknownKeysNameTheNearest) {
  const auto expect = [](const std::string& setting, std::initializer_list<std::string> parts) {
    expect_error([&] { with({setting}); }, ErrorCode::usage, parts);
  };
  expect("train.lerning_rate=1", {"train.lerning_rate is no key", "train.learning_rate"});
  expect("data.needle.share=1", {"data.needle is no key", "data.needles"});
  expect("data.needles.shore=1", {"data.needles.shore", "data.needles.share"});
  expect("model.hiden_size=1", {"model.hiden_size", "model.hidden_size"});
  expect("model.attention.presett=softmax", {"model.attention.presett", "model.attention.preset"});
  expect("trian.tokens=1", {"trian is no key", "train"});
  expect_error([] { parse_config(R"({"trane": {}})", "c.json"); }, ErrorCode::usage, {"c.json", "trane", "train"});
}

TEST(TrainConfig, WrongTypesAndRangesAreErrors) {
  const auto expect = [](const std::string& setting, const std::string& part) {
    const std::string key = setting.substr(0, setting.find('='));
    expect_error([&] { with({setting}); }, ErrorCode::usage, {key, part});
  };
  expect("train.learning_rate=fast", "a number from 0");
  expect("train.learning_rate=-1", "a number from 0");
  expect("train.context=0", "whole number from 1");
  expect("train.context=1.5", "whole number");
  expect("train.context=1e300", "whole number");
  expect("train.tokens=\"1000\"", "whole number");
  expect("train.warmup=1.5", "from 0 to 1");
  expect("train.betas=[0.9]", "two numbers");
  expect("train.betas=[0.9,1]", "two numbers");
  expect("train.recompute=1", "true or false");
  expect("train.dtype=f16", "f32 or bf16");
  expect("train.schedule=step", "cosine, linear or constant");
  expect("train.keep=0", "whole number from 1");
  expect("train.min_learning_rate=1", "above train.learning_rate");
  expect("train.batch_tokens=100", "multiple of train.context 128; take 128");
  expect("data.train=3", "a file name");
  expect("data.train=[1]", "a file name");
  expect("data.needles.form=triple", "pair or sentence");
  expect_error(
      [&] {
        with({"data.needles.share=0", "data.needles.alone=0.1"});
      },
      ErrorCode::usage, {"data.needles.alone is 0.1", "data.needles.share is 0"});
  expect("data.needles.share=2", "from 0 to 1");
  expect("train=3", "an object");
  expect("model=x", "an object");
  expect_error([] { with({"train.clip"}); }, ErrorCode::usage, {"--set train.clip", "key=value"});
  expect_error([] { with({"train.clip.x=1"}); }, ErrorCode::usage, {"train.clip"});
}

TEST(TrainConfig, WhatIsMissingIsSaid) {
  const auto expect = [](const std::string& text, const std::string& part) {
    expect_error([&] { parse_config(text, "c.json"); }, ErrorCode::usage, {"c.json", part});
  };
  expect("{}", "data.train is missing");
  expect(R"({"data": {"train": "a"}})", "data.vocabulary is missing");
  expect(R"({"data": {"train": "a", "vocabulary": "v"}})", "train.tokens is missing");
  expect("[]", "expected an object");
  expect_error([] { parse_config("{\"train\": ", "c.json"); }, ErrorCode::format, {"c.json", "JSON"});
}

TEST(TrainConfig, ExtendsTakesWhatTheFileLeavesOut) {
  const TemporaryFolder folder;
  write_file(folder / "base.json", kGood);
  write_file(folder / "member.json",
             R"({"extends": "base.json", "model": {"attention": {"preset": "sink"}}, "train": {"clip": 2}})");
  const RunConfig config = train::read_config(folder / "member.json", {"train.clip=3"});
  EXPECT_EQ(config.model["attention"]["preset"], "sink");
  EXPECT_EQ(config.model["hidden_size"], 32);
  EXPECT_EQ(config.train.clip, 3);
  write_file(folder / "circle.json", R"({"extends": "circle.json"})");
  expect_error([&] { train::read_config(folder / "circle.json", {}); }, ErrorCode::usage, {"circle"});
  write_file(folder / "lost.json", R"({"extends": "none.json"})");
  expect_error([&] { train::read_config(folder / "lost.json", {}); }, ErrorCode::io, {"none.json"});
  write_file(folder / "bad_base.json", R"({"train": {"clap": 1}})");
  write_file(folder / "bad.json", R"({"extends": "bad_base.json"})");
  expect_error([&] { train::read_config(folder / "bad.json", {}); }, ErrorCode::usage, {"train.clap", "train.clip"});
}

TEST(TrainConfig, DifferencesAreNamedUnlessTheyChangeNoWeight) {
  using train::Compared;
  const auto difference = [](const std::string& setting, Compared compared = Compared::with_effect) {
    return train::first_difference(train::to_json(with({})), train::to_json(with({setting})), compared);
  };
  EXPECT_EQ(difference("train.learning_rate=1e-2"), "train.learning_rate");
  EXPECT_EQ(difference("train.micro_batch=2"), "train.micro_batch");
  EXPECT_EQ(difference("data.train=other.txt"), "data.train.0");
  EXPECT_EQ(difference("data.needles.count=2"), "data.needles.count");
  EXPECT_EQ(difference("model.attention.rank=3"), "model.attention.rank");
  EXPECT_EQ(difference("train.keep=9"), "");
  EXPECT_EQ(difference("train.save_every=9"), "");
  EXPECT_EQ(difference("train.recompute=true"), "");
  EXPECT_EQ(difference("train.save_every=9", Compared::all), "train.save_every");
}

// The files of configs/ are read, and each is of the size that its folder says.
TEST(TrainConfig, TheNamedConfigurationsAreSound) {
  const std::filesystem::path root = UNCHAIN_SOURCE_DIR "/configs";
  const std::map<std::string, std::pair<double, double>> sizes = {
      {"1m", {0.9e6, 1.4e6}}, {"4m", {3.5e6, 5.5e6}}, {"16m", {14e6, 18e6}}, {"100m", {90e6, 115e6}}};
  for (const auto& [size, range] : sizes) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(root / size)) {
      SCOPED_TRACE(entry.path().string());
      const RunConfig config = train::read_config(entry.path(), {});
      EXPECT_GT(config.train.steps(), 100);
      EXPECT_EQ(config.data.valid.size(), 2u);
      nlohmann::json keys = config.model;
      const double pieces = size == "100m" ? 32768 : size == "16m" ? 8192 : 2048;
      const double width = keys["hidden_size"], inner = keys["intermediate_size"], layers = keys["num_hidden_layers"];
      const double kv = keys["num_key_value_heads"].get<double>() / keys["num_attention_heads"].get<double>();
      const double count = pieces * width + layers * width * (width * (2 + 2 * kv) + 3 * inner + 2) + width;
      EXPECT_GE(count, range.first);
      EXPECT_LE(count, range.second);
      ++files;
    }
    EXPECT_EQ(files, 11) << size;
  }
}

}  // namespace
}  // namespace unchain::test
