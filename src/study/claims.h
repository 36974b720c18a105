// What the study asks, fixed before its runs: study/claims.json as structs. docs/claims.md says what each key means.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "study/over_windows.h"

namespace unchain::study {

// One number of one run: what it is taken over, in words, and how the judge treats it.
struct MeasureInfo {
  std::string name, unit;
  std::optional<int64_t> tokens;  // N; absent where the measure has none
  std::string rows, layers, over;
  OverWindows windows = OverWindows::none;  // how it follows from them; the judge draws windows where seeds are few
  bool count = false;                       // a number of things, the same for every seed: its noise floor is 0
};

// What is judged, one number a seed; x is the part's measure, y its reference (x where it names none):
//   value       x(of)
//   difference  x(of) − y(against)
//   within      x(of) − y(of), inside one model
//   ratio       x(of)/y(against or of) − 1
//   gain        [1 − x(of)/x(against)] − [1 − y(of)/y(against)], y on the reference track
enum class Comparison : uint8_t { value, difference, within, ratio, gain };
inline constexpr std::array<std::string_view, 5> kComparisons = {"value", "difference", "within", "ratio", "gain"};

enum class Direction : uint8_t { above, below, inside };
inline constexpr std::array<std::string_view, 3> kDirections = {"above", "below", "inside"};

struct Part {
  std::string measure;
  Comparison comparison = Comparison::value;
  std::string of, against;  // roles; `against` is empty where there is none
  std::string reference;    // a measure; empty: none
  std::string track, reference_track;
  Direction direction = Direction::above;
  double low = 0, high = 0;      // the threshold; they differ in a band alone
  int floor_sign = 0;            // +1 or −1: the threshold is the noise floor with this sign
  std::optional<double> effect;  // how far beyond its threshold the claim puts the number
  bool every_size = false;       // holds if it does at each size; otherwise the smallest decides
};

enum class ClaimKind : uint8_t { measured, identity };

struct Claim {
  int64_t id = 0;
  std::string source;
  std::string name, statement;  // a few words for pictures; the sentence
  ClaimKind kind = ClaimKind::measured;
  std::vector<Part> parts, sensitivity;
  std::string note;
};

struct Claims {
  double level = 0.95;
  std::map<std::string, std::string> roles;  // role -> member of the study
  // role -> members that are shown in its place where a part is of it, or holds another against it
  std::map<std::string, std::vector<std::string>> beside_of, beside_against;
  std::map<std::string, MeasureInfo> measures;
  std::vector<Claim> claims;
};

// study/claims.json, compiled into the program.
std::string_view claims_text();

// `where` begins every message. Errors: format (no JSON); usage (a key that there is not, with the nearest one; a value
// of the wrong type or out of range; a measure or role that the file does not name; what is missing, stands twice or
// does not belong to the comparison).
Claims parse_claims(const std::string& text, const std::string& where);

}  // namespace unchain::study
