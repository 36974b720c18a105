#include "study/claims.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "formats/json.h"
#include "study/presets.h"
#include "train/config.h"

namespace unchain::study {
namespace {

using nlohmann::json;

constexpr const char* kDocs = "docs/claims.md";
constexpr std::array<std::string_view, 2> kKinds = {"measured", "identity"};
constexpr std::array<std::string_view, 2> kSizes = {"smallest", "every"};
const std::set<std::string> kTracks = {"language", "retrieval"};
const std::set<std::string> kSources = {"seed", "paper"};

// One object of the file; `place` names it, as "claims[3].parts[0]".
struct Reader {
  const json& object;
  const std::string& where;
  std::string place;

  std::string name(const char* key) const { return place.empty() ? key : place + "." + key; }

  [[noreturn]] void wrong(const char* key, const std::string& expected) const {
    fail(ErrorCode::usage, "{}: {} is {}, expected {}; see {}", where, name(key),
         object.contains(key) ? object[key].dump().substr(0, 60) : "missing", expected, kDocs);
  }

  std::string text(const char* key) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string() || found->get<std::string>().empty()) wrong(key, "a text");
    return *found;
  }

  double number(const char* key) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) wrong(key, "a number");
    return *found;
  }

  // Absent: `otherwise`.
  bool flag(const char* key, bool otherwise) const {
    const auto found = object.find(key);
    if (found == object.end()) return otherwise;
    if (!found->is_boolean()) wrong(key, "true or false");
    return *found;
  }

  // The number of the word in the list; the first one if the key may be absent and is.
  template <class Enum, size_t N>
  Enum word(const char* key, const std::array<std::string_view, N>& words, bool needed) const {
    if (!needed && !object.contains(key)) return {};
    const auto found = std::find(words.begin(), words.end(), object.contains(key) ? text(key) : "");
    if (found == words.end()) wrong(key, fmt::format("one of {}", fmt::join(words, ", ")));
    return static_cast<Enum>(found - words.begin());
  }

  // A name out of a set; `what` says which.
  template <class Names>
  std::string one_of(const char* key, const Names& names, const char* what) const {
    std::string found = text(key);
    if (!names.contains(found)) wrong(key, what);
    return found;
  }

  // Whether a key must be there (true) or must not (false).
  void check_presence(const char* key, bool there, std::string_view comparison) const {
    if (object.contains(key) != there)
      wrong(key, fmt::format("it {} with the comparison {}", there ? "to be there" : "not to be there", comparison));
  }
};

MeasureInfo read_measure(const std::string& name, const json& found, const std::string& where) {
  const Reader reader{found, where, "measures." + name};
  train::check_keys(found, reader.place, {"unit", "tokens", "rows", "layers", "over", "windows", "count"}, where,
                    kDocs);
  MeasureInfo measure;
  measure.name = name;
  measure.unit = reader.text("unit");
  if (found.contains("tokens")) {
    if (!found["tokens"].is_number_integer() || found["tokens"] < 1) reader.wrong("tokens", "a whole number from 1");
    measure.tokens = found["tokens"];
  }
  measure.rows = reader.text("rows");
  measure.layers = reader.text("layers");
  measure.over = reader.text("over");
  measure.windows = reader.word<OverWindows>("windows", kOverWindows, false);
  measure.count = reader.flag("count", false);
  return measure;
}

// "threshold" is a number, [low, high] for a band, or the noise floor: "floor", "-floor".
void read_threshold(Part& part, const Reader& reader) {
  const auto found = reader.object.find("threshold");
  if (part.direction == Direction::inside) {
    const bool pair = found != reader.object.end() && found->is_array() && found->size() == 2 &&
                      (*found)[0].is_number() && (*found)[1].is_number() && (*found)[0] < (*found)[1];
    if (!pair) reader.wrong("threshold", "[low, high] with the direction inside");
    part.low = (*found)[0];
    part.high = (*found)[1];
  } else if (found != reader.object.end() && found->is_string()) {
    const std::string text = *found;
    if (text != "floor" && text != "-floor") reader.wrong("threshold", "a number, floor or -floor");
    part.floor_sign = text == "floor" ? 1 : -1;
  } else {
    part.low = part.high = reader.number("threshold");
  }
}

