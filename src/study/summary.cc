#include "study/summary.h"

#include <algorithm>

namespace unchain::study {
namespace {

using nlohmann::ordered_json;
using Runs = std::vector<const ordered_json*>;

std::vector<double> values_of(const Runs& runs, const char* key) {
  std::vector<double> values;
  for (const ordered_json* run : runs)
    if (const auto found = run->find(key); found != run->end() && found->is_number()) values.push_back(*found);
  return values;
}

std::optional<double> median_of(const Runs& runs, const char* key) {
  const std::vector<double> values = values_of(runs, key);
  return values.empty() ? std::nullopt : std::optional(quantile(values, 0.5));
}

std::optional<Figure> over_seeds(const std::vector<double>& values, double level) {
  if (values.empty()) return std::nullopt;
  return Figure{mean(values), t_interval(values, level)};
}

// Fills what is known of the needles.
void add_needles(MemberSummary& to, const Runs& runs, double level) {
  std::vector<double> accuracies;
  const ordered_json* last = nullptr;
  for (const ordered_json* run : runs) {
    if ((*run)["needle"].empty()) continue;
    last = &(*run)["needle"][0];
    accuracies.push_back((*last)["accuracy"]);
  }
  if (!last) return;
  to.needle_accuracy = over_seeds(accuracies, level);
  std::optional<Interval>& interval = to.needle_accuracy->interval;
  if (accuracies.size() == 1) interval = Interval{(*last)["low"], (*last)["high"]};
  interval = Interval{std::max(0.0, interval->low), std::min(1.0, interval->high)};
  to.needle_chance = (*last)["chance"].get<double>();
}

bool asks_loss_of(const Claims& claims, const std::string& track) {
  return std::ranges::any_of(claims.claims, [&](const Claim& claim) {
    return std::ranges::any_of(claim.parts,
                               [&](const Part& part) { return part.measure == "loss_nats" && part.track == track; });
  });
}

}  // namespace

std::vector<MemberSummary> summarize(const std::vector<ordered_json>& runs, const Claims& claims) {
  std::vector<MemberSummary> all;
  std::vector<Runs> runs_of;
  for (const ordered_json& run : runs) {
    if (run["pilot"].get<bool>()) continue;
    const auto same = [&](const MemberSummary& row) {
      return row.track == run["track"] && row.size == run["size"] && row.member == run["member"];
    };
    auto row = std::ranges::find_if(all, same);
    if (row == all.end()) {
      row = all.emplace(row);
      row->track = run["track"];
      row->size = run["size"];
      row->member = run["member"];
      runs_of.emplace_back();
    }
    if (run.contains("failed"))
      ++row->failed;
    else
      runs_of[static_cast<size_t>(row - all.begin())].push_back(&run);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    MemberSummary& row = all[i];
    const Runs& of = runs_of[i];
    row.seeds = static_cast<int64_t>(of.size());
    if (of.empty()) continue;
    row.parameters = (*of.front())["parameters"].get<int64_t>();
    if (asks_loss_of(claims, row.track)) {
      row.loss_nats = over_seeds(values_of(of, "loss_nats"), claims.level);
      row.bits_per_byte = over_seeds(values_of(of, "bits_per_byte"), claims.level);
    }
    add_needles(row, of, claims.level);
    row.tokens_per_s = median_of(of, "tokens_per_s");
    row.analysis_seconds = median_of(of, "analysis_seconds");
  }
  for (MemberSummary& row : all) {
    const auto twin = std::ranges::find_if(all, [&](const MemberSummary& other) {
      return other.member == "softmax" && other.size == row.size && other.track == row.track && other.parameters;
    });
    if (twin != all.end() && row.parameters)
      row.to_softmax = static_cast<double>(*row.parameters) / static_cast<double>(*twin->parameters) - 1;
  }
  return all;
}

}  // namespace unchain::study
