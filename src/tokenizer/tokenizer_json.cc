// tokenizer.json of Hugging Face, models of type BPE: byte-level ones, and those that came from SentencePiece.
#include <algorithm>

#include "base/check.h"
#include "formats/json.h"
#include "formats/text.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/readers.h"

namespace unchain::tokenizer {
namespace {

using formats::printable;
using nlohmann::json;

const json kNull;

class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : root_(formats::parse_json(text, where)) {
    v_.name = where;
    if (!root_.is_object()) fail(ErrorCode::format, "{}: the JSON is not an object", where);
  }

  Vocabulary read(const std::string& pretokenizer) {
    const json& model = get(root_, "model");
    if (!model.is_object()) bad("model is missing or not an object");
    const std::string type = text(model, "type", model.contains("merges") ? "BPE" : "");
    if (type != "BPE") unsupported("model type '" + type + "'");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text(model, key).empty()) unsupported(std::string("model.") + key);
    }
    if (const json& dropout = get(model, "dropout"); dropout.is_number() && dropout != 0) unsupported("model.dropout");
    const bool byte_fallback = flag(model, "byte_fallback");
    read_normalizer(get(root_, "normalizer"));
    read_pretokenizer(get(root_, "pre_tokenizer"));
    if (byte_level_ == (blanks_ || byte_fallback)) {
      unsupported(byte_level_ ? "byte_fallback or a normalizer of blanks with a ByteLevel pre-tokenizer"
                              : "a BPE that is neither ByteLevel nor made from SentencePiece");
    }
    if (!byte_level_ && !blanks_) unsupported("byte_fallback without a Replace of ' ' by U+2581");
    v_.kind = byte_level_ ? Vocabulary::Kind::byte_level : Vocabulary::Kind::sentencepiece;
    v_.whole_words = flag(model, "ignore_merges");
    if (v_.whole_words && !byte_level_) unsupported("model.ignore_merges without ByteLevel");
    read_pieces(get(model, "vocab"), get(root_, "added_tokens"), byte_fallback);
    read_merges(get(model, "merges"));
    const std::string unknown = text(model, "unk_token");
    if (!unknown.empty()) v_.unknown = id_of(unknown, "model.unk_token");
    if (v_.unknown >= 0 && v_.types[static_cast<size_t>(v_.unknown)] == PieceType::normal) {
      v_.types[static_cast<size_t>(v_.unknown)] = PieceType::unknown;
    }
    read_post_processor(get(root_, "post_processor"));
    name_it(pretokenizer);
    return std::move(v_);
  }

 private:
  [[noreturn]] void bad(const std::string& what) const { fail(ErrorCode::format, "{}: {}", v_.name, printable(what)); }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(ErrorCode::unsupported, "{}: not supported: {}", v_.name, printable(what));
  }
  static const json& get(const json& object, const char* key) {
    const auto place = object.find(key);
    return place == object.end() ? kNull : *place;
  }
  std::string text(const json& object, const char* key, const std::string& absent = "") const {
    const json& value = get(object, key);
    if (value.is_null()) return absent;
    if (!value.is_string()) bad(std::string(key) + " is not a string");
    return value.get<std::string>();
  }
  bool flag(const json& object, const char* key, bool absent = false) const {
    const json& value = get(object, key);
    if (value.is_null()) return absent;
    if (!value.is_boolean()) bad(std::string(key) + " is not true or false");
    return value.get<bool>();
  }
  // Calls `use` for a part of the pipeline, or, for a Sequence, for each of its parts.
  template <class Use>
  void each(const json& part, const char* list, const Use& use, int depth = 0) const {
    if (part.is_null()) return;
    if (!part.is_object()) bad(std::string(list) + " is not made of objects");
    const std::string type = text(part, "type");
    if (type != "Sequence") return use(part, type);
    const json& parts = get(part, list);
    if (!parts.is_array() || depth > 8) bad(std::string("a Sequence without a list of ") + list);
    for (const json& inner : parts) each(inner, list, use, depth + 1);
  }

  // {"String": s} or {"Regex": r}
  std::string pattern(const json& part, const char* kind) const {
    const json& value = get(part, "pattern");
    return value.is_object() ? text(value, kind) : "";
  }

  void read_normalizer(const json& normalizer) {
    each(normalizer, "normalizers", [&](const json& part, const std::string& type) {
      if (type == "NFC") {
        v_.warnings.push_back(v_.name +
                              ": normalizer NFC is not applied, so that decoding gives back the very bytes; "
                              "text with decomposed accents gets other token ids");
      } else if (type == "Prepend" && text(part, "prepend") == kBlank) {
        v_.blank_prefix = true;
      } else if (type == "Replace" && pattern(part, "String") == " " && text(part, "content") == kBlank) {
        blanks_ = true;
      } else {
        unsupported("normalizer '" + type + "' of this form");
      }
    });
  }

  void read_pretokenizer(const json& pretokenizer) {
    each(pretokenizer, "pretokenizers", [&](const json& part, const std::string& type) {
      if (byte_level_) unsupported("pre-tokenizer '" + type + "' after ByteLevel");
      if (type == "ByteLevel") {
        if (flag(part, "add_prefix_space", true)) unsupported("add_prefix_space of ByteLevel");
        byte_level_ = true;
        if (flag(part, "use_regex", true)) v_.patterns.emplace_back(find_pretokenizer("gpt2")->patterns[0]);
      } else if (type == "Digits") {
        v_.patterns.emplace_back(flag(part, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)");
      } else if (type == "Split") {
        read_split(part);
      } else if (type == "Metaspace") {
        read_metaspace(part);
      } else {
        unsupported("pre-tokenizer '" + type + "'");
      }
    });
    if (!byte_level_ && !v_.patterns.empty()) unsupported("Digits or Split without ByteLevel");
  }

  void read_split(const json& part) {
    const std::string behavior = text(part, "behavior"), literal = pattern(part, "String");
    // Once blanks are U+2581 there are none to split at.
    if (blanks_ && literal == " ") return;
    if (behavior != "Isolated" || flag(part, "invert")) unsupported("Split with behavior '" + behavior + "' or invert");
    std::string regex = pattern(part, "Regex");
    for (const char c : literal) {
      if (static_cast<uint8_t>(c) < 0x80 && std::isalnum(static_cast<uint8_t>(c)) == 0) regex += '\\';
      regex += c;
    }
    if (regex.empty()) bad("a Split without a pattern");
    v_.patterns.push_back(regex);
  }

  void read_metaspace(const json& part) {
    if (text(part, "replacement") != kBlank) unsupported("Metaspace with another replacement");
    if (flag(part, "split", true)) unsupported("Metaspace that splits");
    const std::string scheme = text(part, "prepend_scheme", flag(part, "add_prefix_space", true) ? "always" : "never");
    blanks_ = true;
    v_.blank_prefix = scheme != "never";
  }

  void read_pieces(const json& vocab, const json& added, bool byte_fallback) {
    if (!vocab.is_object() || vocab.empty()) bad("model.vocab is missing or empty");
    if (!added.is_null() && !added.is_array()) bad("added_tokens is not a list");
    // Ids may have holes, but not so many that they could only be a mistake.
    const size_t limit = 2 * (vocab.size() + added.size()) + 1024;
    for (const auto& [piece, id] : vocab.items()) {
      const bool byte = byte_fallback && byte_of_piece(piece) >= 0;
      put(piece, id, byte ? PieceType::byte : PieceType::normal, limit, false);
    }
    for (const json& token : added) {
      if (!token.is_object()) bad("added_tokens holds something that is not an object");
      const std::string content = text(token, "content");
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        if (flag(token, key)) unsupported("added token '" + content + "' with " + key);
      }
      const PieceType type = flag(token, "special") ? PieceType::control : PieceType::user_defined;
      put(content, get(token, "id"), type, limit, true);
    }
  }

  void put(const std::string& piece, const json& id, PieceType type, size_t limit, bool may_repeat) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<uint64_t>() >= limit) {
      bad("token '" + piece + "' has the id " + id.dump() + ", expected a whole number below " + std::to_string(limit));
    }
    const auto i = id.get<size_t>();
    if (i >= v_.pieces.size()) {
      v_.pieces.resize(i + 1);
      v_.types.resize(i + 1, PieceType::unused);
    }
    if (v_.types[i] != PieceType::unused && !(may_repeat && v_.pieces[i] == piece)) {
      bad("tokens '" + v_.pieces[i] + "' and '" + piece + "' have the same id " + std::to_string(i));
    }
    v_.pieces[i] = piece;
    v_.types[i] = type;
  }

  void read_merges(const json& merges) {
    if (!merges.is_array()) bad("model.merges is missing or not a list");
    for (size_t i = 0; i < merges.size(); ++i) {
      const json& merge = merges[i];
      if (merge.is_string()) {
        v_.merges.push_back(split_merge(merge.get_ref<const std::string&>(), v_.name, i));
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        v_.merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      } else {
        bad("merge " + std::to_string(i) + " is neither \"left right\" nor a pair");
      }
    }
  }

  int32_t id_of(const std::string& piece, const char* what) const {
    const auto place = std::find(v_.pieces.begin(), v_.pieces.end(), piece);
    if (place == v_.pieces.end()) bad(std::string(what) + " is '" + piece + "', which the vocabulary does not have");
    return static_cast<int32_t>(place - v_.pieces.begin());
  }

  void read_post_processor(const json& processor) {
    each(processor, "processors", [&](const json& part, const std::string& type) {
      if (type == "ByteLevel") return;
      if (type != "TemplateProcessing") unsupported("post-processor '" + type + "'");
      const json& single = get(part, "single");
      if (!single.is_array()) bad("TemplateProcessing without a list `single`");
      bool before = true;
      for (const json& step : single) {
        if (step.is_object() && step.contains("Sequence")) {
          before = false;
        } else if (!step.is_object() || !get(step, "SpecialToken").is_object()) {
          bad("TemplateProcessing with a step that is neither a token nor the text");
        } else if (!before) {
          v_.warnings.push_back(eos_not_added(v_.name));
        } else if (v_.add_bos) {
          unsupported("TemplateProcessing with two tokens before the text");
        } else {
          v_.bos = id_of(text(get(step, "SpecialToken"), "id"), "TemplateProcessing");
          v_.add_bos = true;
        }
      }
    });
  }

  void name_it(const std::string& pretokenizer) {
    v_.kind_name = "sentencepiece";
    if (!byte_level_) return ignore_pretokenizer(v_, pretokenizer);
    v_.pretokenizer = "tokenizer.json";
    for (const KnownPretokenizer& known : known_pretokenizers()) {
      if (std::equal(known.patterns.begin(), known.patterns.end(), v_.patterns.begin(), v_.patterns.end())) {
        v_.pretokenizer = known.names[0];
      }
    }
    if (!pretokenizer.empty()) {
      const bool whole_words = v_.whole_words, add_bos = v_.add_bos;
      choose_pretokenizer(v_, "", pretokenizer);
      v_.whole_words = whole_words;  // the patterns alone are replaced
      v_.add_bos = add_bos;
    }
    v_.kind_name = "gpt2 bpe (" + v_.pretokenizer + ")";
  }

  json root_;
  Vocabulary v_;
  bool byte_level_ = false, blanks_ = false;
};

}  // namespace

Vocabulary read_tokenizer_json(std::string_view text, const std::string& where, const std::string& pretokenizer) {
  return Reader(text, where).read(pretokenizer);
}

}  // namespace unchain::tokenizer
