// What commands share that run as several ranks of an mpirun.
#pragma once

#include <functional>

#include "cli/options.h"
#include "dist/comm.h"

namespace unchain::cli {

// Calls body for this rank: `common` with its share of the machine's threads unless --threads or OMP_NUM_THREADS says
// otherwise, and --json for the first rank alone. One rank's failure ends all, with its message and exit status.
void run_as_ranks(const Common& common, const std::function<void(dist::Comm&, const Common&)>& body);

}  // namespace unchain::cli
