// unchain train: configuration in, run folder out; stopped, killed, resumed, on several ranks.
#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/rng.h"
#include "cli/program_folder.h"
#include "support/environment.h"

namespace unchain::test {
namespace {

using nlohmann::json;

// Those that this process may run on.
int processors() {
  cpu_set_t allowed;
  EXPECT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  return CPU_COUNT(&allowed);
}

class CliTrain : public Cli {
 protected:
  void SetUp() override {
    const std::string vocabulary = UNCHAIN_TEST_DATA "/vocabulary";
    const json config = {
        {"model", small_model()},
        {"data",
         {{"train", vocabulary + "/text.txt"}, {"valid", vocabulary + "/text.txt"}, {"vocabulary", vocabulary}}},
        {"train",
         {{"tokens", 20 * 256},
          {"context", 32},
          {"batch_tokens", 256},
          {"micro_batch", 4},
          {"evaluate_every", 10},
          {"save_every", 5},
          {"dtype", "f32"}}}};
    write_file(own_ / "config.json", "// small\n" + config.dump(1));
  }
  std::vector<std::string> command(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> result = {"train", own("config.json"), "-o", own(out), "--threads", "1"};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  std::vector<json> metrics(const std::string& name) {
    std::vector<json> lines;
    std::istringstream in(read_file(own_ / (name + "/metrics.jsonl")));
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  // The last step whose line is whole; 0 if there is none.
  int64_t newest_step(const std::string& name) {
    std::error_code none;
    if (!std::filesystem::exists(own_ / (name + "/metrics.jsonl"), none)) return 0;
    std::string lines = read_file(own_ / (name + "/metrics.jsonl"));
    lines.resize(lines.rfind('\n') + 1);
    if (lines.empty()) return 0;
    const size_t begin = lines.rfind('\n', lines.size() - 2) + 1;
    return json::parse(lines.substr(begin))["step"];
  }
  // The step of the newest checkpoint that is whole; 0 if there is none.
  int64_t newest_checkpoint(const std::string& name) {
    int64_t newest = 0;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(own_ / (name + "/checkpoints"), none)) {
      const std::string folder = entry.path().filename().string();
      if (folder.size() == 13) newest = std::max<int64_t>(newest, std::stol(folder.substr(5)));
    }
    return newest;
  }
  static std::vector<std::string> leftovers(const std::filesystem::path& folder) {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".tmp" || extension == ".incomplete" || extension == ".removed")
        result.push_back(entry.path().string());
    }
    return result;
  }
};

TEST_F(CliTrain, TrainsAModelThatEveryCommandReads) {
  const json result = run_json(command("a"));
  expect_keys(result, {"loss_nats", "perplexity", "tokens_per_s", "bits_per_byte", "tokens", "steps", "folder",
                       "memory_bytes", "threads", "version", "config"});
  EXPECT_EQ(result["steps"], 20);
  EXPECT_EQ(result["finished"], true);
  EXPECT_LT(result["loss_nats"], 6.0);  // ln 512 = 6.24
  const json lines = metrics("a");
  ASSERT_EQ(lines.size(), 20u);
  expect_keys(lines[0], {"step", "tokens", "loss_nats", "learning_rate", "gradient_norm", "gradient_norms", "lambda",
                         "tokens_per_s", "memory_bytes"});
  expect_keys(lines[0]["gradient_norms"], {"embedding", "attention", "feed_forward", "norm"});
  EXPECT_EQ(lines[0]["lambda"].size(), 2u);
  expect_keys(json::parse(read_file(own_ / "a/run.json")), {"config", "version", "threads", "processor", "ranks"});
  const json sample =
      json::parse(read_file(own_ / "a/samples.jsonl").substr(read_file(own_ / "a/samples.jsonl").find('\n')));
  EXPECT_EQ(sample["step"], 20);
  EXPECT_FALSE(sample["text"].get<std::string>().empty());
  // The loss of the run is what `perplexity` finds in the model that it wrote.
  const json again =
      run_json({"perplexity", own("a"), UNCHAIN_TEST_DATA "/vocabulary/text.txt", "--window", "32", "--dtype", "f32"});
  EXPECT_NEAR(again["nll_nats"].get<double>(), result["loss_nats"].get<double>(), 0.01);
  EXPECT_EQ(run_json({"inspect", own("a")})["parameters"], 34976);
  EXPECT_EQ(run_program({"generate", own("a"), "--prompt", "The ", "-n", "4"}).status, 0);
}

TEST_F(CliTrain, EveryMemberTrainsAndResumesToTheSameBits) {
  for (const std::string preset : {"diff_v1", "diff_v2", "shared_diff", "grouped_diff", "lowrank_diff", "fixed_diff",
                                   "gated", "off_by_one", "sink"}) {
    SCOPED_TRACE(preset);
    std::vector<std::string> more = {"--set", "model.attention.preset=" + preset, "--set", "train.tokens=1024"};
    if (preset == "grouped_diff") more.insert(more.end(), {"--set", "model.attention.ratio=4"});
    more.insert(more.end(), {"--set", "train.save_every=2"});
    EXPECT_EQ(run_program(command(preset, more)).status, 0);
    const std::string weights = read_file(own_ / preset / "model/model.safetensors");
    std::filesystem::remove_all(own_ / preset / "model");
    std::filesystem::remove_all(own_ / preset / "checkpoints/step-00000004");
    more.push_back("--resume");
    const RunResult again = run_program(command(preset, more));
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_NE(again.err.find("step-00000002"), std::string::npos) << again.err;
    EXPECT_EQ(read_file(own_ / preset / "model/model.safetensors"), weights);
  }
}

// A second group of 4 query and 2 key heads of 8 numbers takes 1536 weights a layer from 32; λ has 32 in both.
TEST_F(CliTrain, TellsTheParametersUnderBothAccountings) {
  const auto begins = [&](const std::string& accounting, const std::string& kv_heads, const std::string& line) {
    const RunResult result = run_program(
        command(accounting + kv_heads,
                {"--set", "model.attention.preset=diff_v1", "--set", "model.attention.accounting=" + accounting,
                 "--set", "model.num_key_value_heads=" + kv_heads, "--set", "train.tokens=256"}));
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.err.find(line + "\n"), std::string::npos) << result.err;
  };
  begins("halved", "2",
         "diff_v1 with heads halved: 35040 parameters, +0.18 % against softmax with 34976; with a second group added "
         "38112, +8.97 %");
  begins("added", "2",
         "diff_v1 with a second group added: 38112 parameters, +8.97 % against softmax with 34976; with heads halved "
         "35040, +0.18 %");
  // One key head cannot be halved: 2·2·8·32 numbers fewer in the baseline, 5·8·32 a layer more.
  begins("added", "1", "diff_v1 with a second group added: 36576 parameters, +7.73 % against softmax with 33952");
}

