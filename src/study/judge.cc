#include "study/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"

namespace unchain::study {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPower = 0.8;
constexpr int64_t kFewestSeeds = 3;          // below this nothing is decided
constexpr int64_t kMostSeeds = 200;          // that anyone would train
constexpr const char* kSoftmax = "softmax";  // whose scatter over seeds is the noise floor

using Roles = std::map<std::string, std::string>;
using Seeds = std::map<int64_t, const Observation*>;

// One number that a comparison takes from each seed's runs.
struct Term {
  std::string member, track, size, measure;
};

// The observations by what they are of, so that their order is lost.
class Evidence {
 public:
  explicit Evidence(const Observations& observations) : sizes_(observations.sizes) {
    for (const Observation& each : observations.all) {
      const std::string name =
          fmt::format("{}-{}-{} ({}): {}", each.size, each.member, each.seed, each.track, each.measure);
      if (!has(each.track, each.size)) {
        fail(ErrorCode::usage, "judge: {}: the size is none of {}; list it", name, fmt::join(sizes(each.track), ", "));
      }
      if (!of_[{each.size, each.track, each.member, each.measure}].emplace(each.seed, &each).second)
        fail(ErrorCode::usage, "judge: {} stands twice, expected one value a run", name);
    }
  }

  const Seeds& find(const Term& term) const {
    static const Seeds none;
    const auto found = of_.find({term.size, term.track, term.member, term.measure});
    return found == of_.end() ? none : found->second;
  }

  // Of a track, smallest first; none if it has no runs.
  const std::vector<std::string>& sizes(const std::string& track) const {
    static const std::vector<std::string> none;
    const auto found = sizes_.find(track);
    return found == sizes_.end() ? none : found->second;
  }
  std::string smallest(const std::string& track) const { return sizes(track).empty() ? "" : sizes(track).front(); }
  bool has(const std::string& track, const std::string& size) const {
    return std::ranges::find(sizes(track), size) != sizes(track).end();
  }

 private:
  const Sizes& sizes_;
  std::map<std::tuple<std::string, std::string, std::string, std::string>, Seeds> of_;
};
// Terms of another track are of its smallest size, if it does not know the part's.
std::vector<Term> terms_of(const Part& part, const std::string& size, const Roles& roles, const Evidence& evidence) {
  const std::string& of = roles.at(part.of);
  const std::string& against = part.against.empty() ? of : roles.at(part.against);
  const std::string& reference = part.reference.empty() ? part.measure : part.reference;
  const Term left = {of, part.track, size, part.measure};
  if (part.comparison == Comparison::value) return {left};
  if (part.comparison != Comparison::gain) return {left, {against, part.track, size, reference}};
  const std::string& track = part.reference_track;
  const std::string other = evidence.has(track, size) ? size : evidence.smallest(track);
  return {left,
          {against, part.track, size, part.measure},
          {of, track, other, reference},
          {against, track, other, reference}};
}

// The number that is judged, from the values of terms_of(). Not finite if a value to divide by is 0.
double combine(Comparison comparison, const std::vector<double>& x) {
  switch (comparison) {
    case Comparison::value:
      return x[0];
    case Comparison::difference:
    case Comparison::within:
      return x[0] - x[1];
    case Comparison::ratio:
      return x[0] / x[1] - 1;
    case Comparison::gain:
      return (1 - x[0] / x[1]) - (1 - x[2] / x[3]);
  }
  return kNan;
}

// The seeds that count, with the values of each term and the number that follows.
struct Sample {
  std::vector<int64_t> seeds;
  std::vector<std::vector<double>> terms;  // [term][seed]
  std::vector<double> numbers;             // [seed]
  bool applies = true;                     // false: there are runs, but in none of them all terms apply
  bool failed = false;                     // a run's value is not finite
};

Sample gather(PartResult& result, const std::vector<Term>& terms, const Evidence& evidence) {
  Sample sample;
  sample.terms.resize(terms.size());
  std::set<int64_t> seeds;
  for (const Term& term : terms)
    for (const auto& [seed, each] : evidence.find(term)) seeds.insert(seed);
  bool complete = false;
  for (const int64_t seed : seeds) {
    std::vector<double> values;
    std::string absent, without;
    for (const Term& term : terms) {
      const Seeds& runs = evidence.find(term);
      const auto run = runs.find(seed);
      if (run == runs.end())
        absent = fmt::format("seed {} is left out: {} of {} is missing", seed, term.measure, term.member);
      else if (!run->second->value)
        without = fmt::format("seed {} is left out: {} does not apply to {}", seed, term.measure, term.member);
      else
        values.push_back(*run->second->value);
    }
    complete = complete || absent.empty();
    if (values.size() < terms.size()) {
      result.notes.push_back(absent.empty() ? without : absent);
      continue;
    }
    const double number = combine(result.part.comparison, values);
    values.push_back(number);  // a ratio to something infinite is finite, and no less a failure
    if (!std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); })) {
      // Leaving a failed run out would favour the member that survives where it does.
      sample.failed = true;
      result.notes.push_back(fmt::format("seed {} has no finite number, so that nothing is decided", seed));
      continue;
    }
    sample.seeds.push_back(seed);
    sample.numbers.push_back(number);
    for (size_t i = 0; i < terms.size(); ++i) sample.terms[i].push_back(values[i]);
  }
  sample.applies = !complete || sample.failed || !sample.seeds.empty();
  return sample;
}

