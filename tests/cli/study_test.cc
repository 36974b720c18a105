// unchain study: a description in, runs side by side, one table out; stopped and resumed.
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>

#include "cli/program_folder.h"
#include "study/study.h"

namespace unchain::test {
namespace {

using nlohmann::json;

class CliStudy : public Cli {
 protected:
  void SetUp() override {
    const std::string text = UNCHAIN_TEST_DATA "/vocabulary/text.txt";
    const json description = {
        {"vocabulary_size", 400},
        {"sizes",
         {{"s",
           {{"model", small_model()},
            {"train",
             {{"tokens", 2560},
              {"context", 64},
              {"batch_tokens", 256},
              {"micro_batch", 4},
              {"evaluate_every", 0},
              {"save_every", 2},
              {"dtype", "f32"}}}}}}},
        {"members", {"softmax", "diff_v1", "lowrank_diff"}},
        {"seeds", {0}},
        {"tracks",
         {{"t",
           {{"data", {{"train", text}, {"valid", text}, {"needles", {{"share", 0.5}, {"count", 1}}}}},
            {"needle",
             json::array(
                 {{{"form", "pair"}, {"lengths", {64}}, {"depths", {0, 1}}, {"needles", 2}, {"samples", 3}}})}}}}},
        {"analyses", {{"windows", 2}, {"loss_windows", 3}}}};
    write_file(own_ / "study.json", description.dump(1));
  }
  std::vector<std::string> command(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> result = {"study", own("study.json"), "-o", own(out), "--threads", "1"};
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  // Without what depends on the clock.
  static json lasting(json results) {
    for (json& run : results["runs"])
      for (const char* key : {"tokens_per_s", "analysis_seconds"}) EXPECT_EQ(run.erase(key), 1u) << key;
    return results["runs"];
  }
};

TEST_F(CliStudy, OneTableOfAllMembers) {
  const RunResult text = run_program(command("a"));
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* word : {"softmax", "diff_v1", "lowrank_diff", "perplexity", "needles", "tokens/s", "parameters"})
    EXPECT_NE(text.out.find(word), std::string::npos) << word << "\n" << text.out;
  const json results = json::parse(read_file(own_ / "a/results.json"));
  EXPECT_EQ(results["command"], "study");
  EXPECT_NE(read_file(own_ / "a/report.html").find("unchain study"), std::string::npos);
  // One seed decides nothing; what was not measured has no verdict.
  ASSERT_EQ(results["claims"].size(), 24u);
  for (const json& claim : results["claims"]) {
    const json& verdict = claim["verdict"];
    EXPECT_TRUE(verdict.is_null() || verdict == "undecided" || verdict == "identity" || verdict == "not_applicable")
        << claim.dump().substr(0, 400);
  }
  ASSERT_EQ(results["runs"].size(), 3u);
  for (const json& run : results["runs"]) {
    expect_keys(
        run, {"key", "size", "member", "seed", "parameters", "tokens", "tokens_per_s", "perplexity", "bits_per_byte"});
    expect_keys(run["needle"][0], {"right", "asked", "accuracy", "low", "high", "chance", "attention_on_answer"});
    EXPECT_EQ(run["needle"][0]["asked"], 6);
    EXPECT_EQ(run["needle"][0]["chance"], 0.5);
    EXPECT_EQ(run["curve"].size(), 10u);
    EXPECT_GT(run["curve"][0]["text_loss_nats"], run["curve"][9]["text_loss_nats"]);
    // The same figures as the commands for one model give.
    const std::string folder = own("a/runs/t-s-" + run["member"].get<std::string>() + "-0");
    EXPECT_EQ(run_json({"inspect", folder})["parameters"], run["parameters"]);
    const json needle = run_json({"needle", folder, "--form", "pair", "--lengths", "64", "--depths", "0,100",
                                  "--needles", "2", "--samples", "3", "--dtype", "f32", "-o", own("needle")});
    EXPECT_EQ(needle["right"], run["needle"][0]["right"]);
    EXPECT_NEAR(needle["attention_on_answer"]["mean"].get<double>(),
                run["needle"][0]["attention_on_answer"].get<double>(), 1e-9);
  }
}

TEST_F(CliStudy, HessiansAtCheckpointsAndLastWords) {
  json description = json::parse(read_file(own_ / "study.json"));
  description["members"] = {"softmax", "diff_v2"};
  description["tracks"]["t"]["last_words"] = own("words.jsonl");
  description["tracks"]["t"]["hessian"] = {{"members", {"diff_v2"}}};
  write_file(own_ / "study.json", description.dump());
  expect_failure(command("a"), 3, {"words.jsonl"});
  write_file(own_ / "words.jsonl", "{\"text\": \"one two one\"}\n{\"text\": \"a b\"}\n");
  ASSERT_EQ(run_program(command("a", {"--resume"})).status, 0);
  const json runs = json::parse(read_file(own_ / "a/results.json"))["runs"];
  ASSERT_EQ(runs.size(), 2u);
  for (const json& run : runs) EXPECT_EQ(run["measures"]["last_word_error"]["windows"][0].size(), 2u);
  EXPECT_FALSE(runs[0].contains("hessian"));
  ASSERT_EQ(runs[1]["hessian"].size(), 5u) << "one every second step";
  double share = 0;
  for (const json& point : runs[1]["hessian"]) {
    expect_keys(point, {"negative_share", "zero_share", "negative_weight", "zero_band", "step_error", "lowest"});
    EXPECT_EQ(point["highest"].size(), 10u);
    share += point["negative_share"]["mean"].get<double>() / 5;
  }
  EXPECT_EQ(runs[1]["hessian"][4]["step"], 10);
  EXPECT_NEAR(runs[1]["measures"]["hessian_negative_share"]["value"].get<double>(), share, 1e-12);
  // A study of the same runs without the Hessian is another one.
  description["tracks"]["t"].erase("hessian");
  write_file(own_ / "study.json", description.dump());
  expect_failure(command("a", {"--resume"}), 2, {"t-s-diff_v2-0/result.json", "another description"});
}

// Each run is done once, whoever does it.
TEST_F(CliStudy, ProcessesShareTheRuns) {
  ASSERT_EQ(run_program(command("one")).status, 0);
  const json one = lasting(json::parse(read_file(own_ / "one/results.json")));
  std::filesystem::create_directories(own_ / "two");
  RunResult other;
  std::thread second([&] { other = run_program(command("two", {"--resume"})); });
  const RunResult result = run_program(command("two", {"--resume"}));
  second.join();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(lasting(json::parse(read_file(own_ / "two/results.json"))), one);
}

TEST_F(CliStudy, RanksShareTheRuns) {
  if (!find_mpirun()) return;
  ASSERT_EQ(run_program(command("one")).status, 0);
  const RunResult ranks = run_ranks(2, command("ranks"));
  ASSERT_EQ(ranks.status, 0) << ranks.err;
  EXPECT_EQ(lasting(json::parse(read_file(own_ / "ranks/results.json"))),
            lasting(json::parse(read_file(own_ / "one/results.json"))));
  EXPECT_EQ(ranks.out.find("tokens/s"), ranks.out.rfind("tokens/s")) << "told once\n" << ranks.out;
  EXPECT_EQ(run_ranks(2, command("ranks")).status, 2) << "holds a study already";
}

TEST_F(CliStudy, StoppedAndResumedItEndsTheSame) {
  ASSERT_EQ(run_program(command("whole")).status, 0);
  RunOptions options;
  options.signal = SIGTERM;
  bool sent = false;
  options.kill_when = [&] {
    if (sent || !std::filesystem::exists(own_ / "a/runs/t-s-diff_v1-0/checkpoints/step-00000002")) return false;
    return sent = true;
  };
  const RunResult stopped = run_program(command("a"), options);
  if (stopped.status != 0) {  // else it was faster than the signal
    EXPECT_EQ(stopped.status, -SIGTERM) << stopped.err;
    EXPECT_NE(stopped.err.find("of 3 runs, all saved"), std::string::npos) << stopped.err;
    EXPECT_NE(stopped.err.find("the same command with --resume goes on"), std::string::npos) << stopped.err;
    const json so_far = json::parse(read_file(own_ / "a/results.json"));
    EXPECT_EQ(so_far["settings"]["planned_runs"], 3);
    EXPECT_LT(so_far["runs"].size(), 3u);
    EXPECT_GE(so_far["runs"].size(), 1u);
    EXPECT_NE(stopped.err.find("a/report.html"), std::string::npos) << stopped.err;
  }
  const auto before = std::filesystem::last_write_time(own_ / "a/runs/t-s-softmax-0/result.json");
  expect_failure(command("a"), 2, {"holds a study already", "--resume"});
  ASSERT_EQ(run_program(command("a", {"--resume"})).status, 0);
  EXPECT_EQ(std::filesystem::last_write_time(own_ / "a/runs/t-s-softmax-0/result.json"), before);
  const json results = json::parse(read_file(own_ / "a/results.json"));
  EXPECT_EQ(lasting(results), lasting(json::parse(read_file(own_ / "whole/results.json"))));
  EXPECT_FALSE(results["settings"].contains("planned_runs"));
  // What is done belongs to its description.
  expect_failure(command("a", {"--resume", "--set", "train.learning_rate=5e-3"}), 2,
                 {"t-s-softmax-0/result.json", "another description"});
}

// Or the time left would be reckoned from work that took no time.
TEST_F(CliStudy, ProgressBeginsWithAllThatIsDone) {
  ASSERT_EQ(run_program(command("a")).status, 0);
  std::filesystem::remove(own_ / "a/runs/t-s-diff_v1-0/result.json");
  const study::Description description = study::parse_description(read_file(own_ / "study.json"), "study.json");
  std::vector<study::StudyProgress> seen;
  study::StudyOptions options;
  options.out = own_ / "a";
  options.stop = [] { return true; };
  options.progress = [&](const study::StudyProgress& progress) { seen.push_back(progress); };
  const auto runs = study::plan(description, "study.json", own_ / "a/vocabulary", {});
  EXPECT_EQ(study::carry_out(description, runs, options).size(), 2u);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].runs_done, 2u);
  EXPECT_EQ(seen[0].runs, 3u);
  EXPECT_GT(seen[0].work, 0.6 * seen[0].total_work);
  EXPECT_LT(seen[0].work, seen[0].total_work);
}

