// The list of what is measured of a head's map: one line a measure, from which the names in results.json, the choice by
// `--metrics` and the summaries follow. Definitions: docs/measures.md.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unchain::analysis {

// The five ranks stand together, in the order of RankMeasures, wherever they occur.
enum class Measure : uint8_t {
  entropy,
  entropy_normalised,
  entropy_clipped,
  rank_entropy,
  rank_entropy_squared,
  rank_stable,
  rank_r90,
  rank_r99,
  block_rank_entropy,
  block_rank_entropy_squared,
  block_rank_stable,
  block_rank_r90,
  block_rank_r99,
  uniform_rank_entropy,
  uniform_rank_entropy_squared,
  uniform_rank_stable,
  uniform_rank_r90,
  uniform_rank_r99,
  permuted_rank_entropy,
  permuted_rank_entropy_squared,
  permuted_rank_stable,
  permuted_rank_r90,
  permuted_rank_r99,
  row_sum,
  sink_mass,
  sink_mass_value_weighted,
  row_sum_without_first,
  top_mass_1,
  top_mass_5,
  top_mass_20,
  sparsity,
  context_rms,
  negative_share,
  negative_mass,
  induction_mass,
};
inline constexpr size_t kMeasureCount = static_cast<size_t>(Measure::induction_mass) + 1;

// Measures that need the same work belong to one group.
enum class MeasureGroup : uint8_t { rows, rank, block, references, redundancy };

struct MeasureInfo {
  std::string_view name;
  MeasureGroup group;
  bool of_parts;  // also measured of the positive map A1 and the noise map A2, where there is one
};

const MeasureInfo& info(Measure measure) noexcept;

// One value a measure; absent where the measure does not apply.
using Values = std::array<std::optional<double>, kMeasureCount>;
inline std::optional<double>& at(Values& values, Measure m) {
  return values[static_cast<size_t>(m)];
}
inline const std::optional<double>& at(const Values& values, Measure m) {
  return values[static_cast<size_t>(m)];
}

// Which measures to take. Layer-wide ones (lambda always; cosine_distance, cka) follow `redundancy`.
struct Selection {
  std::bitset<kMeasureCount> measures = std::bitset<kMeasureCount>().set();
  bool redundancy = true;

  bool has(Measure m) const { return measures[static_cast<size_t>(m)]; }
  bool has(MeasureGroup group) const;
};

// The selection that these words make together: names of measures, of groups (rows, rank, block, references,
// redundancy) or "all"; no words: all. Error: usage, listing the words.
Selection parse_selection(const std::vector<std::string>& words);

}  // namespace unchain::analysis
