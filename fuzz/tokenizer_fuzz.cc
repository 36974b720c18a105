// The first byte chooses: the rest is a text for one of four small vocabularies, which must come back from its ids; or
// it is a tokenizer.json or a tokenizer.model, which must be refused with an Error or give a tokenizer that works.
#include <cstdlib>

#include "tokenizer/pretokenizer.h"
#include "tokenizer/readers.h"
#include "unchain/error.h"

namespace {

using namespace unchain::tokenizer;
using unchain::Error;

// Pieces for each byte and a few merges on top, so that words, digits, blanks and accents take different paths.
Vocabulary byte_level(std::string_view pretokenizer) {
  Vocabulary v;
  v.name = "bytes";
  const KnownPretokenizer& known = *find_pretokenizer(pretokenizer);
  v.patterns.assign(known.patterns.begin(), known.patterns.end());
  v.whole_words = known.whole_words;
  v.pieces = {"<s>", "<|end|>"};
  for (int byte = 0, other = 0x100; byte < 256; ++byte) {
    const bool seen = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    const int c = seen ? byte : other++;
    v.pieces.push_back(c < 0x80 ? std::string(1, static_cast<char>(c))
                                : std::string{static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))});
  }
  v.merges = {{"a", "a"}, {"aa", "aa"}, {"Ġ", "a"}, {"Ġ", "Ġ"}, {"Ã", "©"}, {"1", "2"}, {"'", "s"}, {"a", "b"}};
  for (const auto& [left, right] : v.merges) v.pieces.push_back(left + right);
  v.pieces.push_back("<tool>");
  v.types.assign(v.pieces.size(), PieceType::normal);
  v.types[0] = v.types[1] = PieceType::control;
  v.types.back() = PieceType::user_defined;
  return v;
}

Vocabulary sentencepiece(bool blank_prefix) {
  Vocabulary v;
  v.name = "pieces";
  v.kind = Vocabulary::Kind::sentencepiece;
  v.blank_prefix = blank_prefix;
  v.pieces = {"<unk>", "<s>"};
  v.types = {PieceType::unknown, PieceType::control};
  const auto add = [&](const std::string& piece, PieceType type) {
    v.pieces.push_back(piece);
    v.types.push_back(type);
  };
  constexpr char kDigits[] = "0123456789ABCDEF";
  for (int i = 0; i < 256; ++i) add({'<', '0', 'x', kDigits[i / 16], kDigits[i % 16], '>'}, PieceType::byte);
  for (const char* piece : {"a", "b", "▁", "é", "aa", "ab", "▁a", "▁▁", "b▁a", "aaaa"}) add(piece, PieceType::normal);
  for (const char* piece : {"\n\n", "<tool>", "  "}) add(piece, PieceType::user_defined);
  for (size_t i = 0; i < v.pieces.size(); ++i) v.scores.push_back(-static_cast<float>(i));
  return v;
}

void round_trip(const Tokenizer& tokenizer, std::string_view text) {
  for (const Control control : {Control::literal, Control::parse}) {
    if (tokenizer.decode(tokenizer.encode(text, control)) != text) std::abort();
  }
}

// A strange but sound vocabulary may lack bytes, or be slow or unable on a text; its ids must be its own.
void use(const Vocabulary& vocabulary) {
  const auto tokenizer = make_tokenizer(vocabulary);
  for (const Control control : {Control::literal, Control::parse}) {
    for (const int32_t id : tokenizer->encode_with_bos("The 12 caf\xc3\xa9s  \n\n\xff <s>aa", control)) {
      if (id < 0 || id >= tokenizer->size()) std::abort();
      (void)tokenizer->decode({id});
      (void)tokenizer->piece(id);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const auto smollm = make_tokenizer(byte_level("smollm")), llama3 = make_tokenizer(byte_level("llama-bpe")),
                    plain = make_tokenizer(sentencepiece(false)), prefixed = make_tokenizer(sentencepiece(true));
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 6) {
      case 0:
        round_trip(*smollm, rest);
        break;
      case 1:
        round_trip(*llama3, rest);
        break;
      case 2:
        round_trip(*plain, rest);
        break;
      case 3:
        round_trip(*prefixed, rest);
        break;
      case 4:
        use(read_tokenizer_json(rest, "fuzz.json"));
        break;
      default:
        use(read_sentencepiece_model(rest, "fuzz.model"));
    }
  } catch (const Error&) {
    if (data[0] % 6 < 4) std::abort();  // any text can be encoded
  }
  return 0;
}
