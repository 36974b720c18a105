// Tokenizer files: what they may say, and what damaged and hostile ones get as an answer.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

#include "tokenizer/small_vocabularies.h"

namespace unchain::test {
namespace {

using formats::GgufEntry;
using nlohmann::json;
using tokenizer::PieceType;
using tokenizer::Vocabulary;

json small_json(const std::string& file) {
  return json::parse(read_file(kVocabularies + file));
}

// A GGUF file of the vocabulary with one key changed must be refused.
void expect_refused(const std::string& file, const std::string& key, const std::optional<formats::GgufValue>& value,
                    ErrorCode code, std::initializer_list<std::string> parts) {
  SCOPED_TRACE(key);
  auto entries = gguf_metadata(small_vocabulary(file));
  set_entry(entries, key, value);
  expect_error([&] { gguf_tokenizer(entries); }, code, parts);
}

// A tokenizer.json with a change must be refused.
void expect_json_refused(const std::string& file, const std::function<void(json&)>& change, ErrorCode code,
                         std::initializer_list<std::string> parts) {
  json spec = small_json(file);
  change(spec);
  expect_error([&] { make_tokenizer(tokenizer::read_tokenizer_json(spec.dump(), "t.json")); }, code, parts);
}

TEST(GgufTokenizer, UnknownPretokenizerIsAWarningThatSaysWhatToPass) {
  auto entries = gguf_metadata(small_vocabulary("byte_level.json"));
  set_entry(entries, "tokenizer.ggml.pre", std::string("never-heard-of"));
  const auto tokenizer = gguf_tokenizer(entries);
  ASSERT_EQ(tokenizer->warnings.size(), 1u);
  for (const char* part : {"never-heard-of", "gpt2 is used", "--pretokenizer NAME", "smollm", "qwen2"}) {
    EXPECT_NE(tokenizer->warnings[0].find(part), std::string::npos) << tokenizer->warnings[0];
  }
  EXPECT_EQ(tokenizer->kind, "gpt2 bpe (gpt2)");
  const auto chosen = gguf_tokenizer(entries, "qwen2");
  EXPECT_TRUE(chosen->warnings.empty());
  EXPECT_EQ(chosen->kind, "gpt2 bpe (qwen2)");
  expect_error([&] { gguf_tokenizer(entries, "nonsense"); }, ErrorCode::usage, {"nonsense", "smollm"});
  set_entry(entries, "tokenizer.ggml.pre", std::nullopt);
  EXPECT_EQ(gguf_tokenizer(entries)->warnings.size(), 1u);
}

TEST(GgufTokenizer, StopsAreWhatTheFileNames) {
  auto entries = gguf_metadata(small_vocabulary("byte_level.json"));
  set_entry(entries, "tokenizer.ggml.eos_token_id", uint32_t{2});
  set_entry(entries, "tokenizer.ggml.eot_token_id", uint32_t{0});
  set_entry(entries, "tokenizer.ggml.eom_token_id", uint32_t{2});
  EXPECT_EQ(gguf_tokenizer(entries)->stops, (std::vector<int32_t>{0, 2}));
}

TEST(GgufTokenizer, HostileMetadata) {
  const std::string bytes = "byte_level.json", pieces = "gemma_like.model";
  using S = std::vector<std::string>;
  expect_refused(bytes, "tokenizer.ggml.model", std::nullopt, ErrorCode::format, {"tokenizer.ggml.model", "missing"});
  expect_refused(bytes, "tokenizer.ggml.model", std::string("bert"), ErrorCode::unsupported, {"bert", "gpt2"});
  expect_refused(bytes, "tokenizer.ggml.model", uint32_t{1}, ErrorCode::format, {"tokenizer.ggml.model"});
  expect_refused(bytes, "tokenizer.ggml.tokens", std::nullopt, ErrorCode::format, {"tokenizer.ggml.tokens"});
  expect_refused(bytes, "tokenizer.ggml.tokens", gguf_array<std::string>(S{}), ErrorCode::format, {"no pieces"});
  expect_refused(bytes, "tokenizer.ggml.merges", std::nullopt, ErrorCode::format, {"tokenizer.ggml.merges"});
  for (const char* merge : {"a", "a b c", " ", "", "a ", " b"}) {
    expect_refused(bytes, "tokenizer.ggml.merges", gguf_array<std::string>(S{merge}), ErrorCode::format, {"merge 0"});
  }
  expect_refused(bytes, "tokenizer.ggml.merges", gguf_array<std::string>(S{"q zzz"}), ErrorCode::format,
                 {"merge 0", "vocabulary does not have"});
  expect_refused(bytes, "tokenizer.ggml.merges", gguf_array<std::string>(S{"t h", "t h"}), ErrorCode::format,
                 {"merge 1", "twice"});
  expect_refused(bytes, "tokenizer.ggml.add_space_prefix", true, ErrorCode::unsupported, {"add_space_prefix"});
  for (const char* key : {"bos", "eos", "unknown", "eot", "eom"}) {
    const std::string name = "tokenizer.ggml." + std::string(key) + "_token_id";
    expect_refused(bytes, name, uint32_t{1000000}, ErrorCode::format, {name, "1000000"});
    expect_refused(bytes, name, int64_t{-2}, ErrorCode::format, {name, "-2"});
  }
  expect_refused(bytes, "tokenizer.ggml.add_bos_token", true, ErrorCode::format, {"names none"});
  expect_refused(pieces, "tokenizer.ggml.scores", std::nullopt, ErrorCode::format, {"tokenizer.ggml.scores"});
  expect_refused(pieces, "tokenizer.ggml.scores", gguf_array<float>(std::vector<float>{1, 2}), ErrorCode::format,
                 {"2 scores"});
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto scores = small_vocabulary(pieces).scores;
    scores[300] = bad;
    expect_refused(pieces, "tokenizer.ggml.scores", gguf_array<float>(scores), ErrorCode::format,
                   {"score of piece 300"});
  }
  for (const std::string& file : {bytes, pieces}) {
    expect_refused(file, "tokenizer.ggml.token_type", gguf_array<int32_t>(std::vector<int>{1, 1}), ErrorCode::format,
                   {"2 token types"});
    std::vector<int> types(small_vocabulary(file).pieces.size(), 1);
    types[5] = 7;
    expect_refused(file, "tokenizer.ggml.token_type", gguf_array<int32_t>(types), ErrorCode::format, {"piece 5", "7"});
    types[5] = -1;
    expect_refused(file, "tokenizer.ggml.token_type", gguf_array<int32_t>(types), ErrorCode::format, {"piece 5", "-1"});
  }
  std::vector<int> types(small_vocabulary(pieces).pieces.size(), 6);
  expect_refused(pieces, "tokenizer.ggml.token_type", gguf_array<int32_t>(types), ErrorCode::format, {"<0x0A>"});
  expect_refused(pieces, "tokenizer.ggml.remove_extra_whitespaces", true, ErrorCode::unsupported, {"whitespaces"});
}

TEST(Vocabularies, DuplicateEmptyAndHugePieces) {
  for (const char* file : {"byte_level.json", "gemma_like.model"}) {
    for (const auto type : {PieceType::normal, PieceType::control, PieceType::user_defined}) {
      Vocabulary v = small_vocabulary(file);
      v.pieces[500] = v.pieces[400];
      v.types[500] = type;
      v.merges.clear();
      expect_error([&] { make_tokenizer(v); }, ErrorCode::format, {"400", "500"});
      v.pieces[500] = "";
      expect_error([&] { make_tokenizer(v); }, ErrorCode::format, {"500", "empty"});
    }
    Vocabulary v = small_vocabulary(file);
    v.pieces.push_back(std::string(5000, 'x'));
    v.types.push_back(PieceType::control);
    if (!v.scores.empty()) v.scores.push_back(0);
    expect_error([&] { make_tokenizer(v); }, ErrorCode::unsupported, {"5000 bytes"});
  }
}

TEST(Vocabularies, MissingBytesAreSaidOrBecomeUnknown) {
  Vocabulary v;
  v.name = "tiny";
  v.pieces = {"<unk>", "a", "b"};
  v.types = {PieceType::unknown, PieceType::normal, PieceType::normal};
  v.patterns = {"."};
  EXPECT_EQ(make_tokenizer(v)->notes.size(), 1u);
  EXPECT_EQ(make_tokenizer(v)->encode("axb"), (std::vector<int32_t>{1, 2}));
  v.unknown = 0;
  EXPECT_EQ(make_tokenizer(v)->encode("axb"), (std::vector<int32_t>{1, 0, 2}));
  EXPECT_EQ(make_tokenizer(v)->notes.size(), 1u);
  v.kind = Vocabulary::Kind::sentencepiece;
  expect_error([&] { make_tokenizer(v); }, ErrorCode::format, {"neither scores nor merges"});
  v.scores = {0, 0, 0};
  EXPECT_EQ(make_tokenizer(v)->notes.size(), 1u);
  EXPECT_EQ(make_tokenizer(v)->encode("a\xff"
                                      "b"),
            (std::vector<int32_t>{1, 0, 2}));
}

TEST(TokenizerJson, MergesAsStringsAndAsPairs) {
  json spec = small_json("byte_level.json");
  ASSERT_TRUE(spec["model"]["merges"][0].is_string());
  for (json& merge : spec["model"]["merges"]) {
    const auto [left, right] = tokenizer::split_merge(merge.get<std::string>(), "", 0);
    merge = {left, right};
  }
  const auto pairs = make_tokenizer(tokenizer::read_tokenizer_json(spec.dump(), "t.json"));
  EXPECT_EQ(pairs->encode("The capital of France"),
            small_tokenizer("byte_level.json")->encode("The capital of France"));
  EXPECT_EQ(pairs->kind, "gpt2 bpe (smollm)");
}

TEST(TokenizerJson, TemplateGivesBosAndUserDefinedTokensAreAlwaysMatched) {
  const auto tokenizer = small_tokenizer("gemma_like.json");
  EXPECT_TRUE(tokenizer->add_bos);
  EXPECT_EQ(tokenizer->piece(tokenizer->bos), "<s>");
  const auto ids = tokenizer->encode("x<tool>y");
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(tokenizer->piece(ids[1]), "<tool>");
  EXPECT_FALSE(tokenizer->is_control(ids[1]));
}

TEST(TokenizerJson, MetaspaceIsAnotherWordForTheNormalizers) {
  json spec = small_json("llama_like.json");
  spec["normalizer"] = nullptr;
  spec["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  const auto tokenizer = make_tokenizer(tokenizer::read_tokenizer_json(spec.dump(), "t.json"));
  EXPECT_EQ(tokenizer->encode("The capital"), small_tokenizer("llama_like.json")->encode("The capital"));
}

TEST(TokenizerJson, UnsupportedConstructsAreNamed) {
  const auto refuse = [](const std::string& file, const std::string& pointer, const json& value,
                         std::initializer_list<std::string> parts) {
    expect_json_refused(
        file, [&](json& spec) { spec[json::json_pointer(pointer)] = value; }, ErrorCode::unsupported, parts);
  };
  const std::string bytes = "byte_level.json", pieces = "gemma_like.json";
  refuse(bytes, "/model/type", "WordPiece", {"WordPiece"});
  refuse(bytes, "/model/end_of_word_suffix", "</w>", {"end_of_word_suffix"});
  refuse(bytes, "/model/dropout", 0.1, {"dropout"});
  refuse(bytes, "/normalizer", {{"type", "Lowercase"}}, {"Lowercase"});
  refuse(bytes, "/pre_tokenizer", {{"type", "Whitespace"}}, {"Whitespace"});
  refuse(bytes, "/pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", true}}, {"add_prefix_space"});
  refuse(bytes, "/pre_tokenizer/pretokenizers/0",
         {{"type", "Split"}, {"pattern", {{"Regex", "x"}}}, {"behavior", "Removed"}, {"invert", false}}, {"Removed"});
  refuse(bytes, "/pre_tokenizer/pretokenizers/0",
         {{"type", "Split"}, {"pattern", {{"Regex", "(x"}}}, {"behavior", "Isolated"}}, {"(x", "parenthes"});
  refuse(bytes, "/pre_tokenizer", nullptr, {"neither ByteLevel nor"});
  refuse(bytes, "/post_processor", {{"type", "BertProcessing"}}, {"BertProcessing"});
  refuse(bytes, "/added_tokens/0/lstrip", true, {"lstrip", "<|endoftext|>"});
  refuse(pieces, "/normalizer", nullptr, {"byte_fallback"});
  refuse(pieces, "/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"split", true}}, {"splits"});
}

TEST(TokenizerJson, DamageIsAFormatError) {
  const auto refuse = [](const std::string& pointer, const json& value, std::initializer_list<std::string> parts) {
    SCOPED_TRACE(pointer);
    expect_json_refused(
        "byte_level.json", [&](json& spec) { spec[json::json_pointer(pointer)] = value; }, ErrorCode::format, parts);
  };
  refuse("/model", 1, {"model"});
  refuse("/model/vocab", json::object(), {"vocab"});
  refuse("/model/vocab", json::array(), {"vocab"});
  for (const json& id : {json(-1), json(1 << 30), json(1.5), json("1"), json(), json(3), json(18446744073709551615u)}) {
    refuse("/model/vocab/the", id, {"id"});
  }
  refuse("/model/merges", "x", {"merges"});
  refuse("/model/merges/0", {"a"}, {"merge 0"});
  refuse("/model/merges/0", 7, {"merge 0"});
  refuse("/model/merges/0", "q zzz", {"merge 0"});
  refuse("/model/unk_token", "nowhere", {"nowhere"});
  refuse("/model/unk_token", 3, {"unk_token"});
  refuse("/added_tokens", 3, {"added_tokens"});
  refuse("/added_tokens/0", 3, {"added_tokens"});
  refuse("/added_tokens/0/id", 400, {"400"});
  refuse("/added_tokens/0/special", "yes", {"special"});
  refuse("/pre_tokenizer", {{"type", "Sequence"}}, {"Sequence"});
  refuse("/normalizer", 3, {"normalizer"});
  const std::string text = read_file(kVocabularies + "byte_level.json");
  for (size_t bytes = 0; bytes < text.size(); bytes += 97) {
    expect_error([&] { tokenizer::read_tokenizer_json(text.substr(0, bytes), "t.json"); }, ErrorCode::format,
                 {"t.json"});
  }
}

TEST(SentencePieceModel, CutsAndFlipsGiveAnErrorOrATokenizer) {
  const std::string bytes = read_file(kVocabularies + "gemma_like.model");
  const auto use = [](const std::string& text) {
    try {
      const auto tokenizer = make_tokenizer(tokenizer::read_sentencepiece_model(text, "t.model"));
      (void)tokenizer->encode("The capital \xff");
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::format || e.code() == ErrorCode::unsupported) << e.what();
    }
  };
  for (size_t n = 0; n < bytes.size(); n += 13) {
    const auto error = error_of([&] { tokenizer::read_sentencepiece_model(bytes.substr(0, n), "t.model"); });
    EXPECT_TRUE(error.has_value()) << n;
  }
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string flipped = bytes;
    flipped[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    use(flipped);
  }
  // A piece that claims 127 bytes and has 3.
  expect_error(
      [&] {
        tokenizer::read_sentencepiece_model(
            "\x0a\x7f"
            "abc",
            "t.model");
      },
      ErrorCode::format, {"t.model", "ends beyond its message"});
  expect_error([&] { tokenizer::read_sentencepiece_model("hello", "t.model"); }, ErrorCode::format, {"t.model"});
}

