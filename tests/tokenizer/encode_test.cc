// Ids and round trips: against Hugging Face tokenizers (goldens), against libsentencepiece, and as laws.
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "tokenizer/pretokenizer.h"
#include "tokenizer/small_vocabularies.h"

namespace unchain::test {
namespace {

using tokenizer::Control;
using tokenizer::Tokenizer;
using Ids = std::vector<int32_t>;

constexpr const char* kFiles[] = {"byte_level.json", "gemma_like.json", "llama_like.json", "gemma_like.model",
                                  "llama_like.model"};

TEST(Encode, GoldenTexts) {
  const auto golden = nlohmann::json::parse(read_file(kVocabularies + "golden.json"));
  int compared = 0;
  for (const auto& [file, sets] : golden["vocabularies"].items()) {
    for (const auto& [pretokenizer, expected] : sets.items()) {
      const auto tokenizer = small_tokenizer(file, pretokenizer);
      for (const auto& [name, ids] : expected.items()) {
        const std::string text = golden["texts"][name], where = fmt::format("{}, {}, {}", file, pretokenizer, name);
        EXPECT_EQ(tokenizer->encode(text), ids["ids"].get<Ids>()) << where;
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << where;
        if (file.ends_with(".json")) {
          const auto& special = ids.contains("special") ? ids["special"] : ids["ids"];
          EXPECT_EQ(tokenizer->encode(text, Control::parse), special.get<Ids>()) << where;
        }
        EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, Control::parse)), text) << where;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 8 * 21);
}

// The same vocabulary through GGUF metadata gives the same ids.
TEST(Encode, GgufGivesTheIdsOfTheFile) {
  const auto golden = nlohmann::json::parse(read_file(kVocabularies + "golden.json"));
  for (const char* file : {"byte_level.json", "gemma_like.model", "llama_like.model"}) {
    const auto direct = small_tokenizer(file), gguf = gguf_tokenizer(gguf_metadata(small_vocabulary(file)));
    EXPECT_EQ(gguf->size(), direct->size());
    for (const auto& [name, text] : golden["texts"].items()) {
      for (const Control control : {Control::literal, Control::parse}) {
        EXPECT_EQ(gguf->encode(text.get<std::string>(), control), direct->encode(text.get<std::string>(), control))
            << file << ", " << name;
      }
    }
  }
}

// Characters of one to four bytes, blanks, names of tokens and stray bytes, by chance.
std::string random_text(std::mt19937& random, bool stray_bytes) {
  static const std::vector<std::string> parts = {"a",   "e",      "th",   " ", "  ",  "\n",   "\n\n", "\t",
                                                 "1",   "'s",     "é",    "́",  "中",  "👍",    "‍",  " ",
                                                 "<s>", "<tool>", "</s>", ".", "The", "ing ", "½",    "<|im_end|>"};
  std::string text;
  for (size_t n = random() % 40; n > 0; --n) {
    if (stray_bytes && random() % 3 == 0) {
      text += static_cast<char>(random() % 256);
    } else {
      text += parts[random() % parts.size()];
    }
  }
  return text;
}

TEST(Encode, AnyBytesComeBack) {
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* file : kFiles) tokenizers.push_back(small_tokenizer(file));
  for (const char* name : {"gpt2", "llama-bpe", "qwen2"})
    tokenizers.push_back(small_tokenizer("byte_level.json", name));
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random, true);
    for (const auto& tokenizer : tokenizers) {
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << tokenizer->kind;
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text, Control::parse)), text) << tokenizer->kind;
    }
  }
}

// Without a piece for some bytes: what is missing is counted, and nothing else is lost.
TEST(Encode, BytesWithoutAPieceAreReported) {
  const std::string gone("\0\x01\xc0\xf5\xff", 5);
  tokenizer::Vocabulary v = small_vocabulary("byte_level.json");
  for (const char* piece : {"Ā", "ā", "À", "õ", "ÿ"}) {  // how those bytes are written
    const auto place = std::find(v.pieces.begin(), v.pieces.end(), piece);
    ASSERT_NE(place, v.pieces.end()) << piece;
    *place += "gone";
  }
  std::mt19937 random(5);
  size_t texts_with_gaps = 0;
  for (const int32_t unknown : {-1, 0}) {
    v.unknown = unknown;
    const auto tokenizer = make_tokenizer(v);
    EXPECT_EQ(tokenizer->unknown, unknown);
    ASSERT_EQ(tokenizer->notes.size(), 1u);
    EXPECT_NE(tokenizer->notes[0].find("5 byte values"), std::string::npos) << tokenizer->notes[0];
    EXPECT_NE(tokenizer->notes[0].find("(00 01 c0 f5 ff)"), std::string::npos) << tokenizer->notes[0];
    for (int i = 0; i < 2000; ++i) {
      const std::string text = random_text(random, true);
      std::string expected;
      tokenizer::Missing counts, missing;
      for (const char byte : text) {
        if (gone.find(byte) == std::string::npos) {
          expected += byte;
        } else {
          ++counts[std::string(1, byte)];
          if (unknown >= 0) expected += tokenizer->piece(unknown);
        }
      }
      const Ids ids = tokenizer->encode(text, Control::literal, &missing);
      ASSERT_EQ(missing, counts);
      ASSERT_EQ(tokenizer->decode(ids), expected);
      ASSERT_EQ(tokenizer->encode(text), ids);
      texts_with_gaps += !missing.empty();
    }
  }
  EXPECT_GT(texts_with_gaps, 100u);
}