// A ladder of needles, pilots that choose its rung, and results that are damaged, of another version, or failed.
TEST_F(CliStudy, PilotsChooseTheRungThatAllOthersAreAsked) {
  json description = json::parse(read_file(own_ / "study.json"));
  json& track = description["tracks"]["t"];
  json rung = track["needle"][0];
  rung["needles"] = 3;
  track["needle"].push_back(rung);
  track["pilot"] = {{"members", {"softmax"}}, {"seeds", {9}}};
  track["runs"] = {{{"members", {"softmax"}}}};
  write_file(own_ / "study.json", description.dump());
  ASSERT_EQ(run_program(command("a")).status, 0);
  const auto runs = [&] { return json::parse(read_file(own_ / "a/results.json"))["runs"]; };
  ASSERT_EQ(runs().size(), 2u);
  EXPECT_EQ(runs()[0]["pilot"], true);
  EXPECT_EQ(runs()[0]["needle"].size(), 2u);
  // The rung nearest to half of the answers; of equal ones the easier.
  const auto distance = [&](int place) { return std::abs(runs()[0]["needle"][place]["accuracy"].get<double>() - 0.5); };
  const double chance = distance(1) < distance(0) ? 1.0 / 3 : 0.5;
  EXPECT_EQ(runs()[1]["needle"].size(), 1u);
  EXPECT_EQ(runs()[1]["needle"][0]["chance"], chance);
  // The pilot changes nothing that is judged.
  for (const json& claim : json::parse(read_file(own_ / "a/results.json"))["claims"])
    for (const json& part : claim["parts"]) EXPECT_LE(part["seeds"], 1);
}

