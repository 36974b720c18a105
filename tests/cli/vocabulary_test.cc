// unchain vocabulary: text in, a folder that every later command reads out.
#include "cli/program_folder.h"
#include "tokenizer/tokenizer.h"

namespace unchain::test {
namespace {

class CliVocabulary : public Cli {
 protected:
  void SetUp() override { write_file(own_ / "text.txt", read_file(UNCHAIN_TEST_DATA "/vocabulary/text.txt")); }
};

TEST_F(CliVocabulary, WritesAFolderAndSaysWhatItHolds) {
  const nlohmann::json json = run_json({"vocabulary", own("text.txt"), "--size", "400", "-o", own("v")});
  expect_keys(json, {"folder", "pieces", "documents", "bytes", "tokens", "bytes_per_token"});
  EXPECT_EQ(json["pieces"], 400);
  EXPECT_EQ(json["documents"], 1);
  EXPECT_EQ(json["bytes"], std::filesystem::file_size(own_ / "text.txt"));
  const auto tokenizer = tokenizer::from_folder(own("v"));
  const std::string text = read_file(own_ / "text.txt");
  EXPECT_EQ(json["tokens"], tokenizer->encode(text).size());
  EXPECT_DOUBLE_EQ(json["bytes_per_token"].get<double>() * json["tokens"].get<double>(), json["bytes"].get<double>());
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  // Again, and several files: the same bytes for the same text.
  EXPECT_EQ(run_program({"vocabulary", own("text.txt"), "--size", "400", "-o", own("w")}).status, 0);
  EXPECT_EQ(read_file(own_ / "v/tokenizer.model"), read_file(own_ / "w/tokenizer.model"));
  write_file(own_ / "more.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  EXPECT_EQ(run_json({"vocabulary", own("text.txt"), own("more.jsonl"), "--size", "400", "-o", own("x")})["documents"],
            3);
}

TEST_F(CliVocabulary, BadInput) {
  const std::string text = own("text.txt"), out = own("v");
  expect_failure({"vocabulary", text, "--size", "260", "-o", out}, 2, {"vocabulary of 260", "261"});
  expect_failure({"vocabulary", text, "--size", "270", "-o", out}, 2, {"vocabulary of 270", "characters"});
  expect_failure({"vocabulary", text, "-o", out}, 2, {"vocabulary of 4096", "smaller size"});
  expect_failure({"vocabulary", own("none"), "-o", out}, 3, {own("none")});
  write_file(own_ / "empty", "");
  expect_failure({"vocabulary", own("empty"), "-o", out}, 3, {"is empty"});
  write_file(own_ / "blank", "\n  \n\n");
  expect_failure({"vocabulary", own("blank"), "-o", out}, 3, {"no text"});
  write_file(own_ / "binary", std::string("\x7f"
                                          "ELF\0\0",
                                          6));
  expect_failure({"vocabulary", text, own("binary"), "-o", out}, 3, {"binary", "byte 4", "UTF-8"});
  expect_failure({"vocabulary", text, "--size", "400", "-o", text}, 3, {text, "not an empty folder"});
  expect_failure({"vocabulary", text, "--size", "400", "-o", own("text.txt/v")}, 3, {own("text.txt/v")});
  expect_failure({"vocabulary", text, "--size", "400", "-o", "/proc/v"}, 3, {"/proc/v"});
  RunOptions full;
  full.largest_file = 1000;  // less than the vocabulary takes
  expect_failure({"vocabulary", text, "--size", "400", "-o", out}, 3, {out}, full);
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(own_.files(), 4u);
}

}  // namespace
}  // namespace unchain::test
