// The loop on a model whose gradient is known by hand.
#include "train/run.h"

#include <fstream>
#include <sstream>

#include "train/checkpoint.h"
#include "train/step.h"
#include "train/train_support.h"

namespace unchain::test {
namespace {

using nlohmann::json;
using train::RunConfig;
using train::RunOptions;
using train::RunResult;

class TrainRun : public testing::Test {
 protected:
  RunOptions options(const std::string& name, bool resume = false) {
    RunOptions result;
    result.out = folder_ / name;
    result.cache = folder_ / "cache";
    result.resume = resume;
    result.on_note = [this](const std::string& note) { notes_ += note + "\n"; };
    return result;
  }
  RunResult run(const std::string& name, bool resume = false, const RunConfig& config = small_config(),
                const train::MakeLearner& make = make_bigram()) {
    const auto comm = dist::alone();
    return train::run(config, options(name, resume), *comm, make);
  }
  // Stops after this step.
  RunResult run_until(const std::string& name, int64_t step, bool resume = false) {
    RunOptions o = options(name, resume);
    int64_t now = 0;
    o.stop = [&] { return ++now == step; };
    const auto comm = dist::alone();
    return train::run(small_config(), o, *comm, make_bigram());
  }
  std::string file(const std::string& name) { return read_file(folder_ / name); }
  std::vector<json> metrics(const std::string& name) {
    std::vector<json> lines;
    std::istringstream in(file(name + "/metrics.jsonl"));
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  // All that does not depend on the clock.
  std::vector<json> timeless(const std::string& name) {
    std::vector<json> lines = metrics(name);
    for (json& line : lines) {
      line.erase("tokens_per_s");
      line.erase("memory_bytes");
    }
    return lines;
  }

  TemporaryFolder folder_;
  std::string notes_;
};

TEST_F(TrainRun, WritesItsFolderAndLearns) {
  const RunResult result = run("a");
  EXPECT_EQ(result.step, 20);
  EXPECT_EQ(result.tokens, 20 * 128);
  EXPECT_FALSE(result.stopped);
  const std::vector<json> lines = metrics("a");
  ASSERT_EQ(lines.size(), 20u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_EQ(lines[i].contains("valid_loss_nats"), i == 9 || i == 19);
    EXPECT_EQ(lines[i].contains("update_ratios"), i % 10 == 0);
    for (const char* key : {"tokens", "loss_nats", "learning_rate", "gradient_norm", "gradient_norms", "lambda",
                            "tokens_per_s", "memory_bytes"})
      EXPECT_TRUE(lines[i].contains(key)) << key;
  }
  EXPECT_EQ(lines[0]["lambda"].dump(), "[null,0.5]");
  EXPECT_LT(lines[19]["valid_loss_nats"], lines[0]["loss_nats"]);
  EXPECT_EQ(result.loss_nats, lines[19]["valid_loss_nats"]);
  EXPECT_DOUBLE_EQ(result.perplexity, std::exp(result.loss_nats));
  // 2 checkpoints are kept; each is a model folder and more.
  for (const char* name : {"a/model", "a/checkpoints/step-00000015", "a/checkpoints/step-00000020"}) {
    for (const char* part : {"config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json"})
      EXPECT_TRUE(std::filesystem::exists(folder_ / name / part)) << name << part;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/checkpoints/step-00000010"));
  EXPECT_EQ(file("a/model/model.safetensors"), file("a/checkpoints/step-00000020/model.safetensors"));
  const json description = json::parse(file("a/run.json"));
  EXPECT_EQ(description["config"]["train"]["context"], 32);
  EXPECT_EQ(description["config"]["model"]["vocab_size"], 512);
}

TEST_F(TrainRun, TheSameSeedGivesTheSameBitsAnotherDoesNot) {
  run("a");
  run("b");
  EXPECT_EQ(file("a/model/model.safetensors"), file("b/model/model.safetensors"));
  EXPECT_EQ(timeless("a"), timeless("b"));
  RunConfig other = small_config();
  other.train.seed = 1;
  run("c", false, other);
  EXPECT_NE(file("a/model/model.safetensors"), file("c/model/model.safetensors"));
}

TEST_F(TrainRun, ResumedItIsTheSameRun) {
  run("whole");
  const RunResult stopped = run_until("parts", 7);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.step, 7);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "parts/model"));
  EXPECT_TRUE(run_until("parts", 6, true).stopped);
  EXPECT_EQ(run("parts", true).step, 20);
  for (const char* name : {"model/model.safetensors", "checkpoints/step-00000020/optimizer.safetensors",
                           "checkpoints/step-00000020/state.json"})
    EXPECT_EQ(file(std::string("whole/") + name), file(std::string("parts/") + name)) << name;
  EXPECT_EQ(timeless("whole"), timeless("parts"));
  EXPECT_NE(notes_.find("step-00000013"), std::string::npos) << notes_;
  // Resumed once more there is nothing to do, and the same result.
  EXPECT_EQ(run("parts", true).loss_nats, run("whole", true).loss_nats);
  EXPECT_EQ(timeless("whole"), timeless("parts"));
}

TEST_F(TrainRun, WhatWasWrittenAfterTheCheckpointIsCutOff) {
  run("whole");
  run_until("parts", 7);
  // As if killed in step 8, in the midst of a line and of a checkpoint.
  std::ofstream(folder_ / "parts/metrics.jsonl", std::ios::app) << "{\"step\":8,\"loss_nats\":1}\n{\"step\":9,\"lo";
  std::filesystem::create_directories(folder_ / "parts/checkpoints/step-00000008.1.incomplete");
  std::filesystem::create_directories(folder_ / "parts/model.1.incomplete");
  run("parts", true);
  EXPECT_EQ(timeless("whole"), timeless("parts"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "parts/checkpoints/step-00000008.1.incomplete"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "parts/model.1.incomplete"));
}

TEST_F(TrainRun, FoldersThatAreTakenAreLeftAlone) {
  run("a");
  expect_error([&] { run("a"); }, ErrorCode::usage, {"holds a run already", "--resume"});
  std::filesystem::create_directories(folder_ / "mine");
  write_file(folder_ / "mine/letter.txt", "x");
  expect_error([&] { run("mine"); }, ErrorCode::usage, {"no run folder and not empty"});
  expect_error([&] { run("mine", true); }, ErrorCode::usage, {"no run folder and not empty"});
  expect_error([&] { run("mine/letter.txt"); }, ErrorCode::io, {"letter.txt", "is no folder"});
  EXPECT_EQ(run("new", true).step, 20);  // nothing to resume: it begins
}

TEST_F(TrainRun, ResumeWithAnotherConfigurationNamesTheKey) {
  run_until("a", 7);
  const auto expect = [&](auto change, std::initializer_list<std::string> parts) {
    RunConfig config = small_config();
    change(config);
    expect_error([&] { run("a", true, config); }, ErrorCode::usage, parts);
  };
  expect([](RunConfig& c) { c.train.learning_rate = 1e-2; }, {"train.learning_rate is 0.01 now", "begun with 0.003"});
  expect([](RunConfig& c) { c.train.tokens *= 2; }, {"train.tokens"});
  expect([](RunConfig& c) { c.model["hidden_size"] = 32; }, {"model.hidden_size is 32 now", "16"});
  expect([](RunConfig& c) { c.model["rope_theta"] = 500.0; }, {"model.rope_theta", "absent"});
  RunConfig other = small_config();
  other.train.keep = 1;
  other.train.save_every = 3;
  EXPECT_EQ(run("a", true, other).step, 20);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "a/checkpoints/step-00000020"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/checkpoints/step-00000018"));
}

TEST_F(TrainRun, OtherTextUnderTheSameNameIsFound) {
  RunConfig config = small_config();
  write_file(folder_ / "text.txt", read_file(config.data.train[0]));
  config.data.train = {(folder_ / "text.txt").string()};
  RunOptions o = options("a");
  o.stop = [] { return true; };
  train::run(config, o, *dist::alone(), make_bigram());
  write_file(folder_ / "text.txt", read_file(small_config().data.train[0]) + "More.\n");
  expect_error([&] { run("a", true, config); }, ErrorCode::usage, {"data.train", "begun with"});
}

TEST_F(TrainRun, DamagedCheckpointsAreErrors) {
  run_until("good", 7);
  const std::string step = "checkpoints/step-00000007/";
  const auto expect = [&](const std::string& part, const auto& change, std::initializer_list<std::string> parts) {
    std::filesystem::remove_all(folder_ / "bad");
    std::filesystem::copy(folder_ / "good", folder_ / "bad", std::filesystem::copy_options::recursive);
    std::string bytes = file("good/" + step + part);
    change(bytes);
    write_file(folder_ / "bad" / (step + part), bytes);
    expect_error([&] { run("bad", true); }, ErrorCode::format, parts);
  };
  const auto cut = [](std::string& bytes) { bytes.resize(bytes.size() / 2); };
  expect("model.safetensors", cut, {"model.safetensors"});
  expect("optimizer.safetensors", cut, {"optimizer.safetensors"});
  expect("state.json", cut, {"state.json"});
  expect("state.json", [](std::string& s) { s = "{\"version\": 2}"; }, {"state.json", "version 2"});
  expect("state.json", [](std::string& s) { s = "{\"version\": 1, \"step\": \"x\"}"; }, {"state.json", "damaged"});
  expect("model.safetensors", [](std::string& bytes) { bytes[bytes.size() - 5] ^= 1; }, {"weights", "state.json"});
  expect("model.safetensors", [](std::string& s) { s.replace(s.find("table.bias"), 10, "table.blah"); },
         {"no tensor table.bias"});
}

TEST_F(TrainRun, StopsOnNumbersThatAreNoneWithTheirPlace) {
  const auto nan_gradient = make_bigram([](Bigram& b) {
    b.fail_at = 8;
    b.fail_now = [&b](const model::TrainRows&) { b.parameters()[1].gradient[0] = NAN; };
  });
  expect_error([&] { run("a", false, small_config(), nan_gradient); }, ErrorCode::numeric,
               {"step 8", "table.bias", "newest checkpoint is of step 5"});
  const auto thrown = make_bigram([](Bigram& b) {
    b.fail_at = 3;
    b.fail_now = [](const model::TrainRows&) { throw Error(ErrorCode::numeric, "layer 1: row 2 holds NaN"); };
  });
  expect_error([&] { run("b", false, small_config(), thrown); }, ErrorCode::numeric,
               {"step 3", "layer 1: row 2", "no checkpoint yet"});
  EXPECT_EQ(run("a", true).step, 20);  // the folder is sound
}

TEST_F(TrainRun, SpikesAreRecordedAndTold) {
  RunConfig config = small_config();
  config.train.tokens = 40 * 128;
  const auto spike = make_bigram([](Bigram& b) {
    b.fail_at = 30;
    b.fail_now = [&b](const model::TrainRows&) {
      for (size_t i = 0; i < 512; i += 2) b.parameters()[1].value[i] += 30;
    };
  });
  const RunResult result = run("a", false, config, spike);
  EXPECT_GE(result.spikes, 1);
  const json line = metrics("a")[29];
  ASSERT_TRUE(line.contains("spikes")) << line;
  EXPECT_GT(line["spikes"]["loss_nats"], 6.0);
  EXPECT_NE(notes_.find("step 30: loss_nats leapt"), std::string::npos) << notes_;
}

TEST_F(TrainRun, BadDataIsAnErrorBeforeTheRunBegins) {
  const auto expect = [&](auto change, ErrorCode code, std::initializer_list<std::string> parts) {
    RunConfig config = small_config();
    change(config);
    expect_error([&] { run("x", false, config); }, code, parts);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "x/run.json"));
  };
  expect([](RunConfig& c) { c.train.context = c.train.batch_tokens = 4096; }, ErrorCode::format,
         {"text.txt", "train.context"});
  expect([&](RunConfig& c) { c.data.train = {(folder_ / "none").string()}; }, ErrorCode::io, {"none"});
  expect([&](RunConfig& c) { c.data.vocabulary = (folder_ / "none").string(); }, ErrorCode::io, {"none"});
  expect([](RunConfig& c) { c.model["vocab_size"] = 500; }, ErrorCode::usage,
         {"model.vocab_size", "500", "512 pieces"});
  expect([](RunConfig& c) { c.model["max_position_embeddings"] = 8; }, ErrorCode::usage, {"max_position_embeddings"});
  expect([](RunConfig& c) { c.model.erase("hidden_size"); }, ErrorCode::format, {"model", "hidden_size"});
  write_file(folder_ / "empty.txt", "");
  expect([&](RunConfig& c) { c.data.valid = {(folder_ / "empty.txt").string()}; }, ErrorCode::format, {"empty.txt"});
}

