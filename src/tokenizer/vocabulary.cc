#include "tokenizer/vocabulary.h"

#include "base/check.h"
#include "formats/text.h"
#include "tokenizer/piece_tokenizer.h"

namespace unchain::tokenizer {

std::unique_ptr<Tokenizer> make_tokenizer(Vocabulary vocabulary) {
  return vocabulary.kind == Vocabulary::Kind::byte_level ? make_byte_level(std::move(vocabulary))
                                                         : make_sentencepiece(std::move(vocabulary));
}

std::pair<std::string, std::string> split_merge(std::string_view merge, const std::string& where, size_t number) {
  const size_t blank = merge.find(' ', 1);
  if (blank == std::string_view::npos || blank + 1 == merge.size() || merge.find(' ', blank + 1) != merge.npos) {
    fail(ErrorCode::format, "{}: merge {} is '{}', expected two pieces with a blank between them", where, number,
         formats::printable(merge));
  }
  return {std::string(merge.substr(0, blank)), std::string(merge.substr(blank + 1))};
}

int byte_of_piece(std::string_view piece) noexcept {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  int byte = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    byte = byte * 16 + digit;
  }
  return byte;
}

}  // namespace unchain::tokenizer
