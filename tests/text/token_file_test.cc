#include <gtest/gtest.h>

#include <cstring>

#include "text/text_support.h"

namespace unchain::test {
namespace {

using text::TokenFile;

const std::vector<std::string> kDocuments = {"The river meets the sea.\n", "x", "Two mills,\n\none river; 42 stones."};

std::vector<int32_t> all(const TokenFile& file) {
  std::vector<int32_t> ids(static_cast<size_t>(file.tokens()));
  file.copy(0, ids);
  return ids;
}

TEST(TokenFileTest, HoldsDocumentsWithBosInFront) {
  const TemporaryFolder folder;
  const auto tokenizer = own_tokenizer();
  text::write_token_file(folder / "t", kDocuments, *tokenizer);
  const TokenFile file = TokenFile::open(folder / "t", *tokenizer);
  std::vector<int32_t> expected;
  std::vector<int64_t> starts;
  for (const std::string& document : kDocuments) {
    starts.push_back(static_cast<int64_t>(expected.size()));
    expected.push_back(1);
    for (const int32_t id : tokenizer->encode(document)) expected.push_back(id);
  }
  EXPECT_EQ(all(file), expected);
  EXPECT_EQ(std::vector<int64_t>(file.document_starts().begin(), file.document_starts().end()), starts);
  EXPECT_EQ(file.bytes(), static_cast<int64_t>(kDocuments[0].size() + kDocuments[1].size() + kDocuments[2].size()));
  for (int64_t i = 0, document = 0; i < file.tokens(); ++i) {
    if (document + 1 < 3 && i == starts[static_cast<size_t>(document) + 1]) ++document;
    EXPECT_EQ(file.document_start(i), starts[static_cast<size_t>(document)]) << i;
    EXPECT_EQ(file[i], expected[static_cast<size_t>(i)]);
  }
  std::vector<int32_t> part(3);
  file.copy(2, part);
  EXPECT_EQ(part, std::vector<int32_t>(expected.begin() + 2, expected.begin() + 5));
}

TEST(TokenFileTest, WithoutBosWhereTheVocabularyHasNone) {
  const TemporaryFolder folder;
  const auto tokenizer = other_tokenizer("byte_level.json");
  text::write_token_file(folder / "t", {"ab"}, *tokenizer);
  std::vector<int32_t> expected = tokenizer->encode("ab");
  if (tokenizer->bos >= 0) expected.insert(expected.begin(), tokenizer->bos);
  EXPECT_EQ(all(TokenFile::open(folder / "t", *tokenizer)), expected);
}

// More than 65536 pieces: four bytes a token. Every piece is "a" to "z" or one that stands for its number.
class WideTokenizer final : public tokenizer::Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, tokenizer::Control, tokenizer::Missing*) const override {
    return std::vector<int32_t>(text.size(), size() - 1);
  }
  std::string decode(const std::vector<int32_t>& ids) const override { return std::string(ids.size(), 'x'); }
  int32_t size() const override { return 65537; }
  std::string piece(int32_t id) const override { return std::to_string(id); }
  bool is_control(int32_t) const override { return false; }
};

TEST(TokenFileTest, LargeVocabulariesTakeFourBytes) {
  const TemporaryFolder folder;
  const WideTokenizer tokenizer;
  text::write_token_file(folder / "t", {"abc", "de"}, tokenizer);
  EXPECT_EQ(std::filesystem::file_size(folder / "t"), 64u + 2 * 8 + 5 * 4);
  EXPECT_EQ(all(TokenFile::open(folder / "t", tokenizer)), std::vector<int32_t>(5, 65536));
}