TEST_F(TrainRun, WithoutAValidationTextTheLastStepIsTold) {
  RunConfig config = small_config();
  config.data.valid.clear();
  const RunResult result = run("a", false, config);
  EXPECT_EQ(result.loss_nats, metrics("a")[19]["text_loss_nats"]);
  EXPECT_TRUE(std::isnan(result.bits_per_byte));
  EXPECT_EQ(run("a", true, config).loss_nats, result.loss_nats);
}

TEST_F(TrainRun, RanksAgreeWithOneRankToRounding) {
  run("one");
  const std::vector<json> one = metrics("one");
  // 3 ranks do not divide 4 rows; of 5 ranks one has no rows.
  for (const int64_t ranks : {2, 3, 5}) {
    const std::string name = std::to_string(ranks);
    RunConfig config = small_config();
    config.train.micro_batch = 1;
    const std::string message = on_ranks(ranks, [&](dist::Comm& comm) {
      const RunResult result = train::run(config, options(name), comm, make_bigram());
      EXPECT_EQ(result.step, 20);
    });
    ASSERT_EQ(message, "");
    const std::vector<json> many = metrics(name);
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      for (const char* key : {"loss_nats", "gradient_norm"})
        EXPECT_NEAR(many[i][key].get<double>(), one[i][key].get<double>(), 1e-5) << ranks << " step " << i + 1;
    }
    EXPECT_NEAR(many[19]["valid_bits_per_byte"].get<double>(), one[19]["valid_bits_per_byte"].get<double>(), 1e-6);
  }
}

