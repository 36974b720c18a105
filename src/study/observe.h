// From the results of runs to what the judge reads.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "study/judge.h"

namespace unchain::study {

// Every measure that the claims name, of every run that is no pilot: out of "measures" of its result.json
// (carry_out()), of its needles or of its other figures. A measure that a run does not have is left out; a failed run
// has NaN for all. Sizes go by the fewest parameters of their runs.
Observations observe(const Claims& claims, const std::vector<nlohmann::ordered_json>& results);

}  // namespace unchain::study