class TokenizerFolder : public testing::Test {
 protected:
  void copy(const std::string& from, const std::string& to) {
    write_file(folder_ / to, read_file(kVocabularies + from));
  }
  void put(const std::string& name, const json& value) { write_file(folder_ / name, value.dump()); }
  std::unique_ptr<tokenizer::Tokenizer> open(const std::string& pretokenizer = "") {
    return tokenizer::from_folder(folder_.path(), pretokenizer);
  }
  TemporaryFolder folder_;
};

TEST_F(TokenizerFolder, JsonWithItsConfig) {
  copy("byte_level.json", "tokenizer.json");
  EXPECT_FALSE(open()->add_bos);
  EXPECT_EQ(open()->bos, -1);
  put("tokenizer_config.json",
      {{"add_bos_token", true}, {"bos_token", "<|im_start|>"}, {"eos_token", {{"content", "<|im_end|>"}}}});
  put("generation_config.json", {{"eos_token_id", {0, 2}}});
  EXPECT_TRUE(open()->add_bos);
  EXPECT_EQ(open()->bos, 1);
  EXPECT_EQ(open()->eos, 2);
  EXPECT_EQ(open()->stops, (std::vector<int32_t>{0, 2}));
  put("generation_config.json", {{"eos_token_id", 0}});
  EXPECT_EQ(open()->stops, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(open("qwen2")->kind, "gpt2 bpe (qwen2)");
  expect_error([&] { open("nonsense"); }, ErrorCode::usage, {"nonsense"});
  put("generation_config.json", {{"eos_token_id", 100000}});
  expect_error([&] { open(); }, ErrorCode::format, {"generation_config.json", "100000"});
  put("generation_config.json", json::array());
  expect_error([&] { open(); }, ErrorCode::format, {"generation_config.json"});
  std::filesystem::remove(folder_ / "generation_config.json");
  put("tokenizer_config.json", {{"bos_token", "nowhere"}});
  expect_error([&] { open(); }, ErrorCode::format, {"nowhere"});
  put("tokenizer_config.json", {{"add_bos_token", "yes"}});
  expect_error([&] { open(); }, ErrorCode::format, {"add_bos_token"});
}

TEST_F(TokenizerFolder, ModelAloneAndNothing) {
  expect_error([&] { open(); }, ErrorCode::io, {"tokenizer.json", "tokenizer.model"});
  copy("llama_like.model", "tokenizer.model");
  EXPECT_TRUE(open()->add_bos);
  EXPECT_EQ(open()->bos, 1);
  EXPECT_EQ(open()->stops, std::vector<int32_t>{2});
  EXPECT_EQ(open("smollm")->warnings.size(), 1u);
  put("tokenizer_config.json", {{"add_bos_token", false}});
  EXPECT_FALSE(open()->add_bos);
}

}  // namespace
}  // namespace unchain::test