TEST_F(TrainRun, CheckpointsServeAnyNumberOfRanks) {
  run("whole");
  run_until("parts", 7);
  EXPECT_EQ(on_ranks(2, [&](dist::Comm& c) { train::run(small_config(), options("parts", true), c, make_bigram()); }),
            "");
  EXPECT_NEAR(metrics("whole")[19]["valid_loss_nats"].get<double>(),
              metrics("parts")[19]["valid_loss_nats"].get<double>(), 1e-5);
}

TEST_F(TrainRun, WeightsThatDifferBetweenRanksAreFound) {
  const std::string message = on_ranks(2, [&](dist::Comm& comm) {
    const auto make = make_bigram([&](Bigram& b) { b.parameters()[0].value[7] += comm.rank() == 1 ? 1e-6f : 0; });
    train::run(small_config(), options("a"), comm, make);
  });
  EXPECT_NE(message.find("step 5: 1 of 2 ranks hold other weights"), std::string::npos) << message;
}

// Without a look at them the ranks would meet at other steps, and wait.
TEST_F(TrainRun, RanksThatAreToldDifferentThingsAreFound) {
  const std::string message = on_ranks(2, [&](dist::Comm& comm) {
    RunConfig config = small_config();
    if (comm.rank() == 1) config.train.save_every = 3;
    train::run(config, options("a"), comm, make_bigram());
  });
  EXPECT_NE(message.find("train.save_every is 3 here and 5 on the first rank"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/run.json"));
}

TEST_F(TrainRun, OneRunAtATimeInAFolder) {
  RunOptions o = options("a");
  std::string second;
  o.on_step = [&](const auto& line) {
    if (line["step"] == 3) second = error_of([&] { run("a", true); })->what();
  };
  train::run(small_config(), o, *dist::alone(), make_bigram());
  EXPECT_NE(second.find("another run is writing it"), std::string::npos) << second;
}

// Gradients of two micro batches, and with documents of unequal numbers of answer tokens, are those of the whole step.
TEST_F(TrainRun, MeansAreOverTheWholeStep) {
  RunConfig config = small_config();
  config.data.needles = {.share = 0.5, .form = "pair", .count = 2};
  config.train.context = 64;
  config.train.batch_tokens = 8 * 64;
  const auto comm = dist::alone();
  const train::RunData data = train::open_data(config, train::open_vocabulary(config), folder_ / "cache", *comm);
  std::vector<std::vector<float>> gradients;
  std::vector<train::StepLoss> losses;
  for (const int64_t micro : {8, 4, 1, 3}) {
    Bigram learner(512, 0);
    losses.push_back(train::accumulate(learner, *data.batches, 2, 8, micro, 0.5, *comm));
    gradients.emplace_back(learner.parameters()[0].gradient.begin(), learner.parameters()[0].gradient.end());
  }
  double largest = 0;
  for (const float g : gradients[0]) largest = std::max(largest, std::abs(static_cast<double>(g)));
  for (size_t i = 1; i < gradients.size(); ++i) {
    EXPECT_NEAR(losses[i].loss_nats, losses[0].loss_nats, 1e-9);
    for (size_t j = 0; j < gradients[0].size(); ++j) ASSERT_NEAR(gradients[i][j], gradients[0][j], 1e-6 * largest);
  }
  EXPECT_NEAR(losses[0].loss_nats, 0.5 * losses[0].text_loss_nats + 0.5 * losses[0].answer_loss_nats, 1e-6);
  // By hand: the mean over all text tokens.
  const text::Batch all = data.batches->read(2, {0, 8});
  Bigram learner(512, 0);
  std::vector<double> nll(all.inputs.size());
  learner.forward(nll, {8, 64, all.inputs, all.targets, {}, {}});
  double sums[2] = {}, counts[2] = {};
  for (size_t i = 0; i < nll.size(); ++i) {
    sums[all.needles[i / 64]] += nll[i];
    counts[all.needles[i / 64]] += all.targets[i] >= 0;
  }
  EXPECT_EQ(counts[0], 4 * 64);
  EXPECT_NEAR(losses[0].text_loss_nats, sums[0] / counts[0], 1e-9);
  EXPECT_NEAR(losses[0].answer_loss_nats, sums[1] / counts[1], 1e-9);
}

}  // namespace
}  // namespace unchain::test
