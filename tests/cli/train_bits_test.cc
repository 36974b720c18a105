// unchain train with several threads, in f32 and bf16: one seed, one result, however the run got there.
#include "cli/program_folder.h"

namespace unchain::test {
namespace {

class CliTrainBits : public Cli {
 protected:
  void SetUp() override {
    const std::string vocabulary = UNCHAIN_TEST_DATA "/vocabulary";
    const nlohmann::json config = {
        {"model", small_model()},
        {"data", {{"train", vocabulary + "/text.txt"}, {"vocabulary", vocabulary}}},
        {"train",
         {{"tokens", 8 * 256}, {"context", 32}, {"batch_tokens", 256}, {"micro_batch", 4}, {"save_every", 3}}}};
    write_file(own_ / "config.json", config.dump());
  }
  // The weights at the end of a run in this folder.
  std::string weights(const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"train", own("config.json"), "-o", own(out), "--threads", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunResult result = run_program(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    told_ = result.err;
    return read_file(own_ / out / "model/model.safetensors");
  }
  std::string told_;  // stderr of the newest run
};

TEST_F(CliTrainBits, OneSeedGivesTheSameBitsEachTime) {
  std::vector<std::string> results;
  for (const std::string type : {"f32", "bf16"}) {
    for (const std::string preset : {"softmax", "diff_v1", "diff_v2", "lowrank_diff", "fixed_diff"}) {
      const std::string run = type + preset;
      SCOPED_TRACE(run);
      std::vector<std::string> more = {"--dtype", type, "--set", "model.attention.preset=" + preset};
      const std::string once = weights(run, more);
      ASSERT_FALSE(once.empty());
      EXPECT_TRUE(weights(run + "-again", more) == once);
      // As if stopped in step 7.
      std::filesystem::remove_all(own_ / run / "model");
      std::filesystem::remove_all(own_ / run / "checkpoints/step-00000008");
      more.push_back("--resume");
      EXPECT_TRUE(weights(run, more) == once);
      EXPECT_NE(told_.find("step-00000006"), std::string::npos) << told_;
      // Half of it computing less again, half of it more.
      std::filesystem::remove_all(own_ / run / "model");
      std::filesystem::remove_all(own_ / run / "checkpoints/step-00000008");
      more.push_back("--recompute");
      EXPECT_TRUE(weights(run, more) == once);
      results.push_back(once);
    }
  }
  // Another seed, member or type is another model.
  results.push_back(
      weights("other", {"--dtype", "f32", "--set", "model.attention.preset=softmax", "--set", "train.seed=1"}));
  for (size_t i = 0; i < results.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(results[i] == results[j]) << i << " " << j;
}

}  // namespace
}  // namespace unchain::test
