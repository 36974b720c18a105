// What every tokenizer file comes down to: the pieces and the rules by which a text is cut into them. Readers fill it,
// make_tokenizer() checks it and builds the tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace unchain::tokenizer {

// The mark that stands for a blank in SentencePiece vocabularies, U+2581.
inline constexpr std::string_view kBlank = "\xe2\x96\x81";

// The numbers are those of GGUF and of SentencePiece.
enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Vocabulary {
  enum class Kind {
    byte_level,     // a text is bytes, each written as a printable character; cut into words first (GPT-2)
    sentencepiece,  // a text is characters, blanks written as kBlank; unknown characters become byte pieces
  };

  std::string name;  // of the file, for messages
  Kind kind = Kind::byte_level;
  std::vector<std::string> pieces;  // distinct, but for unused ones
  std::vector<PieceType> types;     // one a piece; user_defined pieces are always matched, and stored as plain text
  // Neighbours merge in the order of `merges`, or, where there are none, the highest score first (sentencepiece only).
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<float> scores;
  // byte_level: the patterns of the words, applied one after the other to what the one before has cut.
  std::string pretokenizer;
  std::vector<std::string> patterns;
  bool whole_words = false;   // a word that is a piece is taken whole, whatever the merges say
  bool blank_prefix = false;  // a blank is put before the text and after control tokens, and decode() takes it away
  int32_t bos = -1, eos = -1, unknown = -1;  // −1: none
  bool add_bos = false;
  std::vector<int32_t> stops;
  std::string kind_name;
  std::vector<std::string> warnings;
};

// Checks all of the vocabulary. Errors: format (duplicate pieces, merges of unknown pieces, sizes that differ, ids out
// of range, scores that are not finite); unsupported (a pattern that PCRE2 cannot compile).
std::unique_ptr<Tokenizer> make_tokenizer(Vocabulary vocabulary);

// "left right" as a pair. Error: format, naming `where` and the number of the merge.
std::pair<std::string, std::string> split_merge(std::string_view merge, const std::string& where, size_t number);

// The byte that a piece such as "<0x0A>" stands for, −1 for other pieces.
int byte_of_piece(std::string_view piece) noexcept;

}  // namespace unchain::tokenizer
