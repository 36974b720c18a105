// The tokenizer of a GGUF file: metadata keys tokenizer.ggml.*
#include <limits>

#include "base/check.h"
#include "formats/gguf.h"
#include "formats/text.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/readers.h"

namespace unchain::tokenizer {
namespace {

using formats::GgufFile;

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  Vocabulary read(const std::string& pretokenizer) {
    v_.name = file_.name();
    const auto model = file_.string("tokenizer.ggml.model");
    if (!model) {
      fail(ErrorCode::format, "{}: key tokenizer.ggml.model is missing: the file has no tokenizer", v_.name);
    }
    if (*model != "gpt2" && *model != "llama") {
      fail(ErrorCode::unsupported, "{}: tokenizer.ggml.model is '{}'; supported are gpt2 and llama", v_.name,
           formats::printable(*model));
    }
    const bool byte_level = *model == "gpt2";
    v_.kind = byte_level ? Vocabulary::Kind::byte_level : Vocabulary::Kind::sentencepiece;
    read_pieces();
    v_.add_bos = !byte_level;
    if (byte_level) {
      read_merges();
      choose_pretokenizer(v_, file_.string("tokenizer.ggml.pre").value_or(""), pretokenizer);
      v_.kind_name = "gpt2 bpe (" + v_.pretokenizer + ")";
    } else {
      read_scores();
      ignore_pretokenizer(v_, pretokenizer);
      v_.kind_name = "sentencepiece";
    }
    v_.blank_prefix = file_.boolean("tokenizer.ggml.add_space_prefix").value_or(!byte_level);
    v_.add_bos = file_.boolean("tokenizer.ggml.add_bos_token").value_or(v_.add_bos);
    if (file_.boolean("tokenizer.ggml.add_eos_token").value_or(false)) v_.warnings.push_back(eos_not_added(v_.name));
    read_ids();
    refuse_unsupported(byte_level);
    return std::move(v_);
  }

 private:
  void read_pieces() {
    auto pieces = file_.strings("tokenizer.ggml.tokens");
    if (!pieces) fail(ErrorCode::format, "{}: key tokenizer.ggml.tokens is missing", v_.name);
    v_.pieces = std::move(*pieces);
    const auto types = file_.integers("tokenizer.ggml.token_type");
    if (!types) {
      v_.types.assign(v_.pieces.size(), PieceType::normal);
      return;
    }
    for (size_t i = 0; i < types->size(); ++i) {
      const int64_t type = (*types)[i];
      if (type < 0 || type > 6) {
        fail(ErrorCode::format, "{}: tokenizer.ggml.token_type: piece {} has type {}, known are 1 to 6", v_.name, i,
             type);
      }
      v_.types.push_back(type == 0 ? PieceType::normal : static_cast<PieceType>(type));  // 0: "undefined"
    }
  }

  void read_merges() {
    const auto merges = file_.strings("tokenizer.ggml.merges");
    if (!merges) fail(ErrorCode::format, "{}: key tokenizer.ggml.merges is missing", v_.name);
    for (size_t i = 0; i < merges->size(); ++i) v_.merges.push_back(split_merge((*merges)[i], v_.name, i));
  }

  void read_scores() {
    const auto scores = file_.numbers("tokenizer.ggml.scores");
    if (!scores) fail(ErrorCode::format, "{}: key tokenizer.ggml.scores is missing", v_.name);
    v_.scores.assign(scores->begin(), scores->end());
  }

  int32_t id(const char* key, int32_t absent = -1) const {
    const auto value = file_.integer(key);
    if (!value) return absent;
    if (*value == -1 || *value == std::numeric_limits<uint32_t>::max()) return -1;
    if (*value < 0 || *value >= static_cast<int64_t>(v_.pieces.size())) {
      fail(ErrorCode::format, "{}: {} is {}, but the vocabulary has {} pieces", v_.name, key, *value, v_.pieces.size());
    }
    return static_cast<int32_t>(*value);
  }

  void read_ids() {
    // SentencePiece's own numbers, where the file leaves them out.
    const auto usual = [&](size_t i, PieceType type) {
      const bool there = v_.kind == Vocabulary::Kind::sentencepiece && i < v_.types.size() && v_.types[i] == type;
      return there ? static_cast<int32_t>(i) : -1;
    };
    v_.bos = id("tokenizer.ggml.bos_token_id", usual(1, PieceType::control));
    v_.eos = id("tokenizer.ggml.eos_token_id", usual(2, PieceType::control));
    v_.unknown = id("tokenizer.ggml.unknown_token_id", usual(0, PieceType::unknown));
    for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      const int32_t stop = id(key);
      if (stop >= 0) v_.stops.push_back(stop);
    }
  }

  void refuse_unsupported(bool byte_level) const {
    if (byte_level && v_.blank_prefix) {
      fail(ErrorCode::unsupported, "{}: tokenizer.ggml.add_space_prefix is not supported for gpt2", v_.name);
    }
    if (!byte_level && file_.boolean("tokenizer.ggml.remove_extra_whitespaces").value_or(false)) {
      fail(ErrorCode::unsupported, "{}: tokenizer.ggml.remove_extra_whitespaces is not supported", v_.name);
    }
    if (file_.value("tokenizer.ggml.precompiled_charsmap") != nullptr) {
      fail(ErrorCode::unsupported, "{}: tokenizer.ggml.precompiled_charsmap is not supported", v_.name);
    }
  }

  const GgufFile& file_;
  Vocabulary v_;
};

}  // namespace

Vocabulary read_gguf(const GgufFile& file, const std::string& pretokenizer) {
  return Reader(file).read(pretokenizer);
}

std::unique_ptr<Tokenizer> from_gguf(const GgufFile& file, const std::string& pretokenizer) {
  return make_tokenizer(read_gguf(file, pretokenizer));
}

}  // namespace unchain::tokenizer
