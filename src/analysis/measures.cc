#include "analysis/measures.h"

#include "base/check.h"

namespace unchain::analysis {
namespace {

constexpr auto kRows = MeasureGroup::rows;
constexpr auto kRank = MeasureGroup::rank;
constexpr auto kBlock = MeasureGroup::block;
constexpr auto kReferences = MeasureGroup::references;

constexpr std::array<MeasureInfo, kMeasureCount> kMeasures = {{
    {"entropy", kRows, true},
    {"entropy_normalised", kRows, true},
    {"entropy_clipped", kRows, false},
    {"rank_entropy", kRank, true},
    {"rank_entropy_squared", kRank, true},
    {"rank_stable", kRank, true},
    {"rank_r90", kRank, true},
    {"rank_r99", kRank, true},
    {"block_rank_entropy", kBlock, true},
    {"block_rank_entropy_squared", kBlock, true},
    {"block_rank_stable", kBlock, true},
    {"block_rank_r90", kBlock, true},
    {"block_rank_r99", kBlock, true},
    {"uniform_rank_entropy", kReferences, false},
    {"uniform_rank_entropy_squared", kReferences, false},
    {"uniform_rank_stable", kReferences, false},
    {"uniform_rank_r90", kReferences, false},
    {"uniform_rank_r99", kReferences, false},
    {"permuted_rank_entropy", kReferences, true},
    {"permuted_rank_entropy_squared", kReferences, true},
    {"permuted_rank_stable", kReferences, true},
    {"permuted_rank_r90", kReferences, true},
    {"permuted_rank_r99", kReferences, true},
    {"row_sum", kRows, true},
    {"sink_mass", kRows, true},
    {"sink_mass_value_weighted", kRows, true},
    {"row_sum_without_first", kRows, true},
    {"top_mass_1", kRows, true},
    {"top_mass_5", kRows, true},
    {"top_mass_20", kRows, true},
    {"sparsity", kRows, true},
    {"context_rms", kRows, true},
    {"negative_share", kRows, false},
    {"negative_mass", kRows, false},
    {"induction_mass", kRows, true},
}};

constexpr std::array<std::pair<std::string_view, MeasureGroup>, 4> kGroups = {
    {{"rows", kRows}, {"rank", kRank}, {"block", kBlock}, {"references", kReferences}}};

}  // namespace

const MeasureInfo& info(Measure measure) noexcept {
  return kMeasures[static_cast<size_t>(measure)];
}

bool Selection::has(MeasureGroup group) const {
  if (group == MeasureGroup::redundancy) return redundancy;
  for (size_t m = 0; m < kMeasureCount; ++m) {
    if (measures[m] && kMeasures[m].group == group) return true;
  }
  return false;
}

Selection parse_selection(const std::vector<std::string>& words) {
  if (words.empty()) return {};
  Selection selection{{}, false};
  for (const std::string& word : words) {
    if (word == "all") return {};
    bool known = word == "redundancy";
    selection.redundancy |= known;
    for (size_t m = 0; m < kMeasureCount; ++m) {
      bool chosen = word == kMeasures[m].name;
      for (const auto& [name, group] : kGroups) chosen |= word == name && kMeasures[m].group == group;
      if (!chosen) continue;
      selection.measures.set(m);
      known = true;
    }
    if (known) continue;
    std::string names = "all, redundancy";
    for (const auto& [name, group] : kGroups) names += fmt::format(", {}", name);
    for (const MeasureInfo& measure : kMeasures) names += fmt::format(", {}", measure.name);
    fail(ErrorCode::usage, "metrics: '{}' is no measure and no group of them; known are {}", word, names);
  }
  return selection;
}

}  // namespace unchain::analysis