Part read_part(const json& found, const std::string& place, const Claims& claims, const std::string& where) {
  const Reader reader{found, where, place};
  train::check_keys(found, place,
                    {"measure", "comparison", "of", "against", "reference", "track", "reference_track", "direction",
                     "threshold", "effect", "sizes"},
                    where, kDocs);
  Part part;
  part.measure = reader.one_of("measure", claims.measures, "a name of measures");
  part.comparison = reader.word<Comparison>("comparison", kComparisons, true);
  part.of = reader.one_of("of", claims.roles, "a name of roles");
  const auto comparison = kComparisons[static_cast<size_t>(part.comparison)];
  const bool ratio = part.comparison == Comparison::ratio, difference = part.comparison == Comparison::difference;
  const bool gain = part.comparison == Comparison::gain, within = part.comparison == Comparison::within;
  // A ratio has another member, another measure or both; a difference may have another measure too.
  if (!ratio) reader.check_presence("against", difference || gain, comparison);
  if (!ratio && !difference) reader.check_presence("reference", within || gain, comparison);
  if (ratio && !found.contains("against")) reader.check_presence("reference", true, "ratio where against is missing");
  reader.check_presence("reference_track", gain, comparison);
  if (found.contains("against")) part.against = reader.one_of("against", claims.roles, "a name of roles");
  if (found.contains("reference")) part.reference = reader.one_of("reference", claims.measures, "a name of measures");
  part.track = reader.one_of("track", kTracks, "language or retrieval");
  part.reference_track = gain ? reader.one_of("reference_track", kTracks, "language or retrieval") : part.track;
  part.direction = reader.word<Direction>("direction", kDirections, true);
  read_threshold(part, reader);
  if (found.contains("effect") && !found["effect"].is_null()) part.effect = reader.number("effect");
  part.every_size = reader.word<int>("sizes", kSizes, false) == 1;
  return part;
}

std::vector<Part> read_parts(const Reader& claim, const char* key, const Claims& claims) {
  std::vector<Part> parts;
  const auto found = claim.object.find(key);
  if (found == claim.object.end() || !found->is_array()) claim.wrong(key, "a list");
  for (size_t i = 0; i < found->size(); ++i)
    parts.push_back(read_part((*found)[i], fmt::format("{}[{}]", claim.name(key), i), claims, claim.where));
  return parts;
}

Claim read_claim(const json& found, const std::string& place, const Claims& claims, const std::string& where) {
  const Reader reader{found, where, place};
  train::check_keys(found, place, {"id", "source", "name", "statement", "kind", "parts", "sensitivity", "note"}, where,
                    kDocs);
  Claim claim;
  if (!found.contains("id") || !found["id"].is_number_integer()) reader.wrong("id", "a whole number");
  claim.id = found["id"];
  for (const Claim& other : claims.claims)
    if (other.id == claim.id) reader.wrong("id", "a number that no other claim has");
  claim.source = reader.one_of("source", kSources, "seed or paper");
  claim.name = reader.text("name");
  claim.statement = reader.text("statement");
  claim.kind = reader.word<ClaimKind>("kind", kKinds, true);
  claim.parts = read_parts(reader, "parts", claims);
  if (claim.parts.empty()) reader.wrong("parts", "a part or more");
  if (found.contains("sensitivity")) claim.sensitivity = read_parts(reader, "sensitivity", claims);
  claim.note = reader.text("note");
  return claim;
}

void read_roles(Claims& claims, const json& root, const std::string& where) {
  const Reader reader{root, where, ""};
  if (!root.contains("roles") || !root["roles"].is_object()) reader.wrong("roles", "an object: role to member");
  const Reader roles{root["roles"], where, "roles"};
  for (const auto& [role, member] : root["roles"].items()) claims.roles[role] = roles.text(role.c_str());
}

// The members beside those of a role, from `key` of the object "beside".
std::map<std::string, std::vector<std::string>> read_beside(const Claims& claims, const json& beside, const char* key,
                                                            const std::string& where) {
  std::map<std::string, std::vector<std::string>> out;
  if (!beside.contains(key)) return out;
  const Reader reader{beside[key], where, fmt::format("beside.{}", key)};
  if (!beside[key].is_object()) Reader{beside, where, "beside"}.wrong(key, "an object: role to a list of members");
  for (const auto& [role, members] : beside[key].items()) {
    const auto is_text = [](const json& each) { return each.is_string(); };
    if (!claims.roles.contains(role)) reader.wrong(role.c_str(), "a name of roles before it");
    if (!members.is_array() || !std::all_of(members.begin(), members.end(), is_text))
      reader.wrong(role.c_str(), "a list of members");
    out[role] = members.get<std::vector<std::string>>();
  }
  return out;
}

}  // namespace

std::string_view claims_text() {
  return presets::kClaimsJson;
}

Claims parse_claims(const std::string& text, const std::string& where) {
  const json root = formats::parse_json(text, where);
  train::check_keys(root, "", {"level", "roles", "beside", "measures", "claims"}, where, kDocs);
  const Reader reader{root, where, ""};
  Claims claims;
  claims.level = reader.number("level");
  if (!(claims.level > 0 && claims.level < 1)) reader.wrong("level", "a number between 0 and 1");
  read_roles(claims, root, where);
  if (const auto beside = root.find("beside"); beside != root.end()) {
    train::check_keys(*beside, "beside", {"of", "against"}, where, kDocs);
    claims.beside_of = read_beside(claims, *beside, "of", where);
    claims.beside_against = read_beside(claims, *beside, "against", where);
  }
  if (!root.contains("measures") || !root["measures"].is_object()) reader.wrong("measures", "an object");
  for (const auto& [name, measure] : root["measures"].items())
    claims.measures[name] = read_measure(name, measure, where);
  if (!root.contains("claims") || !root["claims"].is_array()) reader.wrong("claims", "a list");
  for (size_t i = 0; i < root["claims"].size(); ++i)
    claims.claims.push_back(read_claim(root["claims"][i], fmt::format("claims[{}]", i), claims, where));
  return claims;
}

}  // namespace unchain::study
