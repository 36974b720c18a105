// A study's runs by member: what its table shows (docs/study.md).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "study/claims.h"
#include "study/statistics.h"

namespace unchain::study {

// The mean over seeds and its interval of Student's t; with one seed that over its questions, or none.
struct Figure {
  double mean = 0;
  std::optional<Interval> interval;
};

// One member at one size of a track. Runs that failed are in no mean.
struct MemberSummary {
  std::string track, size, member;
  int64_t seeds = 0, failed = 0;
  std::optional<int64_t> parameters;
  std::optional<double> to_softmax;                // parameters / softmax's there − 1
  std::optional<Figure> loss_nats, bits_per_byte;  // only of tracks whose loss the claims ask for: others saw no text
  std::optional<Figure> needle_accuracy;           // of the rung that is judged; intervals cut at 0 and 1
  std::optional<double> needle_chance;
  std::optional<double> tokens_per_s, analysis_seconds;  // medians
};

// `runs` are results (docs/study.md), pilots among them left out; members in the order of their first runs.
std::vector<MemberSummary> summarize(const std::vector<nlohmann::ordered_json>& runs, const Claims& claims);

}  // namespace unchain::study
