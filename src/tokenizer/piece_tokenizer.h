// What both kinds of tokenizer share: names of control tokens, pieces that are always matched, ids back to bytes.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/merge.h"
#include "tokenizer/token_names.h"
#include "tokenizer/vocabulary.h"

namespace unchain::tokenizer {

class PieceTokenizer : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, Control control, Missing* missing) const final;
  std::string decode(const std::vector<int32_t>& ids) const final;
  int32_t size() const final { return static_cast<int32_t>(vocabulary_.pieces.size()); }
  std::string piece(int32_t id) const final;
  bool is_control(int32_t id) const final;

 protected:
  // Checks all that does not depend on the kind. `surfaces`: the bytes that each piece stands for. Errors: format.
  PieceTokenizer(Vocabulary&& vocabulary, std::vector<std::string> surfaces);
  // The ids of a text as they come, and what of it has no piece.
  struct Encoded {
    std::vector<int32_t> ids;
    Missing* missing;  // may be null
  };
  // Appends the ids of a text without names of tokens; `text` is not empty.
  virtual void encode_plain(std::string_view text, Encoded& out) const = 0;

  // Piece → id, of those that can come from plain text: normal and user-defined ones. −1: none.
  int32_t find(std::string_view piece) const;
  // Of the vocabulary's merges. Errors: format (a merge of unknown pieces, a merge twice).
  PairTable resolve_merges() const;
  // Appends the unknown token, where there is one, for bytes that have no piece.
  void add_unknown(std::string_view bytes, Encoded& out) const {
    if (unknown >= 0) out.ids.push_back(unknown);
    if (out.missing != nullptr) ++(*out.missing)[std::string(bytes)];
  }
  // "become the unknown token" or "are left out", for notes.
  const char* fate_of_missing() const { return unknown >= 0 ? "become the unknown token" : "are left out"; }

  Vocabulary vocabulary_;

 private:
  void check_sizes() const;
  void encode_stretch(std::string_view text, Encoded& out) const;
  void check_id(int32_t id) const;
  bool is_name(int32_t id) const;  // control or unknown: stands for its name

  std::vector<std::string> surfaces_;
  std::unordered_map<std::string_view, int32_t> index_;
  TokenNames controls_, user_defined_;
};

std::unique_ptr<Tokenizer> make_byte_level(Vocabulary vocabulary);
std::unique_ptr<Tokenizer> make_sentencepiece(Vocabulary vocabulary);

}  // namespace unchain::tokenizer