TEST_F(CliStudy, DamagedResultsAreMadeAgainAndOthersRefused) {
  ASSERT_EQ(run_program(command("a")).status, 0);
  const json before = lasting(json::parse(read_file(own_ / "a/results.json")));
  const auto file = own_ / "a/runs/t-s-diff_v1-0/result.json";
  const std::string whole = read_file(file);
  write_file(file, whole.substr(0, whole.size() / 2));
  const RunResult again = run_program(command("a", {"--resume"}));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.err.find("result.json"), std::string::npos) << again.err;
  EXPECT_NE(again.err.find("the run is done again"), std::string::npos) << again.err;
  EXPECT_EQ(lasting(json::parse(read_file(own_ / "a/results.json"))), before);
  // Whole JSON that lacks what verdicts rest on, or holds something else there.
  for (const auto& [where, value] : {std::pair<const char*, json>{"/measures", nullptr},
                                     {"/measures/loss_nats/value", "low"},
                                     {"/needle/0/accuracy", nullptr},
                                     {"/layers/gain_nats/0", "low"},
                                     {"/parameters", nullptr},
                                     {"/seed", 5}}) {
    json lost = json::parse(whole);
    lost[json::json_pointer(where)] = value;
    write_file(file, lost.dump());
    const RunResult made = run_program(command("a", {"--resume"}));
    EXPECT_EQ(made.status, 0) << made.err;
    EXPECT_NE(made.err.find("is missing or damaged; the run is done again"), std::string::npos) << where << made.err;
    EXPECT_EQ(lasting(json::parse(read_file(own_ / "a/results.json"))), before) << where;
  }
  json old = json::parse(whole);
  old["version"] = 0;
  write_file(file, old.dump());
  expect_failure(command("a", {"--resume"}), 2, {"t-s-diff_v1-0/result.json", "version 0", "remove the folder"});
  // A result is all that is needed of a run.
  write_file(file, whole);
  for (const char* name : {"model", "checkpoints", "metrics.jsonl"})
    std::filesystem::remove_all(own_ / "a/runs/t-s-diff_v1-0" / name);
  ASSERT_EQ(run_program(command("a", {"--resume"})).status, 0);
  EXPECT_EQ(lasting(json::parse(read_file(own_ / "a/results.json"))), before);
}

