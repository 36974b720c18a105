#include "tokenizer/piece_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "formats/text.h"

namespace unchain::tokenizer {

using formats::printable;

std::vector<int32_t> Tokenizer::encode_with_bos(std::string_view text, Control control, Missing* missing) const {
  std::vector<int32_t> ids = encode(text, control, missing);
  if (add_bos && bos >= 0 && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  return ids;
}

PieceTokenizer::PieceTokenizer(Vocabulary&& vocabulary, std::vector<std::string> surfaces)
    : vocabulary_(std::move(vocabulary)), surfaces_(std::move(surfaces)) {
  check_sizes();
  index_.reserve(vocabulary_.pieces.size());
  std::unordered_map<std::string_view, int32_t> others;  // they cannot come from plain text, but must be distinct too
  for (int32_t id = 0; id < size(); ++id) {
    const auto i = static_cast<size_t>(id);
    const PieceType type = vocabulary_.types[i];
    if (type == PieceType::unused) continue;
    const std::string& text = vocabulary_.pieces[i];
    if (text.empty()) fail(ErrorCode::format, "{}: piece {} is empty; the vocabulary is damaged", vocabulary_.name, id);
    const bool plain = type == PieceType::normal || type == PieceType::user_defined;
    const auto other = (plain ? others : index_).find(text);
    const auto [place, added] = (plain ? index_ : others).try_emplace(text, id);
    const bool twice = !added || other != (plain ? others : index_).end();
    if (twice) {
      fail(ErrorCode::format, "{}: pieces {} and {} are both '{}'; the vocabulary is damaged", vocabulary_.name,
           added ? other->second : place->second, id, printable(text));
    }
    if (type != PieceType::user_defined && !is_name(id)) continue;
    const std::string& surface = surfaces_[i];
    if (surface.size() > TokenNames::kLongest) {
      fail(ErrorCode::unsupported, "{}: the name of token {} has {} bytes; at most {} are supported", vocabulary_.name,
           id, surface.size(), TokenNames::kLongest);
    }
    (type == PieceType::user_defined ? user_defined_ : controls_).add(surface, id);
  }
  bos = vocabulary_.bos;
  eos = vocabulary_.eos;
  unknown = vocabulary_.unknown;
  add_bos = vocabulary_.add_bos;
  stops = vocabulary_.stops;
  if (eos >= 0) stops.push_back(eos);
  std::sort(stops.begin(), stops.end());
  stops.erase(std::unique(stops.begin(), stops.end()), stops.end());
  kind = vocabulary_.kind_name;
  warnings = vocabulary_.warnings;
}

void PieceTokenizer::check_sizes() const {
  const Vocabulary& v = vocabulary_;
  if (v.pieces.empty()) fail(ErrorCode::format, "{}: the vocabulary has no pieces", v.name);
  if (v.pieces.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(ErrorCode::unsupported, "{}: {} pieces; ids have 32 bits", v.name, v.pieces.size());
  }
  if (v.types.size() != v.pieces.size()) {
    fail(ErrorCode::format, "{}: {} token types for {} pieces; the vocabulary is damaged", v.name, v.types.size(),
         v.pieces.size());
  }
  if (!v.scores.empty() && v.scores.size() != v.pieces.size()) {
    fail(ErrorCode::format, "{}: {} scores for {} pieces; the vocabulary is damaged", v.name, v.scores.size(),
         v.pieces.size());
  }
  for (size_t i = 0; i < v.scores.size(); ++i) {
    if (!std::isfinite(v.scores[i])) {
      fail(ErrorCode::format, "{}: the score of piece {} is {}; the vocabulary is damaged", v.name, i, v.scores[i]);
    }
  }
  const auto check = [&](int32_t id, const char* what) {
    if (id < -1 || id >= size()) {
      fail(ErrorCode::format, "{}: the {} token is {}, but ids go from 0 to {}", v.name, what, id, size() - 1);
    }
  };
  check(v.bos, "begin-of-text");
  check(v.eos, "end-of-text");
  check(v.unknown, "unknown");
  for (const int32_t id : v.stops) check(id, "stop");
  if (v.add_bos && v.bos < 0) {
    fail(ErrorCode::format, "{}: a begin-of-text token is to be added, but the file names none", v.name);
  }
}

bool PieceTokenizer::is_name(int32_t id) const {
  const PieceType type = vocabulary_.types[static_cast<size_t>(id)];
  return type == PieceType::control || type == PieceType::unknown;
}

int32_t PieceTokenizer::find(std::string_view piece) const {
  const auto place = index_.find(piece);
  return place == index_.end() ? -1 : place->second;
}

PairTable PieceTokenizer::resolve_merges() const {
  PairTable pairs(vocabulary_.merges.size());
  for (size_t i = 0; i < vocabulary_.merges.size(); ++i) {
    const std::string &left = vocabulary_.merges[i].first, &right = vocabulary_.merges[i].second;
    const auto known = [&](const std::string& piece) {
      const int32_t id = find(piece);
      if (id < 0) {
        fail(ErrorCode::format, "{}: merge {} ('{}' + '{}') needs the piece '{}', which the vocabulary does not have",
             vocabulary_.name, i, printable(left), printable(right), printable(piece));
      }
      return id;
    };
    const int32_t merged = known(left + right);
    if (!pairs.add(known(left), known(right), static_cast<int32_t>(i), merged)) {
      fail(ErrorCode::format, "{}: merge {} ('{}' + '{}') is there twice; the vocabulary is damaged", vocabulary_.name,
           i, printable(left), printable(right));
    }
  }
  return pairs;
}

std::vector<int32_t> PieceTokenizer::encode(std::string_view text, Control control, Missing* missing) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 4) {
    fail(ErrorCode::unsupported, "a text of {} bytes: at most 512 MiB are encoded at once; cut it", text.size());
  }
  Encoded out{{}, missing};
  if (control == Control::literal) {
    if (!text.empty()) encode_stretch(text, out);
  } else {
    controls_.cut(
        text, [&](std::string_view stretch) { encode_stretch(stretch, out); },
        [&](int32_t id) { out.ids.push_back(id); });
  }
  return std::move(out.ids);
}

void PieceTokenizer::encode_stretch(std::string_view text, Encoded& out) const {
  std::string prefixed;
  if (vocabulary_.blank_prefix) {
    prefixed.reserve(text.size() + 1);
    prefixed = ' ';
    text = prefixed += text;
  }
  user_defined_.cut(
      text, [&](std::string_view stretch) { encode_plain(stretch, out); }, [&](int32_t id) { out.ids.push_back(id); });
}

std::string PieceTokenizer::decode(const std::vector<int32_t>& ids) const {
  std::string text;
  bool start = vocabulary_.blank_prefix;  // of a stretch whose first blank encode() has put there
  for (const int32_t id : ids) {
    check_id(id);
    std::string_view surface = surfaces_[static_cast<size_t>(id)];
    if (start && surface.starts_with(' ')) surface.remove_prefix(1);
    text += surface;
    start = vocabulary_.blank_prefix && is_name(id);
  }
  return text;
}

std::string PieceTokenizer::piece(int32_t id) const {
  check_id(id);
  return vocabulary_.pieces[static_cast<size_t>(id)];
}

bool PieceTokenizer::is_control(int32_t id) const {
  check_id(id);
  return is_name(id);
}

void PieceTokenizer::check_id(int32_t id) const {
  if (id < 0 || id >= size()) {
    fail(ErrorCode::usage, "token id {}: the vocabulary of {} has the ids 0 to {}", id, vocabulary_.name, size() - 1);
  }
}

}  // namespace unchain::tokenizer
