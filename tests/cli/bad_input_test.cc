// What a user may hand over by mistake or malice: one clear message, the right exit status, nothing lost.
#include <sys/stat.h>

#include <limits>

#include "cli/program_folder.h"

namespace unchain::test {
namespace {

class CliBadInput : public Cli {};

TEST_F(CliBadInput, ModelsThatAreNone) {
  for (const char* command : {"inspect", "export"}) {
    const auto expect = [&](const std::string& model, int status, std::initializer_list<std::string> parts) {
      std::vector<std::string> arguments = {command, model};
      if (std::string(command) == "export") arguments.insert(arguments.end(), {"-o", own("out.gguf")});
      expect_failure(arguments, status, parts);
      EXPECT_FALSE(std::filesystem::exists(own("out.gguf")));
    };
    expect(own("absent.gguf"), 3, {"absent.gguf", "cannot open"});
    expect(own_.path().string(), 3,
           {own_.path().string(), "neither config.json nor model/config.json", "model.safetensors", "tokenizer.json"});
    expect("/dev/null", 3, {"/dev/null", "device"});
    expect("/dev/zero", 3, {"/dev/zero", "device"});
    ASSERT_TRUE(::mkfifo(own("pipe").c_str(), 0600) == 0 || errno == EEXIST);
    expect(own("pipe"), 3, {"pipe"});
    write_file(own_ / "empty.gguf", "");
    expect(own("empty.gguf"), 3, {"empty.gguf"});
    write_file(own_ / "magic.gguf", "GGUX" + std::string(100, '\0'));
    expect(own("magic.gguf"), 3, {"magic.gguf"});
    write_file(own_ / "big.gguf", std::string("GGUF\0\0\0\3", 8) + std::string(100, '\0'));
    EXPECT_NE(run_program({command, own("big.gguf"), "-o", own("out.gguf")}).status, 0);
    expect(tiny("unsupported_mamba").string(), 4, {"unsupported", "mamba"});
    write_file(own_ / "new.gguf", std::string("GGUF\x63\0\0\0", 8) + std::string(100, '\0'));
    expect(own("new.gguf"), 4, {"version"});
  }
  expect_failure({"inspect", own("big.gguf")}, 3, {"big-endian"});
}

TEST_F(CliBadInput, UnsupportedArchitectureOfAGgufFile) {
  std::string bytes = read_file(tiny("llama_grouped") / "model.gguf");
  const std::string key("general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama", 37);
  const size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at + 32, 5, "mamba");
  write_file(own_ / "mamba.gguf", bytes);
  expect_failure({"inspect", own("mamba.gguf")}, 4, {"unsupported", "mamba"});
}

TEST_F(CliBadInput, CutFiles) {
  const std::string bytes = read_file(tiny("llama_grouped") / "model.gguf");
  for (const size_t size : {size_t{3}, size_t{8}, size_t{24}, size_t{200}, bytes.size() / 2, bytes.size() - 64}) {
    write_file(own_ / "cut.gguf", bytes.substr(0, size));
    expect_failure({"logits", own("cut.gguf"), "--ids", "1"}, 3, {"cut.gguf"});
  }
  write_tiny_model(own_ / "cut", {});
  const std::string weights = read_file(own_ / "cut/model.safetensors");
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, weights.size() - 4}) {
    write_file(own_ / "cut/model.safetensors", weights.substr(0, size));
    expect_failure({"logits", own("cut"), "--ids", "1"}, 3, {"model.safetensors"});
  }
}

TEST_F(CliBadInput, FileWithoutPermission) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  write_file(own_ / "secret.gguf", "GGUF");
  std::filesystem::permissions(own_ / "secret.gguf", std::filesystem::perms::none);
  expect_failure({"inspect", own("secret.gguf")}, 3, {"secret.gguf", "Permission denied"});
}