TEST(Encode, CharactersWithoutAPieceAreReported) {
  tokenizer::Vocabulary v;
  v.name = "tiny";
  v.kind = tokenizer::Vocabulary::Kind::sentencepiece;
  v.pieces = {"<unk>", "a", "b", "ab", "\xe2\x96\x81"};
  v.types = {tokenizer::PieceType::unknown, tokenizer::PieceType::normal, tokenizer::PieceType::normal,
             tokenizer::PieceType::normal, tokenizer::PieceType::normal};
  v.scores = {0, 0, 0, 1, 0};
  v.unknown = 0;
  tokenizer::Missing missing;
  const auto tokenizer = make_tokenizer(v);
  EXPECT_EQ(tokenizer->encode_with_bos("ab 中b\xff中▁a", Control::parse, &missing), (Ids{3, 4, 0, 2, 0, 0, 0, 1}));
  EXPECT_EQ(missing, (tokenizer::Missing{{"中", 2}, {"\xff", 1}, {"▁", 1}}));
  // A blank without a piece is a blank, not the mark that stands for it.
  v.pieces[4] = "c";
  missing.clear();
  EXPECT_EQ(make_tokenizer(v)->encode("a b", Control::literal, &missing), (Ids{1, 0, 2}));
  EXPECT_EQ(missing, (tokenizer::Missing{{" ", 1}}));
  for (int byte = 0; byte < 256; ++byte) {
    v.pieces.push_back(fmt::format("<0x{:02X}>", byte));
    v.types.push_back(tokenizer::PieceType::byte);
    v.scores.push_back(0);
  }
  const auto bytes = make_tokenizer(v);
  EXPECT_TRUE(bytes->notes.empty());
  missing.clear();
  EXPECT_EQ(bytes->decode(bytes->encode("a b ▁ 中", Control::literal, &missing)), "a b ▁ 中");
  EXPECT_TRUE(missing.empty());
}

TEST(Encode, StrayBytesAndMarks) {
  const std::vector<std::string> texts = {std::string(1, '\0'),
                                          "\xff",
                                          "a\xff\xfe_b",
                                          "\xed\xa0\x80",
                                          "\xc3",
                                          "\xe4\xbd",
                                          "x\xf0\x9f\x91",
                                          "\xc0\x80",
                                          "a▁b",
                                          "▁",
                                          " ▁ ▁▁",
                                          "\xf5\x80\x80\x80 end"};
  for (const char* file : kFiles) {
    const auto tokenizer = small_tokenizer(file);
    for (const std::string& text : texts) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << file;
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, Control::parse)), text) << file;
    }
  }
  // By value: a, then the pieces of the bytes.
  const auto tokenizer = small_tokenizer("gemma_like.model");
  const Ids ids = tokenizer->encode(
      "a\xff\xfe"
      "b");
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(tokenizer->piece(ids[1]), "<0xFF>");
  EXPECT_EQ(tokenizer->piece(ids[2]), "<0xFE>");
}

TEST(Encode, LibraryGivesTheSameIds) {
  std::mt19937 random(11);
  for (const char* file : {"gemma_like.model", "llama_like.model"}) {
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.Load(kVocabularies + file).ok());
    const auto tokenizer = small_tokenizer(file);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(random, false);
      std::vector<int> ids;
      ASSERT_TRUE(library.Encode(text, &ids).ok());
      ASSERT_EQ(tokenizer->encode(text), ids) << file << ": " << text;
    }
  }
}

// The patterns alone tell these apart: the vocabulary has merges of digits.
TEST(Encode, DigitsAreCutAsThePretokenizerSays) {
  const auto pieces = [](const std::string& pretokenizer) {
    const auto tokenizer = small_tokenizer("byte_level.json", pretokenizer);
    return tokenizer->encode("1234567").size();
  };
  EXPECT_EQ(pieces("smollm"), 7u);
  EXPECT_EQ(pieces("qwen2"), 7u);
  EXPECT_LT(pieces("llama-bpe"), 7u);
  EXPECT_LT(pieces("gpt2"), pieces("llama-bpe"));
}

TEST(Encode, PiecesMayJoinWordsAcrossABlank) {
  tokenizer::Vocabulary v;
  v.name = "joins";
  v.kind = tokenizer::Vocabulary::Kind::sentencepiece;
  v.pieces = {"a", "b", "▁", "▁a", "b▁", "b▁a"};
  v.types.assign(v.pieces.size(), tokenizer::PieceType::normal);
  v.scores = {-5, -5, -5, -3, -2, -1};
  EXPECT_EQ(make_tokenizer(v)->encode("ab aa a"), (Ids{0, 5, 0, 3}));
}