// The interval of the mean number of these seeds, over windows nested in texts. All terms and seeds of a track are
// drawn together, since they were measured on the same windows; absent if they were not, or were not kept.
std::optional<Interval> interval_over_windows(const PartResult& result, const std::vector<Term>& terms,
                                              const std::vector<int64_t>& seeds, const Evidence& evidence,
                                              const Claims& claims) {
  std::vector<std::string> tracks;
  std::vector<std::vector<size_t>> corpora;  // of each track, windows by text
  std::vector<size_t> track_of(terms.size());
  std::vector<std::vector<std::vector<const Window*>>> flat(seeds.size());  // [seed][term][window]
  for (size_t i = 0; i < terms.size(); ++i) {
    const Term& term = terms[i];
    if (claims.measures.at(term.measure).windows == OverWindows::none) return std::nullopt;
    const auto known = std::ranges::find(tracks, term.track);
    const bool fresh = known == tracks.end();
    track_of[i] = static_cast<size_t>(known - tracks.begin());
    if (fresh) {
      tracks.push_back(term.track);
      corpora.emplace_back();
    }
    for (size_t seed = 0; seed < seeds.size(); ++seed) {
      std::vector<size_t> counts;
      std::vector<const Window*>& windows = flat[seed].emplace_back();
      for (const auto& text : evidence.find(term).at(seeds[seed])->windows) {
        counts.push_back(text.size());
        for (const Window& window : text) windows.push_back(&window);
      }
      std::vector<size_t>& corpus = corpora[track_of[i]];
      if (corpus.empty()) corpus = counts;
      if (counts != corpus || windows.empty()) return std::nullopt;
    }
  }
  const auto number = [&](const std::vector<Drawn>& drawn) {
    std::vector<double> numbers;
    for (const auto& of_seed : flat) {
      std::vector<double> values;
      for (size_t i = 0; i < terms.size(); ++i) {
        std::vector<const Window*> windows;
        for (const size_t place : drawn[track_of[i]]) windows.push_back(of_seed[i][place]);
        values.push_back(over_windows(claims.measures.at(terms[i].measure).windows, windows));
      }
      numbers.push_back(combine(result.part.comparison, values));
    }
    return mean(numbers);
  };
  return nested_bootstrap(corpora, number, claims.level);
}

