// The tokenizers of the real models: ids as the references give them, all of a large text, and its speed.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "support/pretrained.h"
#include "tokenizer/tokenizer.h"

namespace unchain::test {
namespace {

using tokenizer::Control;
using tokenizer::Tokenizer;

class PretrainedTokenizer : public Pretrained {
 protected:
  std::unique_ptr<Tokenizer> open(const std::filesystem::path& model) const {
    return tokenizer::from_gguf(formats::GgufFile::open(model));
  }
  void expect_goldens(const Tokenizer& tokenizer, const std::string& model) const {
    const nlohmann::json prompts = golden(model, "prompts").at("prompts");
    ASSERT_EQ(prompts.size(), 8u);
    for (const auto& prompt : prompts) {
      const Control control = prompt["name"] == "chat" ? Control::parse : Control::literal;
      const std::string text = prompt["text"];
      const auto ids = tokenizer.encode_with_bos(text, control);
      EXPECT_EQ(ids, prompt["ids"].get<std::vector<int32_t>>()) << prompt["name"];
      std::vector<std::string> pieces;
      for (const int32_t id : ids) pieces.push_back(tokenizer.piece(id));
      EXPECT_EQ(pieces, prompt["pieces"].get<std::vector<std::string>>()) << prompt["name"];
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, control)), text);
    }
  }
  // Ids of the whole file, which must come back as it was, within the seconds given.
  std::vector<int32_t> whole_file(const Tokenizer& tokenizer, double limit_s) const {
    const std::string text = read_file(shared_ / "data/wikitext-2/wiki.test.raw");
    const auto start = std::chrono::steady_clock::now();
    auto ids = tokenizer.encode_with_bos(text);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    RecordProperty("encode_ms", static_cast<int>(seconds * 1000));
    std::printf("encoded %zu bytes in %.3f s\n", text.size(), seconds);
    EXPECT_LT(seconds, limit_s);
    EXPECT_TRUE(tokenizer.decode(tokenizer.encode(text)) == text);
    return ids;
  }
};

TEST_F(PretrainedTokenizer, SmolLm2) {
  const auto tokenizer = open(smollm2());
  EXPECT_EQ(tokenizer->kind, "gpt2 bpe (smollm)");
  EXPECT_TRUE(tokenizer->warnings.empty());
  EXPECT_EQ(tokenizer->size(), 49152);
  EXPECT_EQ(tokenizer->bos, 1);
  EXPECT_FALSE(tokenizer->add_bos);
  EXPECT_EQ(tokenizer->stops, std::vector<int32_t>{2});
  expect_goldens(*tokenizer, "smollm2");
  EXPECT_EQ(whole_file(*tokenizer, 5).size(), 303415u);
  // All bytes: each comes back, or is reported.
  std::string bytes, expected;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  tokenizer::Missing missing;
  const auto ids = tokenizer->encode(bytes, Control::literal, &missing);
  EXPECT_EQ(missing.size(), 21u);
  for (const char byte : bytes) {
    const bool gone = missing.contains(std::string(1, byte));
    expected += gone ? std::string("<|endoftext|>") : std::string(1, byte);
  }
  EXPECT_EQ(tokenizer->decode(ids), expected);
}

TEST_F(PretrainedTokenizer, Gemma3) {
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = open(gemma3());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("opened in %.3f s\n", seconds);
  EXPECT_LT(seconds, 3);
  EXPECT_EQ(tokenizer->kind, "sentencepiece");
  EXPECT_EQ(tokenizer->size(), 262144);
  EXPECT_TRUE(tokenizer->add_bos);
  expect_goldens(*tokenizer, "gemma3-270m");
  const auto ids = whole_file(*tokenizer, 5);
  EXPECT_EQ(ids.front(), 2);
  EXPECT_EQ(ids.size(), 1u + 295215u);
}

}  // namespace
}  // namespace unchain::test