TEST_F(CliTrain, ASignalSavesAndTellsHowToGoOn) {
  ASSERT_EQ(run_program(command("whole", {"--set", "train.tokens=102400"})).status, 0);
  RunOptions options;
  options.signal = SIGTERM;
  bool sent = false;
  options.kill_when = [&] {
    if (sent || !std::filesystem::exists(own_ / "a/checkpoints/step-00000005")) return false;
    return sent = true;
  };
  const RunResult stopped = run_program(command("a", {"--set", "train.tokens=102400"}), options);
  EXPECT_EQ(stopped.status, -SIGTERM) << stopped.err;
  EXPECT_NE(stopped.err.find("--resume goes on"), std::string::npos) << stopped.err;
  EXPECT_FALSE(std::filesystem::exists(own_ / "a/model"));
  EXPECT_TRUE(leftovers(own_ / "a").empty());
  const size_t done = metrics("a").size();
  EXPECT_LT(done, 400u);
  ASSERT_EQ(run_program(command("a", {"--set", "train.tokens=102400", "--resume"})).status, 0);
  EXPECT_EQ(metrics("a").size(), 400u);
  EXPECT_EQ(read_file(own_ / "a/model/model.safetensors"), read_file(own_ / "whole/model/model.safetensors"));
}

TEST_F(CliTrain, ThreadsAreThoseOfTheOptionOrOfOpenMp) {
  const auto threads = [&](const std::string& out, const std::string& option) {
    EXPECT_EQ(run_program({"train", own("config.json"), "-o", own(out), "--threads", option}).status, 0);
    return json::parse(read_file(own_ / out / "run.json"))["threads"];
  };
  {
    const EnvironmentVariable three("OMP_NUM_THREADS", "3");
    EXPECT_EQ(threads("environment", "0"), 3);
    EXPECT_EQ(threads("option", "2"), 2);
  }
  const EnvironmentVariable none("OMP_NUM_THREADS", std::nullopt);
  EXPECT_EQ(threads("neither", "0"), processors());
}