// The SD over seeds of the part's measure: of softmax, or of the judged member where softmax lacks it; relative to the
// mean where the number is a ratio. Absent below two values.
std::optional<double> scatter(const PartResult& result, const Term& judged, const Evidence& evidence,
                              const Claims& claims) {
  if (claims.measures.at(judged.measure).count) return 0;
  for (const std::string& member : {std::string(kSoftmax), judged.member}) {
    std::vector<double> values;
    for (const auto& [seed, run] : evidence.find({member, judged.track, judged.size, judged.measure}))
      if (run->value && std::isfinite(*run->value)) values.push_back(*run->value);
    if (values.size() < 2) continue;
    const bool relative = result.part.comparison == Comparison::ratio || result.part.comparison == Comparison::gain;
    return standard_deviation(values) / (relative ? std::abs(mean(values)) : 1);
  }
  return std::nullopt;
}

// What the rule compares: the threshold [low, high] (one number, but for a band) and how far off it the mean must be.
struct Line {
  double low = 0, high = 0, margin = 0;
};

// A threshold that is the floor already holds it, so that the interval decides alone.
Line line_of(const Part& part, double floor) {
  if (part.floor_sign != 0) return {part.floor_sign * floor, part.floor_sign * floor, 0};
  return {part.low, part.high, floor};
}

// Supported: the whole interval on the claimed side and the mean further off the threshold than the margin; refuted:
// the same on the other side.
Verdict decide(double middle, const Interval& interval, Direction direction, const Line& line) {
  const bool over_low = interval.low > line.low && middle - line.low > line.margin;
  const bool under_low = interval.high < line.low && line.low - middle > line.margin;
  const bool over_high = interval.low > line.high && middle - line.high > line.margin;
  const bool under_high = interval.high < line.high && line.high - middle > line.margin;
  const bool holds = direction == Direction::above   ? over_low
                     : direction == Direction::below ? under_high
                                                     : over_low && under_high;
  const bool fails = direction == Direction::above   ? under_low
                     : direction == Direction::below ? over_high
                                                     : under_low || over_high;
  return holds ? Verdict::supported : fails ? Verdict::refuted : Verdict::undecided;
}

double floor_of(double scatter, int64_t seeds) {
  return std::sqrt(2.0 / static_cast<double>(seeds)) * scatter;
}

// The fewest seeds, more than there are, with which the same mean, SD and scatter would be decided.
std::optional<int64_t> seeds_needed(const Part& part, const Estimate& estimate, double sd, double scatter,
                                    double level) {
  const double middle = estimate.mean;
  for (int64_t n = std::max(kFewestSeeds, estimate.seeds + 1); n <= kMostSeeds; ++n) {
    const double root = std::sqrt(static_cast<double>(n));
    const double half = student_t_quantile((1 - level) / 2, static_cast<double>(n - 1)) * sd / root;
    const Line line = line_of(part, floor_of(scatter, n));
    if (decide(middle, {middle - half, middle + half}, part.direction, line) != Verdict::undecided) return n;
  }
  return std::nullopt;
}

// N of the runs that a part is judged by; absent where the measure has none.
std::optional<int64_t> tokens_of(const Term& term, const Evidence& evidence, const Claims& claims) {
  const std::optional<int64_t> planned = claims.measures.at(term.measure).tokens;
  for (const auto& [seed, run] : evidence.find(term))
    if (planned && run->tokens) return run->tokens;
  return planned;
}

