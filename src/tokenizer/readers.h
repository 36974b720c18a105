// Readers of tokenizer files, and what they share. All of them fill a Vocabulary, which make_tokenizer() checks.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tokenizer/vocabulary.h"

namespace unchain::tokenizer {

// The metadata of a GGUF file, and the files of a Hugging Face folder; arguments and errors as from_gguf(),
// from_folder().
Vocabulary read_gguf(const formats::GgufFile& file, const std::string& pretokenizer = "");
Vocabulary read_folder(const std::filesystem::path& folder, const std::string& pretokenizer = "");

// tokenizer.json of Hugging Face. `where` names it in messages; `pretokenizer` as in from_folder(). Errors: format;
// unsupported (what is not read here, by name); usage.
Vocabulary read_tokenizer_json(std::string_view text, const std::string& where, const std::string& pretokenizer = "");

// tokenizer.model of SentencePiece, a protobuf message. Errors: format; unsupported (unigram models, normalizers).
Vocabulary read_sentencepiece_model(std::string_view bytes, const std::string& where);

// Sets the patterns: those of `wanted` where given (error: usage if unknown), else those of the file's `name`; for an
// unknown name gpt2 with a warning.
void choose_pretokenizer(Vocabulary& vocabulary, const std::string& name, const std::string& wanted);

// For vocabularies that are not cut into words: a warning if `wanted` is given.
void ignore_pretokenizer(Vocabulary& vocabulary, const std::string& wanted);

// The warning about files that ask for an end token after each text.
std::string eos_not_added(const std::string& where);

}  // namespace unchain::tokenizer