TEST_F(CliStudy, ARunThatFailsLeavesTheOthers) {
  json description = json::parse(read_file(own_ / "study.json"));
  description["sizes"]["w"] = description["sizes"]["s"];
  description["sizes"]["w"]["model"]["initializer_range"] = 1e30;
  description["members"] = {"softmax"};
  write_file(own_ / "study.json", description.dump());
  const RunResult result = run_program(command("a"));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("t-w-softmax-0 failed"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("failed"), std::string::npos) << result.out;
  const json runs = json::parse(read_file(own_ / "a/results.json"))["runs"];
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_FALSE(runs[0].contains("failed"));
  EXPECT_NE(runs[1]["failed"].get<std::string>().find("step"), std::string::npos) << runs[1];
  EXPECT_EQ(runs[1]["parameters"], runs[0]["parameters"]) << "by which sizes are ordered";
  EXPECT_NE(result.out.find("not measured"), std::string::npos) << result.out;
}

// Untrained ones, on a text too short for eight windows.
TEST_F(CliStudy, ClaimsOfGivenModels) {
  const std::vector<std::string> given = {"study",
                                          "--models",
                                          "softmax=" + path("llama"),
                                          "diff=" + path("gemma3"),
                                          "--text",
                                          path("text.txt"),
                                          "--window",
                                          "64",
                                          "--windows",
                                          "2",
                                          "--needle-form",
                                          "pair",
                                          "--needles",
                                          "2",
                                          "-o",
                                          own("given")};
  const RunResult result = run_program(given);
  ASSERT_EQ(result.status, 0) << result.err;
  const json results = json::parse(read_file(own_ / "given/results.json"));
  EXPECT_EQ(results["command"], "study");
  ASSERT_EQ(results["runs"].size(), 4u);
  EXPECT_EQ(results["claims"].size(), 24u);
  EXPECT_NE(result.out.find("undecided"), std::string::npos) << result.out;
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> line = given;
    line.insert(line.end(), more.begin(), more.end());
    return line;
  };
  expect_failure(with({"--preset", "smoke"}), 2, {"--models", "leave out"});
  expect_failure({"study", "--models", "softmax=" + path("llama"), "-o", own("b")}, 2, {"--text"});
  expect_failure({"study", "--models", "softmax=" + own("none"), "--text", path("text.txt"), "-o", own("b")}, 3,
                 {"none"});
  expect_failure({"study", "--models", path("llama"), "--text", path("text.txt"), "-o", own("b")}, 2, {"MEMBER=PATH"});
}

