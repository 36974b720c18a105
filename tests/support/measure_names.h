// What results.json promises of every head.
#pragma once

#include <string>
#include <vector>

namespace unchain::test {

inline std::vector<std::string> measure_names() {
  std::vector<std::string> names = {"entropy",
                                    "entropy_normalised",
                                    "row_sum",
                                    "sink_mass",
                                    "sink_mass_value_weighted",
                                    "row_sum_without_first",
                                    "top_mass_1",
                                    "top_mass_5",
                                    "top_mass_20",
                                    "sparsity",
                                    "context_rms",
                                    "negative_share",
                                    "negative_mass",
                                    "induction_mass"};
  for (const std::string place : {"", "block_", "uniform_", "permuted_"}) {
    for (const char* rank : {"rank_entropy", "rank_entropy_squared", "rank_stable", "rank_r90", "rank_r99"})
      names.push_back(place + rank);
  }
  return names;
}

}  // namespace unchain::test
