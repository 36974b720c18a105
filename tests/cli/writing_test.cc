// Outputs: places that cannot be written, full disks, kills. Nothing half-written stands under a final name.
#include <limits>

#include "cli/program_folder.h"
#include "formats/safetensors.h"

namespace unchain::test {
namespace {

class CliWriting : public Cli {
 protected:
  // The commands that write, with the name of what they write and the arguments.
  std::vector<std::pair<std::string, std::vector<std::string>>> writers() const {
    return {
        {"out.gguf", {"export", path("llama"), "-o", own("out.gguf")}},
        {"out", {"export", path("llama"), "-o", own("out")}},
        {"maps", {"capture", path("llama"), "--text", text(), "-o", own("maps")}},
        {"page", {"analyze", path("llama"), path("text.txt"), "--window", "16", "--windows", "1", "-o", own("page")}}};
  }
  // Signals sent as soon as anything appears, or some time after. `check` gets the name of the output and the status.
  template <class Check>
  void interrupt(int signal, std::initializer_list<int> delays_ms, const Check& check) {
    for (const int delay_ms : delays_ms) {
      for (const auto& [name, arguments] : writers()) {
        SCOPED_TRACE(testing::Message() << name << " after " << delay_ms << " ms");
        for (const std::string& left : names(own_.path(), "")) std::filesystem::remove_all(own_ / left);
        RunOptions options;
        options.signal = signal;
        std::chrono::steady_clock::time_point seen;
        options.kill_when = [&, folder = own_.path()] {
          std::error_code ignored;
          if (seen == decltype(seen)()) {
            for (std::filesystem::directory_iterator entry(folder, ignored), end; entry != end;
                 entry.increment(ignored))
              seen = std::chrono::steady_clock::now();
            return false;
          }
          return std::chrono::steady_clock::now() - seen > std::chrono::milliseconds(delay_ms);
        };
        const RunResult result = run_program(arguments, options);
        EXPECT_TRUE(result.status == -signal || result.status == 0) << result.status << result.err;
        EXPECT_EQ(result.err.find("unchain: "), std::string::npos) << result.err;
        check(name, result.status);
        if (delay_ms == 1) {                         // the same command works afterwards, beside whatever was left
          std::filesystem::remove_all(own_ / name);  // a folder that was whole in time is not written again
          EXPECT_EQ(run_program(arguments).status, 0);
        }
      }
    }
  }
  // What stands under the final name is whole.
  void expect_whole(const std::string& name) const {
    if (name == "page") {
      const std::string json = read_file(own_ / "page/results.json"), page = read_file(own_ / "page/report.html");
      EXPECT_TRUE(json.empty() || nlohmann::json::accept(json));
      EXPECT_TRUE(page.empty() || page.find("</html>") != std::string::npos);
    } else if (std::filesystem::exists(own_ / name)) {
      if (name == "maps") {
        EXPECT_NO_THROW(formats::SafetensorsFile::open(own_ / name));
      } else {
        EXPECT_NO_THROW(model::load(own_ / name, DType::f32));
      }
    }
  }
};

TEST_F(CliWriting, PlacesThatCannotBe) {
  write_file(own_ / "file", "kept");
  for (const std::string out : {"file/x", "file/x.gguf", "file/x/y", "file"})
    expect_failure({"export", path("llama"), "-o", own(out)}, 3, {own("file")});
  expect_failure({"capture", path("llama"), "--text", "a b", "-o", own("file/m")}, 3, {own("file/m")});
  expect_failure({"capture", path("llama"), "--text", "a b", "-o", own("none/m")}, 3,
                 {own("none/m") + ": the folder " + own("none") + " does not exist"});
  expect_failure({"capture", path("llama"), "--text", "a b", "-o", "/dev/null"}, 3, {"/dev/null"});
  for (const char* out : {"file", "file/x"})
    expect_failure({"analyze", path("llama"), path("text.txt"), "-o", own(out)}, 3, {own("file")});
  for (const char* out : {"/proc/unchain", "/proc/unchain.gguf"})
    expect_failure({"export", path("llama"), "-o", out}, 3, {"/proc/unchain"});
  expect_failure({"analyze", path("llama"), path("text.txt"), "-o", "/proc/unchain"}, 3, {"/proc/unchain"});
  EXPECT_EQ(read_file(own_ / "file"), "kept");
  EXPECT_EQ(own_.files(), 1u);
  if (::geteuid() == 0) return;  // root writes everywhere
  std::filesystem::create_directory(own_ / "locked");
  std::filesystem::permissions(own_ / "locked",
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  expect_failure({"analyze", path("llama"), path("text.txt"), "-o", own("locked")}, 3, {"Permission denied"});
  expect_failure({"export", path("llama"), "-o", own("locked/x.gguf")}, 3, {"Permission denied"});
  std::filesystem::permissions(own_ / "locked", std::filesystem::perms::owner_all);
}

// Weights that are not a number end the work at the second layer: what is said before that was checked before.
TEST_F(CliWriting, OutputsAreCheckedBeforeTheWork) {
  TinyModel options;
  options.change = [](const std::string& name, std::vector<float>& values) {
    if (name == "model.layers.1.self_attn.v_proj.weight") values[5] = std::numeric_limits<float>::quiet_NaN();
  };
  TemporaryFolder models;
  write_tiny_model(models / "nan", options);
  const std::string nan = (models / "nan").string(), file = path("text.txt");
  write_file(own_ / "file", "kept");
  for (const std::string& bad :
       {own("none/r.json"), own_.path().string(), own("file/r.json"), std::string("/dev/null")}) {
    const std::vector<std::vector<std::string>> commands = {
        {"logits", nan, "--text", "the sea"},     {"perplexity", nan, file},
        {"generate", nan, "--prompt", "the sea"}, {"capture", nan, "--text", "the sea", "-o", own("m")},
        {"analyze", nan, file, "-o", own("a")},   {"inspect", nan},
        {"tokenize", nan, "--text", "a"},         {"export", nan, "-o", own("e.gguf")}};
    for (auto arguments : commands) {
      arguments.insert(arguments.end(), {"--json", bad});
      expect_failure(arguments, 3, {bad});
    }
    expect_failure({"capture", nan, "--text", "the sea", "-o", bad}, 3, {bad});
  }
  std::filesystem::create_directories(own_ / "b/report.html");
  expect_failure({"analyze", nan, file, "-o", own("b")}, 3, {"report.html", "directory"});
  EXPECT_EQ(read_file(own_ / "file"), "kept");
  EXPECT_EQ(own_.files(), 2u);
  // What can be written holds nothing when the work fails.
  expect_failure({"logits", nan, "--text", "the sea", "--json", own("r.json")}, 5, {"layer 1"});
  EXPECT_EQ(own_.files(), 2u);
}

TEST_F(CliWriting, ExportMakesMissingFolders) {
  for (const char* out : {"a/b/m.gguf", "c/d/m", "e/f/m/"}) {
    EXPECT_EQ(run_program({"export", path("llama"), "-o", own(out)}).status, 0) << out;
    EXPECT_EQ(run_json({"inspect", own(out)})["layers"], 3);
  }
}

TEST_F(CliWriting, FullStdout) {
  RunOptions full;
  full.stdout_path = "/dev/full";
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"inspect", path("llama")},
                                                    {"generate", path("llama"), "--prompt", "a", "-n", "3"},
                                                    {"logits", path("llama"), "--ids", "1", "--json", "-"}})
    expect_failure(arguments, 3, {"stdout"}, full);
}

