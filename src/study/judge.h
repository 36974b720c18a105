// Verdicts on claims: a pure function of the claims and of what was observed. Rules: docs/claims.md.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "study/claims.h"
#include "study/statistics.h"

namespace unchain::study {

// One measure of one run. A run that is missing has no observation; one in which the measure does not apply (a noise
// map where there is none) has one without a value; one that failed has a value that is not finite.
struct Observation {
  std::string size, track, member;
  int64_t seed = 0;
  std::string measure;
  std::optional<double> value;
  Windows windows;
  std::optional<int64_t> tokens;  // N, that a window held; absent: not said
};

using Sizes = std::map<std::string, std::vector<std::string>>;  // of each track, smallest first

struct Observations {
  Sizes sizes;
  std::vector<Observation> all;  // in any order
};

// `missing` is null in JSON: no seed has all the runs that the claim needs.
enum class Verdict : uint8_t { supported, refuted, undecided, identity, not_applicable, missing };

struct Estimate {
  double mean = 0;  // over seeds; NaN if there is none
  std::optional<Interval> interval;
  int64_t seeds = 0;
};

// A measure of one member, over the seeds that are judged.
struct MemberValue {
  std::string member, track, measure;
  Estimate estimate;
};

struct PartResult {
  Part part;
  std::string size;               // empty: its track has no runs
  std::optional<int64_t> tokens;  // N of the runs, or of the measure where they do not say
  Verdict verdict = Verdict::missing;
  Estimate estimate;                // of the number that is judged
  std::vector<MemberValue> values;  // of what it is made of
  std::optional<double> threshold;  // the floor with its sign where that is the threshold; absent for a band
  std::optional<double> floor;      // √(2/seeds) × SD of the measure over the seeds of softmax, in the number's unit
  std::optional<double> margin;     // how far off the threshold the mean must be: the floor, or 0 where it is in that
  std::optional<double> detectable;     // how far beyond the threshold 80 % of such studies would support
  std::optional<int64_t> seeds_needed;  // fewest that would decide if mean and SD stay; absent if more than 200
  std::vector<std::string> notes;
};

struct ClaimResult {
  Claim claim;
  Verdict verdict = Verdict::missing;
  std::vector<PartResult> parts;
  size_t decides = 0;  // the first part whose verdict is the claim's; of an identity the first of all
  // Never moves the verdict: other measures, other sizes, and other members in the place of the judged ones.
  std::vector<PartResult> sensitivity;
};

// All claims, in their order; the order of observations does not matter. Errors: usage (a size that its track does not
// list, an observation that stands twice).
std::vector<ClaimResult> judge(const Claims& claims, const Observations& observations);

// An entry of `claims[]` in results.json: {"id", "source", "name", "statement", "kind", "measure", "threshold",
// "floor", "detectable", "effect", "values": {MEMBER: {"mean", "low", "high", "seeds"}}, "verdict", "decides", "note",
// "parts": [], "sensitivity": []}; measure to values are those of parts[decides]. A part: {"measure", "comparison",
// "of", "against", "reference", "track", "size", "tokens", "rows", "layers", "over", "unit", "direction", "threshold",
// "floor", "margin", "detectable", "effect", "mean", "low", "high", "seeds", "values", "reference_values", "verdict",
// "seeds_needed", "note"}. What there is not is null.
nlohmann::ordered_json to_json(const ClaimResult& result, const Claims& claims);

}  // namespace unchain::study