// The lines of the printed table that begin with a claim's number.
std::map<int, std::string> claim_lines(const std::string& out) {
  std::map<int, std::string> lines;
  std::istringstream in(out.substr(out.find("what is claimed")));
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    const int id = std::atoi(line.c_str());
    if (id > 0) lines[id] = line;
  }
  return lines;
}

// What a softmax lacks is no verdict: claims of members without models are not measured, those of a model that has no
// second map do not apply. Only what holds by algebra is said of both.
TEST_F(CliStudy, OfSoftmaxAloneNothingIsDecided) {
  json description = json::parse(read_file(own_ / "study.json"));
  description["members"] = {"softmax"};
  description["seeds"] = {0, 1, 2};
  write_file(own_ / "study.json", description.dump());
  const RunResult alone = run_program(command("a"));
  ASSERT_EQ(alone.status, 0) << alone.err;
  const std::string soft = path("llama"), three = soft + "," + soft + "," + soft;
  const RunResult twice =
      run_program({"study", "--models", "softmax=" + three, "diff=" + three, "--text", path("text.txt"), "--window",
                   "64", "--windows", "2", "--needle-form", "pair", "--needles", "2", "-o", own("given")});
  ASSERT_EQ(twice.status, 0) << twice.err;
  for (const auto& [out, folder] : {std::pair(alone.out, "a"), {twice.out, "given"}}) {
    SCOPED_TRACE(folder);
    const auto lines = claim_lines(out);
    const json claims = json::parse(read_file(own_ / folder / "results.json"))["claims"];
    ASSERT_EQ(lines.size(), claims.size()) << out;
    std::map<std::string, int> said;
    for (const json& claim : claims) {
      const std::string& line = lines.at(claim["id"]);
      const json& verdict = claim["verdict"];
      const std::string words = verdict.is_null()             ? "not measured"
                                : verdict == "not_applicable" ? "not applicable"
                                                              : verdict.get<std::string>();
      EXPECT_NE(line.find("  " + words + "  "), std::string::npos) << words << ": " << line;
      // A letter names the part that is shown: one whose verdict the claim has, or of an identity the first.
      const char letter = line[line.find_first_not_of(" 0123456789")];
      const json& parts = claim["parts"];
      EXPECT_EQ(std::islower(letter) != 0, parts.size() > 1) << line;
      if (parts.size() > 1) {
        EXPECT_EQ(parts.at(static_cast<size_t>(letter - 'a'))["verdict"], verdict) << line;
      }
      EXPECT_EQ(line.find('_'), std::string::npos) << line;
      ++said[words];
    }
    EXPECT_EQ(said["supported"], 0) << out;
    EXPECT_GT(said["identity"], 0);
    if (folder == std::string("a")) {
      EXPECT_EQ(said["not measured"] + said["identity"], static_cast<int>(claims.size())) << out;
    } else {
      // The noise map's rank, in every layer too, what it has in common over texts, its gain, a fixed one, what it
      // removes.
      for (const int id : {1, 2, 3, 12, 18, 20})
        EXPECT_NE(lines.at(id).find("not applicable"), std::string::npos) << lines.at(id);
    }
  }
}

TEST_F(CliStudy, BadInput) {
  expect_failure({"study", "-o", own("a")}, 2, {"--preset smoke"});
  expect_failure(command("a", {"--preset", "smoke"}), 2, {"one of them"});
  expect_failure({"study", "--preset", "smoek", "-o", own("a")}, 2, {"smoek", "smoke"});
  expect_failure({"study", own("none.json"), "-o", own("a")}, 3, {"none.json"});
  expect_failure(command("a", {"--set", "train.contex=3"}), 2, {"train.contex is no key"});
  expect_failure(command("a", {"--set", "data.train=" + own("none.txt")}), 3, {"none.txt"});
  expect_failure(command("a", {"--set", "data.valid=[]"}), 2, {"data.valid"});
  std::filesystem::create_directory(own_ / "full");
  write_file(own_ / "full/file", "x");
  expect_failure(command("full"), 2, {"full", "not empty"});
}

}  // namespace
}  // namespace unchain::test
