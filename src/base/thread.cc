#include "base/thread.h"

#include <omp.h>

#include <algorithm>
#include <exception>

#include "base/check.h"

namespace unchain {

void set_threads(int threads) {
  if (threads < 0) fail(ErrorCode::usage, "--threads {}: expected 0 (all) or a positive number", threads);
  static const int all = omp_get_max_threads();  // before anybody has set it
  omp_set_num_threads(threads == 0 ? all : threads);
}

int threads() noexcept {
  return omp_get_max_threads();
}

int thread_index() noexcept {
  return omp_get_thread_num();
}

void parallel_for(int64_t count, const std::function<void(int64_t)>& body) {
  if (count <= 0) return;
  if (count == 1 || omp_in_parallel() || threads() == 1) {
    for (int64_t i = 0; i < count; ++i) body(i);
    return;
  }
  std::exception_ptr first;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < count; ++i) {
    try {
      body(i);
    } catch (...) {
#pragma omp critical(unchain_parallel_for_error)
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t parts = std::clamp<int64_t>(count / std::max<int64_t>(grain, 1), 1, threads());
  parallel_for(parts, [&](int64_t p) { body(count * p / parts, count * (p + 1) / parts); });
}

}  // namespace unchain