TEST(Encode, HostileTextsTakeLinearTime) {
  const std::string a(1 << 20, 'a'), blanks(1 << 20, ' '), lines(1 << 20, '\n'), stray(1 << 20, '\xff');
  for (const char* file : kFiles) {
    const auto tokenizer = small_tokenizer(file);
    for (const std::string& text : {a, blanks, blanks + "x", lines, stray}) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_TRUE(tokenizer->decode(tokenizer->encode(text, Control::parse)) == text);
      EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5) << file;
    }
  }
  for (const char* name : {"gpt2", "llama-bpe", "qwen2"}) {
    const auto tokenizer = small_tokenizer("byte_level.json", name);
    const auto start = std::chrono::steady_clock::now();
    for (const std::string& text : {a, blanks + "x", lines}) EXPECT_FALSE(tokenizer->encode(text).empty());
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 15) << name;
  }
}

TEST(Encode, BosIsAddedOnceAndOnlyIfTheFileSaysSo) {
  auto entries = gguf_metadata(small_vocabulary("llama_like.model"));
  const auto absent = gguf_tokenizer(entries);
  EXPECT_TRUE(absent->add_bos);  // the default of SentencePiece
  EXPECT_EQ(absent->encode_with_bos(""), Ids{1});
  const Ids plain = absent->encode_with_bos("Hello");
  EXPECT_EQ(plain.front(), 1);
  EXPECT_EQ(Ids(plain.begin() + 1, plain.end()), absent->encode("Hello"));
  EXPECT_EQ(absent->encode_with_bos("<s>Hello", Control::parse), plain);
  EXPECT_EQ(absent->encode_with_bos("<s>Hello").front(), 1);  // literal: the name is text behind the one BOS
  EXPECT_GT(absent->encode_with_bos("<s>Hello").size(), plain.size());
  EXPECT_EQ(absent->decode(absent->encode("<s>Hello", Control::parse)), "<s>Hello");
  set_entry(entries, "tokenizer.ggml.add_bos_token", false);
  EXPECT_EQ(gguf_tokenizer(entries)->encode_with_bos("Hello"), absent->encode("Hello"));

  auto bytes = gguf_metadata(small_vocabulary("byte_level.json"));
  set_entry(bytes, "tokenizer.ggml.bos_token_id", uint32_t{1});
  EXPECT_FALSE(gguf_tokenizer(bytes)->add_bos);
  EXPECT_TRUE(gguf_tokenizer(bytes, "llama-bpe")->add_bos);
  set_entry(bytes, "tokenizer.ggml.add_bos_token", true);
  const auto with = gguf_tokenizer(bytes);
  EXPECT_EQ(with->encode_with_bos("<|im_start|>Hello", Control::parse), with->encode_with_bos("Hello"));
}

TEST(Encode, ControlNamesAreTextUnlessAskedFor) {
  const auto tokenizer = small_tokenizer("byte_level.json");
  const std::string text = "a<|im_start|>b";
  for (const int32_t id : tokenizer->encode(text)) EXPECT_FALSE(tokenizer->is_control(id));
  const Ids ids = tokenizer->encode(text, Control::parse);
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_TRUE(tokenizer->is_control(ids[1]));
  EXPECT_EQ(tokenizer->piece(ids[1]), "<|im_start|>");
  EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST(Encode, OneTokenizerForManyThreads) {
  const auto tokenizer = small_tokenizer("byte_level.json");
  const std::string text = read_file(kVocabularies + "golden.json");
  const Ids expected = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (size_t i = 0; i < same.size(); ++i) {
    threads.emplace_back([&, i] { same[i] = tokenizer->encode(text) == expected; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 1));
}

TEST(Decode, IdsBeyondTheVocabularyAreAUsageError) {
  const auto tokenizer = small_tokenizer("byte_level.json");
  for (const int32_t id : {-1, tokenizer->size(), INT32_MAX, INT32_MIN}) {
    expect_error([&] { tokenizer->decode({id}); }, ErrorCode::usage, {std::to_string(id)});
    expect_error([&] { tokenizer->piece(id); }, ErrorCode::usage, {std::to_string(id)});
    expect_error([&] { tokenizer->is_control(id); }, ErrorCode::usage, {std::to_string(id)});
  }
}

TEST(Pretokenizer, BlanksAreThoseOfUnicode) {
  EXPECT_EQ(tokenizer::with_unicode_blanks(R"(\s+|[^\s\S]x\\s)"), R"([\p{Z}\t-\r\x{85}]+|[^\p{Z}\t-\r\x{85}\S]x\\s)");
}

TEST(Pretokenizer, NamesAreDistinct) {
  std::vector<std::string_view> names;
  for (const auto& known : tokenizer::known_pretokenizers()) {
    names.insert(names.end(), known.names.begin(), known.names.end());
    EXPECT_NO_THROW(tokenizer::Pretokenizer({known.patterns.begin(), known.patterns.end()}, "table"));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(names[i], names[j]);
  }
}

}  // namespace
}  // namespace unchain::test
