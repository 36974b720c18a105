// Vocabularies trained here, held against what sentencepiece and transformers for Python say of them (tests/golden).
#include "text/vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "text/corpus.h"
#include "text/text_support.h"

namespace unchain::test {
namespace {

using text::train_vocabulary;

nlohmann::json golden() {
  return nlohmann::json::parse(read_file(kVocabulary + "/golden.json"));
}

std::shared_ptr<tokenizer::Tokenizer> trained(const std::vector<std::string>& documents, int32_t size) {
  const TemporaryFolder folder;
  text::write_vocabulary(folder / "v", train_vocabulary(documents, size));
  return tokenizer::from_folder(folder / "v");
}

TEST(Vocabulary, IdsAreThoseOfOtherPrograms) {
  const nlohmann::json g = golden();
  for (size_t i = 0; i < g["texts"].size(); ++i) {
    const std::string text = g["texts"][i];
    EXPECT_EQ(own_tokenizer()->encode(text), g["ids"][i].get<std::vector<int32_t>>()) << text;
  }
}

// Other versions of the library count runs of blanks otherwise: a piece or two may differ, and their places.
TEST(Vocabulary, LearnsThePiecesThatAnotherVersionLearns) {
  const std::string text = read_file(kVocabulary + "/text.txt");
  const auto tokenizer = trained({text}, 512);
  const auto expected = golden()["pieces"].get<std::set<std::string>>();
  std::vector<std::string> missing;
  for (int32_t id = 0; id < tokenizer->size(); ++id) {
    if (!expected.contains(tokenizer->piece(id))) missing.push_back(tokenizer->piece(id));
  }
  EXPECT_LE(missing.size(), 2u) << testing::PrintToString(missing);
}

TEST(Vocabulary, SameTextSameBytes) {
  const std::vector<std::string> documents = {read_file(kVocabulary + "/text.txt"), "and a second document\n"};
  const std::string model = train_vocabulary(documents, 400);
  EXPECT_EQ(model, train_vocabulary(documents, 400));
  EXPECT_NE(model, train_vocabulary(documents, 401));
}

TEST(Vocabulary, FixedPiecesAndSettings) {
  const auto t = own_tokenizer();
  EXPECT_EQ(t->size(), 512);
  EXPECT_EQ(t->unknown, 0);
  EXPECT_EQ(t->bos, 1);
  EXPECT_EQ(t->eos, 2);
  EXPECT_TRUE(t->add_bos);
  EXPECT_EQ(t->piece(3), "\n");
  EXPECT_EQ(t->piece(4), "<0x00>");
  EXPECT_EQ(t->piece(text::kFixedPieces - 1), "<0xFF>");
  for (int32_t id = 0; id < t->size(); ++id) {
    const std::string piece = t->piece(id);
    if (id < text::kFixedPieces) continue;
    EXPECT_EQ(piece.find_first_of("\n\t"), std::string::npos) << piece;
    EXPECT_TRUE(piece.find_first_of("0123456789") == std::string::npos || piece.size() == 1) << piece;
  }
  EXPECT_EQ(t->encode("\n\n"), (std::vector<int32_t>{3, 3}));
  EXPECT_EQ(t->encode(" 1234;").size(), 6u);  // a blank, four digits, a semicolon
}

TEST(Vocabulary, DigitsStayAloneHoweverOftenTheyMeet) {
  std::string text = read_file(kVocabulary + "/text.txt");
  for (int i = 0; i < 500; ++i) text += "\nyear 1984, 1984 and 1984x";
  const auto t = trained({text}, 450);
  EXPECT_EQ(t->encode(" 1984").size(), 5u);
  EXPECT_EQ(t->encode("1984x1984").size(), 9u);
}

TEST(Vocabulary, AnyBytesComeBack) {
  const auto t = own_tokenizer();
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  for (const std::string& text :
       {all, all + all, std::string("\0\0", 2), std::string("\xff\xfe \xe2\x96"), std::string("▁▅⁇ ▁"),
        std::string("<s><0x41></s>"), std::string("  \n  "), std::string("\t")}) {
    EXPECT_EQ(t->decode(t->encode(text)), text);
  }
}

TEST(Vocabulary, MarksOfTheLibraryAndTabsDoNotHideTheRestOfALine) {
  const auto t = trained({"a\tseashore\tseashore\nb▁seashore▅seashore\nseashore\r\nseashore"}, 274);
  EXPECT_LE(t->encode("seashore").size(), 2u);
}

TEST(Vocabulary, VeryLongLinesCount) {
  std::string line;
  while (line.size() < 100'000) line += "seashore ";
  EXPECT_LE(trained({line}, 272)->encode("seashore").size(), 3u);
}

TEST(Vocabulary, BadInput) {
  const std::string text = read_file(kVocabulary + "/text.txt");
  for (const int32_t size : {-1, 0, 1, 260, (1 << 20) + 1})
    expect_error([&] { train_vocabulary({text}, size); }, ErrorCode::usage,
                 {"vocabulary of " + std::to_string(size), "261"});
  expect_error([&] { train_vocabulary({text}, 265); }, ErrorCode::usage, {"vocabulary of 265", "characters", "larger"});
  expect_error([&] { train_vocabulary({text}, 100'000); }, ErrorCode::usage,
               {"vocabulary of 100000", "pieces", "smaller"});
  expect_error([&] { train_vocabulary({"ab"}, 512); }, ErrorCode::usage, {"vocabulary of 512", "more text"});
  for (const std::vector<std::string>& none : {std::vector<std::string>{}, {""}, {" \n\n  \r\n"}, {"\n", "\t"}})
    expect_error([&] { train_vocabulary(none, 512); }, ErrorCode::format, {"no text"});
}

TEST(Vocabulary, FolderIsWholeOrAbsent) {
  const TemporaryFolder folder;
  write_file(folder / "file", "kept");
  for (const char* name : {"file", "file/below"})
    expect_error([&] { text::write_vocabulary(folder / name, "model"); }, ErrorCode::io, {name});
  std::filesystem::create_directory(folder / "full");
  write_file(folder / "full/x", "kept");
  expect_error([&] { text::check_vocabulary_folder(folder / "full"); }, ErrorCode::io, {"full", "not an empty folder"});
  expect_error([&] { text::write_vocabulary(folder / "full", "model"); }, ErrorCode::io, {"full"});
  EXPECT_EQ(folder.files(), 2u);
  std::filesystem::create_directory(folder / "empty");
  text::write_vocabulary(folder / "empty", "model");
  text::write_vocabulary(folder / "a/b/c", "model");
  EXPECT_EQ(read_file(folder / "a/b/c/tokenizer.model"), "model");
  EXPECT_TRUE(nlohmann::json::accept(read_file(folder / "empty/tokenizer_config.json")));
  EXPECT_EQ(folder.files(), 4u);
}

}  // namespace
}  // namespace unchain::test
