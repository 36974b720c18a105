// Outputs: places that cannot be written, full disks, kills. Nothing half-written stands under a final name.
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
};

TEST_F(CliWriting, PlacesThatCannotBe) {
  write_file(own_ / "file", "kept");
  for (const std::string out : {"file/x", "file/x.gguf", "file"})
    expect_failure({"export", path("llama"), "-o", own(out)}, 3, {own("file")});
  expect_failure({"capture", path("llama"), "--text", "a b", "-o", own("file/m")}, 3, {own("file/m")});
  expect_failure({"capture", path("llama"), "--text", "a b", "-o", own("none/m")}, 3, {own("none/m")});
  expect_failure({"capture", path("llama"), "--text", "a b", "-o", "/dev/null"}, 3, {"/dev/null"});
  expect_failure({"export", path("llama"), "-o", own("none/x.gguf")}, 3, {own("none/x.gguf")});
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
  // Killed as soon as anything appears, or some time after.
  for (const int delay_ms : {0, 1, 3, 8}) {
    for (const auto& [name, arguments] : writers()) {
      SCOPED_TRACE(name);
      for (const std::string& left : names(own_.path(), "")) std::filesystem::remove_all(own_ / left);
      RunOptions kill;
      std::chrono::steady_clock::time_point seen;
      kill.kill_when = [&, folder = own_.path()] {
        std::error_code ignored;
        if (seen == decltype(seen)()) {
          for (std::filesystem::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored))
            seen = std::chrono::steady_clock::now();
          return false;
        }
        return std::chrono::steady_clock::now() - seen > std::chrono::milliseconds(delay_ms);
      };
      const RunResult result = run_program(arguments, kill);
      EXPECT_TRUE(result.status == -SIGKILL || result.status == 0) << result.status << result.err;
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
      // The same command works afterwards.
      if (delay_ms == 1) {
        EXPECT_EQ(run_program(arguments).status, 0);
      }
    }
  }
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
