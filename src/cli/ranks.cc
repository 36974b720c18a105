#include "cli/ranks.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cli/program.h"
#include "unchain/error.h"

namespace unchain::cli {
namespace {

// The processors that a rank may run on.
struct Place {
  int processors = 0;
  int64_t ranks = 0;  // as many have the very same ones, this rank among them
};

// To be called by all ranks. mpirun may have bound each to processors of its own, or several to the same, and may run
// on a part of the machine itself: ranks share what they all may use, and only that.
Place find_place(dist::Comm& comm) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  std::string name(256, '\0');
  ::gethostname(name.data(), name.size() - 1);
  name.append(reinterpret_cast<const char*>(&allowed), sizeof allowed);
  const auto own = static_cast<double>(std::hash<std::string>()(name) >> 11);  // 53 bits, which a double holds
  std::vector<double> all(static_cast<size_t>(comm.ranks()));
  all[static_cast<size_t>(comm.rank())] = own;
  comm.sum(all);
  return {known ? CPU_COUNT(&allowed) : static_cast<int>(std::thread::hardware_concurrency()),
          std::min<int64_t>(std::count(all.begin(), all.end(), own), comm.local_ranks())};
}

int threads_of_a_rank(const dist::Comm& comm, const Place& place) {
  const auto threads = static_cast<int>(place.processors / place.ranks);
  const auto share = static_cast<int>(std::thread::hardware_concurrency() / comm.local_ranks());
  if (place.ranks < comm.local_ranks() && threads < share && comm.rank() == 0) {
    std::fprintf(stderr, "note: mpirun binds each rank to %d of its %d processors; give mpirun --bind-to none\n",
                 threads, share);
  }
  return std::max(1, threads);
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
  try {
    const Place place = find_place(*comm);  // by all ranks, also where one is told a number and another is not
    if (own.threads == 0 && std::getenv("OMP_NUM_THREADS") == nullptr) own.threads = threads_of_a_rank(*comm, place);
    body(*comm, own);
  } catch (const Error& error) {
    abort_all(*comm, error.what(), exit_status(error.code()));
  } catch (const std::exception& error) {
    abort_all(*comm, error.what(), exit_status(ErrorCode::internal));
  }
}

}  // namespace unchain::cli
