// A vocabulary of our own: byte-pair encoding by the SentencePiece library, with the settings of every model trained
// here. Byte fallback; digits alone; the text as it is (no normaliser, no blank in front, all blanks kept, runs of
// blanks may be pieces); the newline one piece, which joins no other. Ids: unknown 0, BOS 1, EOS 2, newline 3, then the
// 256 bytes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace unchain::text {

inline constexpr int32_t kFixedPieces = 260;  // unknown, BOS, EOS, newline and the bytes

// The bytes of a tokenizer.model with `size` pieces, learned from these documents (UTF-8); the same documents in the
// same order give the same bytes. Characters that make up less than 0.05 % of the text together get no piece of their
// own: they are written as bytes. Errors: usage (a size without room for the fixed pieces and the characters, or larger
// than the text can fill); format (no text).
std::string train_vocabulary(const std::vector<std::string>& documents, int32_t size);

// Throws what write_vocabulary(folder, …) would for a folder that is in the way: before long work. Error: io.
void check_vocabulary_folder(const std::filesystem::path& folder);

// The new folder with tokenizer.model and tokenizer_config.json, whole or not at all. Errors: io (exists and is not
// empty, cannot be written).
void write_vocabulary(const std::filesystem::path& folder, const std::string& model);

}  // namespace unchain::text
