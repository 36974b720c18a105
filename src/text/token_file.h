// Texts as one file of token ids, mapped into memory: made once, used by every run with the same text and vocabulary.
//
// The file, little-endian: "UNCHNTOK", version u32, bytes a token u32 (2, or 4 above 65536 pieces), then as u64 the
// numbers of tokens, documents and text bytes, the hashes of text, vocabulary and content; the documents' starts (i64
// each), the tokens. It is a cache: made anew where it does not fit, never exchanged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

namespace unchain::text {

// Immutable, cheap to copy, safe to share between threads.
class TokenFile {
 public:
  // Errors: io; format (not such a file, cut, damaged, of another version, or made with another vocabulary).
  static TokenFile open(const std::filesystem::path& path, const tokenizer::Tokenizer& tokenizer);

  int64_t tokens() const { return tokens_; }                            // BOS of each document included
  int64_t bytes() const { return bytes_; }                              // of the text
  std::span<const int64_t> document_starts() const { return starts_; }  // ascending, the first 0
  // The start of the document that holds the token at `position`, in 0 … tokens() − 1.
  int64_t document_start(int64_t position) const;
  int32_t operator[](int64_t position) const {
    return width_ == 2 ? narrow_[position] : static_cast<int32_t>(wide_[position]);
  }
  // The tokens from `first` on; they must be there.
  void copy(int64_t first, std::span<int32_t> out) const;
  uint64_t text_hash() const { return text_hash_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  int64_t tokens_ = 0, bytes_ = 0, width_ = 2;
  uint64_t text_hash_ = 0;
  std::span<const int64_t> starts_;
  const uint16_t* narrow_ = nullptr;
  const uint32_t* wide_ = nullptr;
};

// Of the documents and their borders.
uint64_t hash_documents(const std::vector<std::string>& documents) noexcept;
// Of all pieces and of how a sample text is cut into them.
uint64_t hash_vocabulary(const tokenizer::Tokenizer& tokenizer);

// Writes the documents, each with BOS in front where the tokenizer has one. Uses all threads. Errors: io; format (no
// documents).
void write_token_file(const std::filesystem::path& path, const std::vector<std::string>& documents,
                      const tokenizer::Tokenizer& tokenizer);

// The tokens of these files (read_documents), from the folder `cache` where they were written before, else written
// there now; the folder is made if need be. A damaged file in the cache is replaced. Errors: those of read_documents;
// io.
TokenFile cached_tokens(const std::vector<std::filesystem::path>& files, const tokenizer::Tokenizer& tokenizer,
                        const std::filesystem::path& cache);

}  // namespace unchain::text
