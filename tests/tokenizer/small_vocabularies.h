// The small vocabularies of tests/golden/tokenizer, and GGUF files made of vocabularies.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "support/temporary_folder.h"
#include "tokenizer/readers.h"

namespace unchain::test {

inline const std::string kVocabularies = UNCHAIN_TEST_DATA "/tokenizer/";

inline tokenizer::Vocabulary small_vocabulary(const std::string& file, const std::string& pretokenizer = "") {
  const std::string bytes = read_file(kVocabularies + file);
  return file.ends_with(".json") ? tokenizer::read_tokenizer_json(bytes, file, pretokenizer)
                                 : tokenizer::read_sentencepiece_model(bytes, file);
}

inline std::unique_ptr<tokenizer::Tokenizer> small_tokenizer(const std::string& file,
                                                             const std::string& pretokenizer = "") {
  return make_tokenizer(small_vocabulary(file, pretokenizer));
}

template <class T, class Value>
formats::GgufValue gguf_array(const std::vector<Value>& values) {
  auto array = std::make_shared<formats::GgufArray>();
  array->elements = std::vector<T>(values.begin(), values.end());
  return std::shared_ptr<const formats::GgufArray>(array);
}

// The metadata of a vocabulary, to be changed by tests.
inline std::vector<formats::GgufEntry> gguf_metadata(const tokenizer::Vocabulary& v) {
  const bool bytes = v.kind == tokenizer::Vocabulary::Kind::byte_level;
  std::vector<int32_t> types;
  for (const auto type : v.types) types.push_back(static_cast<int32_t>(type));
  std::vector<std::string> merges;
  for (const auto& [left, right] : v.merges) merges.push_back(left + " " + right);
  std::vector<formats::GgufEntry> entries = {
      {"tokenizer.ggml.model", std::string(bytes ? "gpt2" : "llama")},
      {"tokenizer.ggml.tokens", gguf_array<std::string>(v.pieces)},
      {"tokenizer.ggml.token_type", gguf_array<int32_t>(types)},
      {"tokenizer.ggml.add_space_prefix", v.blank_prefix},
  };
  if (bytes) {
    entries.push_back({"tokenizer.ggml.pre", v.pretokenizer});
    entries.push_back({"tokenizer.ggml.merges", gguf_array<std::string>(merges)});
  } else {
    entries.push_back({"tokenizer.ggml.scores", gguf_array<float>(v.scores)});
  }
  if (v.bos >= 0) entries.push_back({"tokenizer.ggml.bos_token_id", static_cast<uint32_t>(v.bos)});
  if (v.eos >= 0) entries.push_back({"tokenizer.ggml.eos_token_id", static_cast<uint32_t>(v.eos)});
  if (v.unknown >= 0) entries.push_back({"tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(v.unknown)});
  return entries;
}

// Sets a key, or adds it; an empty value removes it.
inline void set_entry(std::vector<formats::GgufEntry>& entries, const std::string& key,
                      const std::optional<formats::GgufValue>& value) {
  std::erase_if(entries, [&](const formats::GgufEntry& entry) { return entry.key == key; });
  if (value) entries.push_back({key, *value});
}

inline std::unique_ptr<tokenizer::Tokenizer> gguf_tokenizer(const std::vector<formats::GgufEntry>& entries,
                                                            const std::string& pretokenizer = "") {
  TemporaryFolder folder;
  formats::write_gguf(folder / "small.gguf", entries, {});
  return tokenizer::from_gguf(formats::GgufFile::open(folder / "small.gguf"), pretokenizer);
}

}  // namespace unchain::test
