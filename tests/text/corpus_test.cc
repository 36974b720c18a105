#include "text/corpus.h"

#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace unchain::test {
namespace {

using Documents = std::vector<std::string>;

TEST(Corpus, AFileIsADocumentAndSoIsALineOfJsonLines) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", " first\r\n\n second \n");
  write_file(folder / "b.jsonl",
             "{\"text\": \"one\\nline\"}\n\n  \r\n{\"id\": 7, \"text\": \"\"}\n{\"text\": \"é \\u00e9\", \"x\": [1]}");
  const Documents documents = text::read_documents({folder / "a.txt", folder / "b.jsonl", folder / "a.txt"});
  EXPECT_EQ(documents, (Documents{" first\r\n\n second \n", "one\nline", "é é", " first\r\n\n second \n"}));
  EXPECT_EQ(text::total_bytes(documents), 2 * 18u + 8 + 5);
}

TEST(Corpus, BadInput) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::string& name, const std::string& bytes, ErrorCode code,
                          std::initializer_list<std::string> parts) {
    SCOPED_TRACE(bytes);
    write_file(folder / name, bytes);
    expect_error([&] { text::read_documents({folder / name}); }, code, parts);
  };
  expect_error([] { text::read_documents({}); }, ErrorCode::usage, {"no file"});
  expect_error([&] { text::read_documents({folder / "none"}); }, ErrorCode::io, {"none"});
  expect_error([&] { text::read_documents({folder.path()}); }, ErrorCode::io, {"directory"});
  expect("a.txt", "", ErrorCode::format, {"a.txt", "is empty"});
  expect("a.txt", std::string("ab\0c", 4), ErrorCode::format, {"a.txt", "byte 2", "00"});
  expect("a.txt", "abc\xff", ErrorCode::format, {"byte 3", "ff", "UTF-8"});
  expect("a.txt", "caf\xe9 ol\xe9", ErrorCode::format, {"byte 3", "e9"});
  expect("b.jsonl", "\n \n", ErrorCode::format, {"b.jsonl", "no line with text"});
  expect("b.jsonl", "{\"text\": \"\"}", ErrorCode::format, {"no line with text"});
  expect("b.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"", ErrorCode::format, {"line 2"});
  expect("b.jsonl", "\n[\"a\"]\n", ErrorCode::format, {"line 2", "\"text\""});
  expect("b.jsonl", "{\"txt\": \"a\"}\n", ErrorCode::format, {"line 1", "\"text\""});
  expect("b.jsonl", "{\"text\": 7}\n", ErrorCode::format, {"line 1", "\"text\""});
  expect("b.jsonl", "{\"text\": \"a\\u0000b\"}\n", ErrorCode::format, {"line 1", "byte 1"});
}

}  // namespace
}  // namespace unchain::test
