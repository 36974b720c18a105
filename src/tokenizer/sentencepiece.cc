// BPE over characters as SentencePiece does it: blanks are written as U+2581, the neighbours whose joint piece has the
// highest score (or the first merge of a list) become one, and what is no piece is written byte by byte.
//
// Not through libsentencepiece, because decode(encode(x)) must be x for any bytes: the library makes U+FFFD of bytes
// that are not UTF-8 and a blank of a U+2581 in the text. Here both become byte pieces. The tests hold all else against
// the library.
#include <array>
#include <optional>

#include "base/check.h"
#include "formats/text.h"
#include "tokenizer/piece_tokenizer.h"

namespace unchain::tokenizer {
namespace {

std::string with_blanks(std::string_view piece) {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const bool blank = piece.substr(at).starts_with(kBlank);
    out += blank ? ' ' : piece[at];
    at += blank ? kBlank.size() : 1;
  }
  return out;
}

std::vector<std::string> surfaces_of(const Vocabulary& vocabulary) {
  std::vector<std::string> surfaces;
  surfaces.reserve(vocabulary.pieces.size());
  for (size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    const std::string& piece = vocabulary.pieces[i];
    const PieceType type = i < vocabulary.types.size() ? vocabulary.types[i] : PieceType::normal;
    if (type == PieceType::byte) {
      const int byte = byte_of_piece(piece);
      if (byte < 0) {
        fail(ErrorCode::format, "{}: piece {} is '{}', but its type says that it is a byte, as <0x0A>", vocabulary.name,
             i, formats::printable(piece));
      }
      surfaces.emplace_back(1, static_cast<char>(byte));
    } else {
      surfaces.push_back(type == PieceType::control || type == PieceType::unknown ? piece : with_blanks(piece));
    }
  }
  return surfaces;
}

class SentencePiece final : public PieceTokenizer {
 public:
  explicit SentencePiece(Vocabulary vocabulary)
      : PieceTokenizer(std::move(vocabulary), surfaces_of(vocabulary)), ranks_(resolve_merges()) {
    by_score_ = vocabulary_.merges.empty();
    vocabulary_.merges = {};
    if (by_score_ && vocabulary_.scores.empty()) {
      fail(ErrorCode::format, "{}: the vocabulary has neither scores nor merges", vocabulary_.name);
    }
    bytes_.fill(-1);
    for (size_t i = 0; i < vocabulary_.pieces.size(); ++i) {
      if (vocabulary_.types[i] == PieceType::byte) {
        bytes_[static_cast<size_t>(byte_of_piece(vocabulary_.pieces[i]))] = static_cast<int32_t>(i);
      } else if (vocabulary_.types[i] == PieceType::normal || vocabulary_.types[i] == PieceType::user_defined) {
        note_joins(vocabulary_.pieces[i]);
      }
    }
    int missing = 0;
    for (const int32_t id : bytes_) missing += id < 0;
    if (missing > 0) {
      notes.push_back(fmt::format("{}: {} byte values have no piece, so characters that the vocabulary lacks {}",
                                  vocabulary_.name, missing, fate_of_missing()));
    }
  }

 protected:
  void encode_plain(std::string_view text, Encoded& out) const override {
    Merger merger;
    std::string chunk;
    const auto flush = [&] {
      if (!chunk.empty()) encode_chunk(chunk, merger, out);
      chunk.clear();
    };
    bool after_blank = false;
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = formats::character_bytes(text.substr(at));
      const std::string_view character = text.substr(at, std::max<size_t>(bytes, 1));
      at += character.size();
      if (bytes == 0 || character == kBlank) {
        flush();
        add_bytes(character, out);
      } else if (character == " ") {
        if (!chunk.empty() && !after_blank && !joins_blank_[static_cast<uint8_t>(chunk.back())]) flush();
        chunk += kBlank;
      } else {
        chunk += character;
      }
      after_blank = character == " ";
    }
    flush();
  }

 private:
  // Almost no vocabulary has a piece with a blank after another character, so that the text can be cut there without
  // changing the result, and short chunks stay in the cache. Remembers the last bytes of the exceptions.
  void note_joins(std::string_view piece) {
    for (size_t at = piece.find(kBlank, 1); at != std::string_view::npos; at = piece.find(kBlank, at + 1)) {
      if (!piece.substr(0, at).ends_with(kBlank)) joins_blank_[static_cast<uint8_t>(piece[at - 1])] = true;
    }
  }

  void add_bytes(std::string_view text, Encoded& out) const {
    for (const char byte : text) {
      if (bytes_[static_cast<uint8_t>(byte)] < 0) return add_unknown(text, out);
    }
    for (const char byte : text) out.ids.push_back(bytes_[static_cast<uint8_t>(byte)]);
  }

  void encode_chunk(std::string_view chunk, Merger& merger, Encoded& out) const {
    merger.clear();
    for (size_t at = 0; at < chunk.size();) {
      const size_t bytes = formats::character_bytes(chunk.substr(at));
      merger.add(find(chunk.substr(at, bytes)), at, bytes);
      at += bytes;
    }
    merger.run([&](const Symbol& left, const Symbol& right) -> Merged {
      if (by_score_) {
        const int32_t id = find(chunk.substr(left.begin, left.length + right.length));
        return {id < 0 ? 0 : -static_cast<double>(vocabulary_.scores[static_cast<size_t>(id)]), id};
      }
      return ranks_.find(left.id, right.id);
    });
    for (int32_t i = 0; i >= 0; i = merger.symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = merger.symbols[static_cast<size_t>(i)];
      if (symbol.id >= 0) {
        out.ids.push_back(symbol.id);
      } else {
        const std::string_view character = chunk.substr(symbol.begin, symbol.length);
        add_bytes(character == kBlank ? " " : character, out);
      }
    }
  }

  PairTable ranks_;
  bool by_score_ = false;
  std::array<int32_t, 256> bytes_;  // id of each byte piece, −1: none
  std::array<bool, 256> joins_blank_{};
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece(Vocabulary vocabulary) {
  return std::make_unique<SentencePiece>(std::move(vocabulary));
}

}  // namespace unchain::tokenizer