PartResult judge_part(const Part& part, const std::string& size, const Roles& roles, const Evidence& evidence,
                      const Claims& claims) {
  PartResult result;
  result.part = part;
  result.size = size;
  const std::vector<Term> terms = terms_of(part, size, roles, evidence);
  result.tokens = tokens_of(terms.front(), evidence, claims);
  const Sample sample = gather(result, terms, evidence);
  for (size_t i = 0; i < terms.size(); ++i) {
    const std::vector<double>& values = sample.terms[i];
    result.values.push_back({terms[i].member,
                             terms[i].track,
                             terms[i].measure,
                             {mean(values), t_interval(values, claims.level), static_cast<int64_t>(values.size())}});
  }

  // 1. The number, its interval and its floor.
  const int64_t seeds = static_cast<int64_t>(sample.seeds.size());
  result.estimate = {mean(sample.numbers), t_interval(sample.numbers, claims.level), seeds};
  if (seeds > 0 && seeds < kFewestSeeds)
    if (const auto interval = interval_over_windows(result, terms, sample.seeds, evidence, claims))
      result.estimate.interval = interval;
  if (part.floor_sign == 0 && part.low == part.high) result.threshold = part.low;
  const std::optional<double> sd_of_floor = scatter(result, terms.front(), evidence, claims);
  if (seeds > 0 && sd_of_floor) {
    result.floor = floor_of(*sd_of_floor, seeds);
    result.margin = line_of(part, *result.floor).margin;
    if (part.floor_sign != 0) result.threshold = part.floor_sign * *result.floor;
  }
  const double sd = standard_deviation(sample.numbers);
  if (seeds >= 2 && result.floor)
    result.detectable = detectable_effect({sd, seeds, *result.floor, part.floor_sign != 0, claims.level}, kPower);

  // 2. The verdict.
  if (!sample.applies) {
    result.verdict = Verdict::not_applicable;
  } else if (sample.failed) {
    result.verdict = Verdict::undecided;
  } else if (seeds == 0) {
    result.verdict = Verdict::missing;
    if (size.empty()) result.notes = {fmt::format("no runs on {}", part.track)};
  } else if (seeds < kFewestSeeds || !result.floor) {
    result.verdict = Verdict::undecided;
    result.notes.push_back(fmt::format("{} of at least {} seeds", seeds, kFewestSeeds));
  } else {
    result.verdict =
        decide(result.estimate.mean, *result.estimate.interval, part.direction, line_of(part, *result.floor));
  }
  if (result.verdict == Verdict::undecided && seeds >= 2 && result.floor && !sample.failed)
    result.seeds_needed = seeds_needed(part, result.estimate, sd, *sd_of_floor, claims.level);
  return result;
}

// "And": refuted if any part is, whatever the others are; supported if all are.
Verdict join(const std::vector<PartResult>& parts) {
  const auto any = [&](Verdict verdict) {
    return std::any_of(parts.begin(), parts.end(), [&](const PartResult& part) { return part.verdict == verdict; });
  };
  for (const Verdict verdict : {Verdict::refuted, Verdict::missing, Verdict::not_applicable, Verdict::undecided})
    if (any(verdict)) return verdict;
  return parts.empty() ? Verdict::missing : Verdict::supported;
}

ClaimResult judge_claim(const Claim& claim, const Evidence& evidence, const Claims& claims) {
  ClaimResult result;
  result.claim = claim;
  const auto judged = [&](const Part& part, const std::string& size, const Roles& roles) {
    return judge_part(part, size, roles, evidence, claims);
  };
  for (const Part& part : claim.parts) {
    result.parts.push_back(judged(part, evidence.smallest(part.track), claims.roles));
    for (const std::string& size : evidence.sizes(part.track))
      if (size != evidence.smallest(part.track))
        (part.every_size ? result.parts : result.sensitivity).push_back(judged(part, size, claims.roles));
  }
  result.verdict = claim.kind == ClaimKind::identity ? Verdict::identity : join(result.parts);
  const auto decides = std::ranges::find(result.parts, result.verdict, &PartResult::verdict);
  if (decides != result.parts.end()) result.decides = static_cast<size_t>(decides - result.parts.begin());
  for (const Part& part : claim.sensitivity)
    result.sensitivity.push_back(judged(part, evidence.smallest(part.track), claims.roles));
  const auto stand_in = [&](const Part& part, const std::string& role, const auto& beside) {
    const auto members = beside.find(role);
    if (members == beside.end()) return;
    for (const std::string& member : members->second) {
      Roles roles = claims.roles;
      roles[role] = member;
      result.sensitivity.push_back(judged(part, evidence.smallest(part.track), roles));
    }
  };
  for (const Part& part : claim.parts) {
    stand_in(part, part.of, claims.beside_of);
    stand_in(part, part.against, claims.beside_against);
  }
  return result;
}

using nlohmann::ordered_json;

ordered_json to_json(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json();
}