TEST_F(CliBadInput, WeightsThatAreNotANumber) {
  TinyModel options;
  options.change = [](const std::string& name, std::vector<float>& values) {
    if (name == "model.layers.1.self_attn.v_proj.weight") values[5] = std::numeric_limits<float>::quiet_NaN();
  };
  write_tiny_model(own_ / "nan", options);
  expect_failure({"logits", own("nan"), "--text", "the sea"}, 5, {"layer 1"});
  expect_failure({"perplexity", own("nan"), path("text.txt")}, 5, {"layer 1"});
  expect_failure({"capture", own("nan"), "--text", "the sea", "-o", own("m")}, 5, {"layer 1"});
  expect_failure({"analyze", own("nan"), path("text.txt"), "--window", "8", "--windows", "1", "-o", own("a")}, 5,
                 {"layer 1"});
  EXPECT_TRUE(names(own_.path(), "m").empty());
  EXPECT_FALSE(std::filesystem::exists(own_ / "a/results.json"));
}

TEST_F(CliBadInput, Texts) {
  write_file(own_ / "empty.txt", "");
  write_file(own_ / "one.txt", "a");
  write_file(own_ / "odd.txt", std::string("a\0b \xff\xfe\xc3 c\xe2\x80\xa8 d\0\0e", 17));
  for (const char* command : {"tokenize", "perplexity", "analyze"}) {
    std::vector<std::string> more;
    if (std::string(command) == "analyze") more = {"-o", own("a")};
    const auto with = [&](const std::string& file) {
      std::vector<std::string> arguments = {command, path("llama"), file};
      arguments.insert(arguments.end(), more.begin(), more.end());
      return arguments;
    };
    expect_failure(with(own("empty.txt")), 3, {"empty.txt", "empty"});
    expect_failure(with(own("absent.txt")), 3, {"absent.txt"});
    expect_failure(with(own_.path().string()), 3, {"directory"});
    expect_failure(with("/dev/zero"), 3, {"/dev/zero"});
    expect_failure(with("/dev/null"), 3, {"/dev/null"});
    const RunResult odd = run_program(with(own("odd.txt")));
    EXPECT_EQ(odd.status, 0) << command << odd.err;
  }
  const auto pieces = run_json({"tokenize", path("llama"), own("odd.txt")})["pieces"];
  EXPECT_GT(pieces.size(), 8u);
  expect_failure({"perplexity", path("llama"), own("one.txt")}, 3, {"1 tokens"});
  expect_failure({"perplexity", path("llama"), path("text.txt"), "--mode", "half", "--window", "4096"}, 3,
                 {"--window"});
  const RunResult shrunk = run_program({"analyze", path("llama"), own("odd.txt"), "-o", own("a"), "--window", "99"});
  EXPECT_EQ(shrunk.status, 0);
  EXPECT_NE(shrunk.err.find("--window shrinks from 99"), std::string::npos) << shrunk.err;
  write_file(own_ / "ids.txt", "1 2\n899, 900 4 5");
  expect_failure({"analyze", path("llama"), "--ids", own("ids.txt"), "-o", own("a")}, 3,
                 {own("ids.txt") + ": line 2: token 3 has id 900", "0 to 899"});
  write_file(own_ / "words.txt", "1 2 three");
  expect_failure({"analyze", path("llama"), "--ids", own("words.txt"), "-o", own("a")}, 3,
                 {own("words.txt") + ": line 1", "three"});
}

TEST_F(CliBadInput, FoldersPointToTheFileInThem) {
  write_file(own_ / "other.gguf", "GGUF");
  expect_failure({"inspect", own_.path().string()}, 3, {"give " + own("other.gguf")});
}

TEST_F(CliBadInput, MapsFilesThatAreNone) {
  write_file(own_ / "maps", "no safetensors");
  expect_failure({"analyze", "--maps", own("maps"), "-o", own("a")}, 3, {"maps"});
  expect_failure({"analyze", "--maps", own("absent"), "-o", own("a")}, 3, {"absent"});
  expect_failure({"analyze", "--maps", path("llama/model.safetensors"), "-o", own("a")}, 3, {"model.safetensors"});
  EXPECT_FALSE(std::filesystem::exists(own("a")));
}

}  // namespace
}  // namespace unchain::test