// Twenty kills that hit, each a moment after a drawn step that the run had not reached before, however fast the
// machine is; a run that arrives before its kill is held against the unbroken one, and begins again.
TEST_F(CliTrain, KilledAtRandomTwentyTimesItStillArrives) {
  constexpr int64_t kSaveEvery = 5;  // as the configuration says
  const std::vector<std::string> more = {"--set", "train.tokens=51200", "--resume"};
  ASSERT_EQ(run_program(command("whole", more)).status, 0);
  const std::string whole = read_file(own_ / "whole/model/model.safetensors");
  const auto expect_arrived = [&] {
    EXPECT_TRUE(leftovers(own_ / "a").empty());
    EXPECT_EQ(metrics("a").size(), 200u);
    EXPECT_EQ(read_file(own_ / "a/model/model.safetensors"), whole);
  };
  Rng rng(20);
  int64_t saved = 0, done = 0;
  int kills = 0, past_a_checkpoint = 0;
  for (int runs = 0; kills < 20; ++runs) {
    ASSERT_LT(runs, 200) << kills << " kills hit";
    const int64_t target = done + 1 + static_cast<int64_t>(9 * rng.uniform());
    const std::chrono::duration<double> wait(0.004 * rng.uniform());
    std::optional<std::chrono::steady_clock::time_point> reached;
    RunOptions options;
    options.kill_when = [&] {
      const auto now = std::chrono::steady_clock::now();
      if (!reached && newest_step("a") >= target) reached = now;
      return reached && now - *reached >= wait;
    };
    const RunResult killed = run_program(command("a", more), options);
    if (killed.status == 0) {
      expect_arrived();
      std::filesystem::remove_all(own_ / "a");
      saved = done = 0;
      continue;
    }
    ASSERT_EQ(killed.status, -SIGKILL) << killed.err;
    ++kills;
    const int64_t before = saved;
    done = newest_step("a");
    saved = newest_checkpoint("a");
    EXPECT_GE(done, target);
    EXPECT_GE(saved, before);
    // A step begins when the checkpoint of the one before it is whole: that of step 5 is there once step 6 is told.
    EXPECT_GE(saved, (done - 1) / kSaveEvery * kSaveEvery);
    if (done <= kSaveEvery) continue;
    EXPECT_GT(saved, 0);
    ++past_a_checkpoint;
  }
  EXPECT_GT(past_a_checkpoint, 10);
  const RunResult last = run_program(command("a", more));
  ASSERT_EQ(last.status, 0) << last.err;
  expect_arrived();
}

TEST_F(CliTrain, AFullDiskEndsTheRunAndLeavesItSound) {
  RunOptions full;
  full.largest_file = 200'000;  // the model has 140 kB, the means twice that
  expect_failure(command("a"), 3, {"optimizer.safetensors", "cannot write"}, full);
  EXPECT_TRUE(std::filesystem::is_empty(own_ / "a/checkpoints"));
  EXPECT_TRUE(leftovers(own_ / "a").empty());
  EXPECT_EQ(run_program(command("a", {"--resume"})).status, 0);
}

TEST_F(CliTrain, BadInput) {
  expect_failure(command("a", {"--set", "train.contex=3"}), 2, {"train.contex is no key", "train.context"});
  expect_failure(command("a", {"--set", "train.clip"}), 2, {"--set train.clip", "key=value"});
  expect_failure(command("a", {"--set", "model.num_attention_heads=3"}), 3, {"model"});
  expect_failure(command("a", {"--set", "model.attention.preset=dif_v2"}), 3, {"dif_v2", "diff_v2"});
  expect_failure(command("a", {"--set", "data.train=none.txt"}), 3, {"none.txt"});
  expect_failure(command("a", {"--set", "train.context=3200", "--set", "train.batch_tokens=3200"}), 3,
                 {"text.txt", "train.context"});
  write_file(own_ / "binary", std::string("\x7f"
                                          "ELF\0\0",
                                          6));
  expect_failure(command("a", {"--set", "data.train=" + own("binary")}), 3, {"binary", "UTF-8"});
  expect_failure({"train", own("none.json"), "-o", own("a")}, 3, {"none.json"});
  EXPECT_FALSE(std::filesystem::exists(own_ / "a/run.json"));
  ASSERT_EQ(run_program(command("b")).status, 0);
  expect_failure(command("b"), 2, {"holds a run already", "--resume"});
  expect_failure(command("b", {"--resume", "--set", "train.clip=2"}), 2, {"train.clip is 2.0 now"});
}

// --- several ranks

