#include "cli/ranks.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "cli/program.h"
#include "unchain/error.h"

namespace unchain::cli {
namespace {

// The processors of this machine shared out among its ranks, but no more than mpirun lets this one use.
int threads_of_a_rank(const dist::Comm& comm) {
  const auto share = static_cast<int>(std::thread::hardware_concurrency() / comm.local_ranks());
  cpu_set_t allowed;
  const int bound = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : share;
  if (bound < share && comm.rank() == 0) {
    std::fprintf(stderr, "note: mpirun binds each rank to %d of its %d processors; give mpirun --bind-to none\n", bound,
                 share);
  }
  return std::max(1, std::min(share, bound));
}

// What fails on every rank is told by the first.
void abort_all(dist::Comm& comm, const std::string& message, int status) {
  if (comm.rank() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::fprintf(stderr, "unchain: rank %ld: %s\n", static_cast<long>(comm.rank()), message.c_str());
  std::fflush(stderr);
  comm.abort(status);
}

}  // namespace

void run_as_ranks(const Common& common, const std::function<void(dist::Comm&, const Common&)>& body) {
  const auto comm = dist::connect();
  if (comm->ranks() == 1) return body(*comm, common);
  Common own = common;
  if (comm->rank() > 0) own.json.clear();
  if (own.threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr) own.threads = threads_of_a_rank(*comm);
  try {
    body(*comm, own);
  } catch (const Error& error) {
    abort_all(*comm, error.what(), exit_status(error.code()));
  } catch (const std::exception& error) {
    abort_all(*comm, error.what(), exit_status(ErrorCode::internal));
  }
}

}  // namespace unchain::cli
