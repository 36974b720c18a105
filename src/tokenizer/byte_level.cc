// Byte-level BPE as of GPT-2: every byte is a printable character in the vocabulary, a text is cut into words by
// patterns, and neighbours within a word merge in the order of the list of merges.
#include <array>

#include "base/check.h"
#include "formats/text.h"
#include "tokenizer/piece_tokenizer.h"
#include "tokenizer/pretokenizer.h"

namespace unchain::tokenizer {
namespace {

bool printable_as_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// The character that stands for each byte: itself where it can be seen in Latin-1, else U+0100 and up, in order.
std::array<int, 256> characters_of_bytes() {
  std::array<int, 256> characters;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    characters[static_cast<size_t>(byte)] = printable_as_itself(byte) ? byte : next++;
  }
  return characters;
}

std::string utf8_of(int character) {  // below U+0800
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 0x3f))};
}

// The bytes that the characters of a piece stand for; characters that stand for no byte are kept.
class Alphabet {
 public:
  Alphabet() {
    bytes_.fill(-1);
    const auto characters = characters_of_bytes();
    for (size_t byte = 0; byte < 256; ++byte) bytes_[static_cast<size_t>(characters[byte])] = static_cast<int>(byte);
  }
  std::string bytes_of(std::string_view piece) const {
    std::string out;
    for (size_t i = 0; i < piece.size(); ++i) {
      const auto first = static_cast<uint8_t>(piece[i]);
      size_t character = first;
      bool two = false;
      if (first >= 0xc2 && first < 0xe0 && i + 1 < piece.size()) {
        character = (first & 0x1fu) << 6 | (static_cast<uint8_t>(piece[i + 1]) & 0x3fu);
        two = true;
      }
      const int byte = (first < 0x80 || two) && character < bytes_.size() ? bytes_[character] : -1;
      if (byte >= 0) {
        out += static_cast<char>(byte);
        i += two;
      } else {
        out += piece[i];
      }
    }
    return out;
  }

 private:
  std::array<int, 0x200> bytes_;  // by character
};

std::vector<std::string> surfaces_of(const Vocabulary& vocabulary) {
  const Alphabet alphabet;
  std::vector<std::string> surfaces;
  surfaces.reserve(vocabulary.pieces.size());
  for (size_t i = 0; i < vocabulary.pieces.size(); ++i) {
    const bool mapped = i < vocabulary.types.size() && vocabulary.types[i] == PieceType::normal;
    surfaces.push_back(mapped ? alphabet.bytes_of(vocabulary.pieces[i]) : vocabulary.pieces[i]);
  }
  return surfaces;
}

class ByteLevel final : public PieceTokenizer {
 public:
  explicit ByteLevel(Vocabulary vocabulary)
      : PieceTokenizer(std::move(vocabulary), surfaces_of(vocabulary)),
        words_(vocabulary_.patterns, vocabulary_.name),
        ranks_(resolve_merges()) {
    vocabulary_.merges = {};
    const auto characters = characters_of_bytes();
    std::string missing;
    int count = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      characters_[byte] = utf8_of(characters[byte]);
      bytes_[byte] = find(characters_[byte]);
      if (bytes_[byte] >= 0) continue;
      missing += fmt::format("{}{:02x}", count++ == 0 ? "" : " ", byte);
    }
    if (count > 0) {
      notes.push_back(fmt::format("{}: {} byte values have no piece; where they occur in a text they {} ({})",
                                  vocabulary_.name, count, fate_of_missing(), missing));
    }
  }

 protected:
  void encode_plain(std::string_view text, Encoded& out) const override {
    Merger merger;
    words_.split(text, [&](std::string_view word) { encode_word(word, merger, out); });
  }

 private:
  void encode_word(std::string_view word, Merger& merger, Encoded& out) const {
    if (vocabulary_.whole_words) {
      std::string piece;
      for (const char byte : word) piece += characters_[static_cast<uint8_t>(byte)];
      const int32_t id = find(piece);
      if (id >= 0) return out.ids.push_back(id);
    }
    merger.clear();
    for (size_t i = 0; i < word.size(); ++i) merger.add(bytes_[static_cast<uint8_t>(word[i])], i, 1);
    merger.run([&](const Symbol& left, const Symbol& right) -> Merged { return ranks_.find(left.id, right.id); });
    for (int32_t i = 0; i >= 0; i = merger.symbols[static_cast<size_t>(i)].next) {
      const Symbol& symbol = merger.symbols[static_cast<size_t>(i)];
      if (symbol.id >= 0) {
        out.ids.push_back(symbol.id);
      } else {
        add_unknown(word.substr(symbol.begin, symbol.length), out);
      }
    }
  }

  Pretokenizer words_;
  PairTable ranks_;
  std::array<std::string, 256> characters_;
  std::array<int32_t, 256> bytes_{};  // id of each byte's piece, −1: none
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_level(Vocabulary vocabulary) {
  return std::make_unique<ByteLevel>(std::move(vocabulary));
}

}  // namespace unchain::tokenizer
