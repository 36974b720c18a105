// tokenizer.model of SentencePiece: a protobuf message, of which a few fields are needed.
//   ModelProto: 1 pieces {1 text, 2 score (float), 3 type}, 2 trainer_spec, 3 normalizer_spec
//   trainer_spec: 3 model_type (1 unigram, 2 BPE), 24 treat_whitespace_as_suffix, 40/41/42 ids of unknown, BOS, EOS
//   normalizer_spec: 2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces
#include <bit>
#include <cstring>

#include "base/check.h"
#include "tokenizer/readers.h"

namespace unchain::tokenizer {
namespace {

// One field of a message: a number or bytes, by the wire type.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

class Message {
 public:
  Message(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    field = {static_cast<uint32_t>(key >> 3), 0, {}};
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff) damaged();
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = little_endian(take(8));
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = little_endian(take(4));
        break;
      default:
        damaged();
    }
    return true;
  }

 private:
  [[noreturn]] void damaged() const {
    fail(ErrorCode::format,
         "{}: not a SentencePiece model, or damaged: a field ends beyond its message or is of no "
         "known kind",
         where_);
  }
  std::string_view take(uint64_t size) {
    if (size > rest_.size()) damaged();
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << (shift > 63 ? 63 : shift);
      if (byte < 0x80) return value;
    }
    damaged();
  }
  static uint64_t little_endian(std::string_view bytes) {
    uint64_t value = 0;
    for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
  }
  std::string_view rest_;
  const std::string& where_;
};

void read_piece(std::string_view bytes, Vocabulary& v) {
  Message message(bytes, v.name);
  std::string piece;
  float score = 0;
  uint64_t type = 1;
  for (Field field; message.next(field);) {
    if (field.number == 1) piece = field.bytes;
    if (field.number == 2) score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3) type = field.value;
  }
  if (type < 1 || type > 6) {
    fail(ErrorCode::format, "{}: piece {} has type {}, known are 1 to 6", v.name, v.pieces.size(), type);
  }
  v.pieces.push_back(std::move(piece));
  v.scores.push_back(score);
  v.types.push_back(static_cast<PieceType>(type));
}

void read_trainer(std::string_view bytes, Vocabulary& v) {
  Message message(bytes, v.name);
  uint64_t model = 1;
  for (Field field; message.next(field);) {
    const auto id = static_cast<int32_t>(static_cast<uint32_t>(field.value));
    if (field.number == 3) model = field.value;
    if (field.number == 24 && field.value != 0) {
      fail(ErrorCode::unsupported, "{}: treat_whitespace_as_suffix is not supported", v.name);
    }
    if (field.number == 40) v.unknown = id;
    if (field.number == 41) v.bos = id;
    if (field.number == 42) v.eos = id;
  }
  if (model != 2) {
    fail(ErrorCode::unsupported, "{}: a SentencePiece model of type {}; only BPE is supported", v.name,
         model == 1 ? "unigram" : std::to_string(model));
  }
}

void read_normalizer(std::string_view bytes, Vocabulary& v) {
  Message message(bytes, v.name);
  bool trims = true, escapes = true, maps = false;
  for (Field field; message.next(field);) {
    if (field.number == 2) maps = !field.bytes.empty();
    if (field.number == 3) v.blank_prefix = field.value != 0;
    if (field.number == 4) trims = field.value != 0;
    if (field.number == 5) escapes = field.value != 0;
  }
  const char* refused = maps       ? "a character map (precompiled_charsmap)"
                        : trims    ? "remove_extra_whitespaces"
                        : !escapes ? "escape_whitespaces = false"
                                   : nullptr;
  if (refused != nullptr) fail(ErrorCode::unsupported, "{}: normalizer: {} is not supported", v.name, refused);
}

}  // namespace

Vocabulary read_sentencepiece_model(std::string_view bytes, const std::string& where) {
  Vocabulary v;
  v.name = where;
  v.kind = Vocabulary::Kind::sentencepiece;
  v.kind_name = "sentencepiece";
  v.unknown = 0;
  v.bos = 1;
  v.eos = 2;
  v.add_bos = true;
  v.blank_prefix = true;
  std::string_view trainer, normalizer;
  Message message(bytes, where);
  for (Field field; message.next(field);) {
    if (field.number == 1) read_piece(field.bytes, v);
    if (field.number == 2) trainer = field.bytes;
    if (field.number == 3) normalizer = field.bytes;
  }
  if (v.pieces.empty()) fail(ErrorCode::format, "{}: no pieces: not a SentencePiece model, or cut short", where);
  read_trainer(trainer, v);
  read_normalizer(normalizer, v);
  v.add_bos = v.bos >= 0;
  return v;
}

}  // namespace unchain::tokenizer