ordered_json to_json(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

ordered_json to_json(Verdict verdict) {
  constexpr std::array<std::string_view, 5> kNames = {"supported", "refuted", "undecided", "identity",
                                                      "not_applicable"};
  return verdict == Verdict::missing ? ordered_json() : ordered_json(kNames[static_cast<size_t>(verdict)]);
}

ordered_json to_json(const Estimate& estimate) {
  const auto& interval = estimate.interval;
  return {{"mean", to_json(std::optional<double>(estimate.mean))},
          {"low", to_json(interval ? std::optional<double>(interval->low) : std::nullopt)},
          {"high", to_json(interval ? std::optional<double>(interval->high) : std::nullopt)},
          {"seeds", estimate.seeds}};
}

ordered_json threshold_json(const PartResult& result) {
  if (result.part.direction == Direction::inside) return {result.part.low, result.part.high};
  return to_json(result.threshold);
}

// Member -> estimate, of the part's measure on its track or of what it is held against.
ordered_json values_json(const PartResult& result, bool reference) {
  ordered_json values = ordered_json::object();
  for (const MemberValue& each : result.values) {
    const bool primary = each.measure == result.part.measure && each.track == result.part.track;
    if (primary != reference) values[each.member] = to_json(each.estimate);
  }
  return values;
}

ordered_json part_json(const PartResult& result, const Claims& claims) {
  const Part& part = result.part;
  const MeasureInfo& measure = claims.measures.at(part.measure);
  const MemberValue& of = result.values[0];
  ordered_json out = {{"measure", part.measure},
                      {"comparison", kComparisons[static_cast<size_t>(part.comparison)]},
                      {"of", of.member},
                      {"against", part.against.empty() ? ordered_json() : ordered_json(result.values[1].member)},
                      {"reference", to_json(part.reference)},
                      {"track", part.track},
                      {"size", to_json(result.size)},
                      {"tokens", result.tokens ? ordered_json(*result.tokens) : ordered_json()},
                      {"rows", measure.rows},
                      {"layers", measure.layers},
                      {"over", measure.over},
                      {"unit", measure.unit},
                      {"direction", kDirections[static_cast<size_t>(part.direction)]},
                      {"threshold", threshold_json(result)},
                      {"floor", to_json(result.floor)},
                      {"margin", to_json(result.margin)},
                      {"detectable", to_json(result.detectable)},
                      {"effect", to_json(part.effect)}};
  out.update(to_json(result.estimate));
  out["values"] = values_json(result, false);
  out["reference_values"] = values_json(result, true);
  out["verdict"] = to_json(result.verdict);
  out["seeds_needed"] = result.seeds_needed ? ordered_json(*result.seeds_needed) : ordered_json();
  out["note"] = fmt::format("{}", fmt::join(result.notes, "; "));
  return out;
}

}  // namespace

std::vector<ClaimResult> judge(const Claims& claims, const Observations& observations) {
  const Evidence evidence(observations);
  std::vector<ClaimResult> results;
  for (const Claim& claim : claims.claims) results.push_back(judge_claim(claim, evidence, claims));
  return results;
}

ordered_json to_json(const ClaimResult& result, const Claims& claims) {
  ordered_json parts = ordered_json::array(), sensitivity = ordered_json::array();
  for (const PartResult& each : result.parts) parts.push_back(part_json(each, claims));
  for (const PartResult& each : result.sensitivity) sensitivity.push_back(part_json(each, claims));
  const Claim& claim = result.claim;
  ordered_json out = {{"id", claim.id}, {"source", claim.source}, {"name", claim.name}, {"statement", claim.statement}};
  out["kind"] = claim.kind == ClaimKind::identity ? "identity" : "measured";
  for (const char* key : {"measure", "threshold", "floor", "detectable", "effect", "values"})
    out[key] = parts.empty() ? ordered_json() : parts[result.decides][key];
  out["verdict"] = to_json(result.verdict);
  out["decides"] = result.decides;
  out["note"] = claim.note;
  out["parts"] = parts;
  out["sensitivity"] = sensitivity;
  return out;
}

}  // namespace unchain::study
