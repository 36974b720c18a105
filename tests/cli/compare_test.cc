// unchain compare: models on one text, side by side.
#include "cli/program_folder.h"

namespace unchain::test {
namespace {

using nlohmann::json;

class CliCompare : public Cli {
 protected:
  std::vector<std::string> command(const std::vector<std::string>& models, const std::string& window = "32",
                                   const std::string& windows = "3", const std::string& metrics = "rows") {
    std::vector<std::string> result = {"compare"};
    result.insert(result.end(), models.begin(), models.end());
    for (const std::string& each :
         {std::string("--text"), path("text.txt"), std::string("--window"), window, std::string("--windows"), windows,
          std::string("--dtype"), std::string("f32"), std::string("-o"), own("out"), std::string("--metrics"), metrics,
          std::string("--needle-form"), std::string("none")})
      result.push_back(each);
    return result;
  }
};

TEST_F(CliCompare, TwoModelsSideBySide) {
  const RunResult run = run_program(command({path("llama"), "second=" + path("gemma3")}));
  ASSERT_EQ(run.status, 0) << run.err;
  for (const char* word : {"llama", "second", "second - llama [95 %]", "loss_nats", "entropy", "report.html"})
    EXPECT_NE(run.out.find(word), std::string::npos) << word << "\n" << run.out;
  const json results = json::parse(read_file(own_ / "out/results.json"));
  EXPECT_EQ(results["command"], "compare");
  EXPECT_EQ(results["settings"]["windows"], 3);
  ASSERT_EQ(results["models"].size(), 2u);
  EXPECT_EQ(results["models"][1]["name"], "second");
  expect_keys(results["models"][1]["model"], {"architecture", "layers"});
  // The first model's figures are those of analyze on the same windows.
  const json alone = run_json({"analyze", path("llama"), path("text.txt"), "--window", "32", "--windows", "3",
                               "--dtype", "f32", "--metrics", "rows", "-o", own("alone")});
  EXPECT_NEAR(results["models"][0]["measures"]["entropy"]["mean"].get<double>(),
              alone["summary"]["entropy"]["mean"].get<double>(), 1e-9);
  for (const json& pair : results["paired"]) {
    const auto mean = [&](int model) {
      return results["models"][model]["measures"][pair["measure"].get<std::string>()]["mean"].get<double>();
    };
    if (pair["units"] != 3) continue;
    EXPECT_NEAR(pair["difference"].get<double>(), mean(1) - mean(0), 1e-9) << pair;
  }
  const std::string page = read_file(own_ / "out/report.html");
  EXPECT_NE(page.find("unchain compare"), std::string::npos);
}

TEST_F(CliCompare, BadInput) {
  expect_failure(command({path("llama")}), 2, {"two models or more"});
  expect_failure(command({path("llama"), path("llama")}), 2, {"two models are called llama", "name them"});
  expect_failure(command({path("llama"), own("none")}), 3, {"none"});
  const std::vector<std::string> two = {path("llama"), "b=" + path("llama")};
  expect_failure(command(two, "32", "1"), 2, {"--windows 1", "interval"});
  expect_failure(command(two, "3"), 2, {"--window 3"});
  expect_failure(command(two, "100000"), 2, {"--window"});
  expect_failure(command(two, "32", "3", "entorpy"), 2, {"entorpy"});
  std::vector<std::string> questions = command(two);
  questions.insert(questions.end(), {"--choice", own("none.jsonl")});
  expect_failure(questions, 3, {"none.jsonl"});
  EXPECT_FALSE(std::filesystem::exists(own_ / "out/results.json"));
}

}  // namespace
}  // namespace unchain::test