TEST_F(CliWriting, FullDisk) {
  for (const rlim_t limit : {rlim_t{0}, rlim_t{3000}}) {
    RunOptions full;
    full.largest_file = limit;
    for (const auto& [name, arguments] : writers()) {
      const RunResult result = run_program(arguments, full);
      EXPECT_EQ(result.status, 3) << name << result.err;
      EXPECT_NE(result.err.find("unchain: "), std::string::npos) << result.err;
      EXPECT_NE(result.err.find("cannot write"), std::string::npos) << result.err;
      if (name == "page") {  // the folder itself was there before the results
        for (const std::string& left : names(own_ / name, "")) ADD_FAILURE() << left;
      } else {
        EXPECT_TRUE(names(own_.path(), name).empty()) << names(own_.path(), name)[0];
      }
    }
  }
}

TEST_F(CliWriting, OldFilesSurviveAFailure) {
  RunOptions full;
  full.largest_file = 3000;
  write_file(own_ / "out.gguf", "before");
  write_file(own_ / "maps", "before");
  std::filesystem::create_directory(own_ / "page");
  write_file(own_ / "page/results.json", "before");
  for (const auto& [name, arguments] : writers()) EXPECT_EQ(run_program(arguments, full).status, 3) << name;
  for (const char* name : {"out.gguf", "maps", "page/results.json"}) EXPECT_EQ(read_file(own_ / name), "before");
}

TEST_F(CliWriting, KilledRunsLeaveNothingHalf) {
  interrupt(SIGKILL, {0, 1, 3, 8}, [&](const std::string& name, int) { expect_whole(name); });
}

TEST_F(CliWriting, SignalsRemoveWhatIsUnfinished) {
  int ended = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    interrupt(signal, {0, 1, 2, 4}, [&](const std::string& name, int status) {
      ended += status != 0;
      expect_whole(name);
      for (const std::string& left : names(own_.path(), "")) EXPECT_TRUE(left == name) << left << " is left";
      if (name != "page" || !std::filesystem::exists(own_ / name)) return;
      for (const std::string& left : names(own_ / name, ""))
        EXPECT_TRUE(left == "results.json" || left == "report.html") << left << " is left";
    });
  }
  EXPECT_GT(ended, 5) << "the runs ended before the signals came";
}

TEST_F(CliWriting, ExportOntoItselfKeepsTheModel) {
  const std::string gguf = own("m.gguf");
  run_json({"export", path("llama"), "-o", gguf});
  const std::string before = read_file(gguf);
  run_json({"export", gguf, "-o", gguf});
  EXPECT_TRUE(read_file(gguf) == before);
  run_json({"export", gguf, "-o", gguf, "--type", "bf16"});
  EXPECT_LT(std::filesystem::file_size(gguf), before.size());
  EXPECT_EQ(run_json({"inspect", gguf})["layers"], 3);
  expect_failure({"export", path("llama"), "-o", path("llama")}, 3, {"not an empty folder"});
  EXPECT_EQ(run_json({"inspect", path("llama")})["layers"], 3);
  expect_failure({"export", path("llama"), "-o", own_.path().string()}, 3, {"not an empty folder"});
  EXPECT_EQ(own_.files(), 1u);
}

TEST_F(CliWriting, FolderNamesMayEndWithASlash) {
  std::filesystem::create_directory(own_ / "there");
  for (const char* out : {"new/", "there/", "there2"}) {
    EXPECT_EQ(run_program({"export", path("llama") + "/", "-o", own(out)}).status, 0) << out;
    EXPECT_EQ(run_json({"inspect", own(out)})["layers"], 3);
  }
  EXPECT_EQ(own_.files(), 3u);
}

TEST_F(CliWriting, FoldersHoldNoQ8) {
  expect_failure({"export", path("llama"), "-o", own("q"), "--type", "q8_0"}, 4, {"unsupported", "q8_0"});
  EXPECT_EQ(own_.files(), 0u);
}

}  // namespace
}  // namespace unchain::test