TEST(TokenFileTest, CacheIsUsedAgainUntilTextOrVocabularyChange) {
  const TemporaryFolder folder;
  const auto tokenizer = own_tokenizer();
  write_file(folder / "a.txt", kDocuments[0]);
  write_file(folder / "b.txt", kDocuments[2]);
  const auto path = [&](const std::vector<std::filesystem::path>& files) {
    return text::cached_tokens(files, *tokenizer, folder / "cache/deep").path();
  };
  const auto first = path({folder / "a.txt", folder / "b.txt"});
  const auto time = std::filesystem::last_write_time(first);
  EXPECT_EQ(path({folder / "a.txt", folder / "b.txt"}), first);
  EXPECT_EQ(std::filesystem::last_write_time(first), time);
  EXPECT_NE(path({folder / "b.txt", folder / "a.txt"}), first);
  write_file(folder / "ab.txt", kDocuments[0] + kDocuments[2]);
  EXPECT_NE(path({folder / "ab.txt"}), first);  // the same bytes, one document
  EXPECT_NE(text::cached_tokens({folder / "a.txt", folder / "b.txt"}, *other_tokenizer("gemma_like.model"),
                                folder / "cache/deep")
                .path(),
            first);
  // A damaged one is made again.
  const std::string good = read_file(first);
  for (const std::string& bad : {std::string("x"), good.substr(0, good.size() - 1), good + "x", std::string()}) {
    write_file(first, bad);
    EXPECT_EQ(path({folder / "a.txt", folder / "b.txt"}), first);
    EXPECT_EQ(read_file(first), good);
  }
}

TEST(TokenFileTest, CacheThatCannotBe) {
  const TemporaryFolder folder;
  write_file(folder / "a.txt", "text");
  expect_error([&] { text::cached_tokens({folder / "a.txt"}, *own_tokenizer(), folder / "a.txt"); }, ErrorCode::io,
               {"a.txt"});
  expect_error([&] { text::write_token_file(folder / "t", {}, *own_tokenizer()); }, ErrorCode::format,
               {"no documents"});
}

class HostileTokenFile : public testing::Test {
 protected:
  void SetUp() override {
    text::write_token_file(folder_ / "t", kDocuments, *own_tokenizer());
    good_ = read_file(folder_ / "t");
  }
  // Puts a number at a byte and makes the hash of the content right again.
  template <class T>
  std::string with(size_t at, T value) const {
    std::string bytes = good_;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 64; i < bytes.size(); ++i) hash = (hash ^ static_cast<uint8_t>(bytes[i])) * 0x100000001b3;
    std::memcpy(bytes.data() + 56, &hash, sizeof hash);
    return bytes;
  }
  void expect_refused(const std::string& bytes, std::initializer_list<std::string> parts) {
    write_file(folder_ / "bad", bytes);
    expect_error([&] { TokenFile::open(folder_ / "bad", *own_tokenizer()); }, ErrorCode::format, parts);
  }
  TemporaryFolder folder_;
  std::string good_;
};

TEST_F(HostileTokenFile, Headers) {
  expect_refused(with(0, 'X'), {"bad", "no token file"});
  expect_refused(with<uint32_t>(8, 2), {"version 2", "expected 1"});
  for (const uint32_t width : {0u, 1u, 3u, 4u, 0xffffffffu}) expect_refused(with(12, width), {"do not make a file"});
  for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 62, UINT64_MAX, uint64_t{1} << 63}) {
    expect_refused(with(16, count), {"do not make a file"});
    expect_refused(with(24, count), {"do not make a file"});
  }
  expect_refused(with(32, UINT64_MAX), {"do not make a file"});
  expect_refused(with<uint64_t>(48, 1), {"another vocabulary"});
}

TEST_F(HostileTokenFile, Contents) {
  for (const int64_t start : {int64_t{1}, int64_t{-1}, INT64_MIN})
    expect_refused(with(64, start), {"document 0 begins"});
  for (const int64_t start : {int64_t{0}, int64_t{-5}, int64_t{100'000}, INT64_MAX})
    expect_refused(with(72, start), {"document 1 begins"});
  for (const uint16_t id : {uint16_t{512}, uint16_t{65535}}) expect_refused(with(64 + 24 + 4, id), {"token 2 has id"});
  std::string flipped = good_;
  flipped[90] ^= 1;
  expect_refused(flipped, {"damaged"});
}

TEST_F(HostileTokenFile, EveryCutAndAFlippedBitOfEveryByte) {
  for (size_t size = 0; size < good_.size(); ++size) {
    write_file(folder_ / "bad", good_.substr(0, size));
    EXPECT_TRUE(error_of([&] { TokenFile::open(folder_ / "bad", *own_tokenizer()); })) << size;
  }
  for (size_t at = 0; at < good_.size(); ++at) {
    if (at >= 32 && at < 48) continue;  // numbers that only inform: bytes and hash of the text
    std::string bytes = good_;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    write_file(folder_ / "bad", bytes);
    EXPECT_TRUE(error_of([&] { TokenFile::open(folder_ / "bad", *own_tokenizer()); })) << at;
  }
}

}  // namespace
}  // namespace unchain::test