TEST_F(CliTrain, RanksAgreeWithOneRankToRounding) {
  if (!find_mpirun()) return;
  ASSERT_EQ(run_program(command("one")).status, 0);
  for (const int ranks : {2, 4}) {
    const std::string name = std::to_string(ranks);
    const RunResult result = run_ranks(ranks, command(name, {"--json", "-"}));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.json()["ranks"], ranks);
    const auto one = metrics("one"), many = metrics(name);
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(many[i]["loss_nats"].get<double>(), one[i]["loss_nats"].get<double>(), 1e-4) << i;
  }
  EXPECT_EQ(run_program(command("4", {"--resume"})).status, 0);  // read with another number of ranks
}

TEST_F(CliTrain, ThreadsOfARankAreThoseOfOpenMpOrItsShareOfTheProcessors) {
  if (!find_mpirun()) return;
  const auto threads = [&](const std::string& out, const std::optional<std::string>& value) {
    const EnvironmentVariable variable("OMP_NUM_THREADS", value);
    const RunResult result = run_ranks(2, {"train", own("config.json"), "-o", own(out)});
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(read_file(own_ / out / "run.json"))["threads"].get<int>();
  };
  const int share = std::max(1, processors() / 2);
  const int other = share == 1 ? 2 : 1;  // never what a rank takes by itself
  EXPECT_EQ(threads("environment", std::to_string(other)), other);
  EXPECT_EQ(threads("neither", std::nullopt), share);
}

TEST_F(CliTrain, WhatFailsOnEveryRankIsToldOnce) {
  if (!find_mpirun()) return;
  const RunResult result = run_ranks(2, command("a", {"--set", "train.contex=1"}));
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_NE(result.err.find("unchain: rank 0: --set train.contex=1"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("unchain: rank 1"), std::string::npos) << result.err;
}

// Whichever it is: the other one waits for it, and must not do so for ever.
TEST_F(CliTrain, ARankThatAloneFailsEndsAllWithItsMessage) {
  if (!find_mpirun()) return;
  for (const char* folder : {"whole", "empty"}) std::filesystem::create_directories(own_ / folder);
  write_file(own_ / "whole/text.txt", read_file(UNCHAIN_TEST_DATA "/vocabulary/text.txt"));
  for (const size_t rank : {0, 1}) {
    const auto expect = [&](const std::string& what, const RunResult& result, int status, const std::string& cause) {
      SCOPED_TRACE(fmt::format("rank {}: {}", rank, what));
      EXPECT_EQ(result.status, status) << result.err;
      EXPECT_NE(result.err.find(fmt::format("unchain: rank {}: {}", rank, cause)), std::string::npos) << result.err;
      EXPECT_EQ(result.err.find(fmt::format("unchain: rank {}: ", 1 - rank)), std::string::npos) << result.err;
    };
    std::vector ranks(2, command("option"));
    ranks[rank] = command("option", {"--set", "train.contex=1"});
    expect("no such key", run_ranks(ranks), 2, "--set train.contex=1: train.contex is no key");
    // A machine on which the text is not there.
    std::vector folders(2, own("whole"));
    folders[rank] = own("empty");
    const auto words = command("file", {"--set", "data.train=text.txt"});
    expect("no text", run_ranks({words, words}, folders), 3, "text.txt: cannot open");
  }
  EXPECT_FALSE(std::filesystem::exists(own_ / "option"));
  EXPECT_FALSE(std::filesystem::exists(own_ / "file/run.json"));
}

// New and resumed; the first test of ranks has the folder shared.
TEST_F(CliTrain, ARunFolderThatNotAllRanksSeeIsFound) {
  if (!find_mpirun()) return;
  const std::vector<std::string> folders = {own("first"), own("second")};
  for (const std::string& folder : folders) std::filesystem::create_directories(folder);
  std::vector<std::string> words = command("a", {"--resume"});
  words[3] = "run";
  for (const char* when : {"new", "resumed"}) {
    SCOPED_TRACE(when);
    const RunResult result = run_ranks({words, words}, folders);
    EXPECT_EQ(result.status, 3) << result.err;
    EXPECT_NE(result.err.find("unchain: rank 1: run: is not the folder that the first rank sees"), std::string::npos)
        << result.err;
  }
}

// Else a run that is shorter for one of them would end in ranks that wait for each other.
TEST_F(CliTrain, RanksThatAreToldDifferentThingsAreFound) {
  if (!find_mpirun()) return;
  for (const std::string setting : {"train.tokens=2560", "train.save_every=4"}) {
    SCOPED_TRACE(setting);
    const RunResult result = run_ranks({command(setting), command(setting, {"--set", setting})});
    EXPECT_EQ(result.status, 2) << result.err;
    const std::string key = setting.substr(0, setting.find('='));
    EXPECT_NE(result.err.find("unchain: rank 1: " + key), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("on the first rank"), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace unchain::test
