// The vocabulary of tests/golden/vocabulary and small token files.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temporary_folder.h"
#include "text/token_file.h"
#include "tokenizer/tokenizer.h"

namespace unchain::test {

inline const std::string kVocabulary = UNCHAIN_TEST_DATA "/vocabulary";

inline std::shared_ptr<const tokenizer::Tokenizer> own_tokenizer() {
  static const std::shared_ptr<const tokenizer::Tokenizer> result = tokenizer::from_folder(kVocabulary);
  return result;
}

// The other kinds: byte-level without BOS; SentencePiece with a blank put in front, with BOS.
inline std::shared_ptr<const tokenizer::Tokenizer> other_tokenizer(const std::string& file) {
  const TemporaryFolder folder;
  const bool json = file.ends_with(".json");
  write_file(folder / (json ? "tokenizer.json" : "tokenizer.model"), read_file(UNCHAIN_TEST_DATA "/tokenizer/" + file));
  return tokenizer::from_folder(folder.path());
}

}  // namespace unchain::test
