// The one thread pool of the process: OpenMP, which oneDNN uses too.
#pragma once

#include <cstdint>
#include <functional>

namespace unchain {

// Sets the number of threads of all later parallel work; 0 means what OMP_NUM_THREADS says, or else one for each
// processor that the process may run on. Error: usage if negative.
void set_threads(int threads);

// The number of threads that parallel work uses now, at least 1.
int threads() noexcept;

// The calling thread's number within the pool, 0 … threads() − 1; 0 outside parallel work.
int thread_index() noexcept;

// Calls body(i) once for each i in [0, count), in parallel, each index taken by the next free thread. Inside another
// parallel region it runs serially. The first exception that a body throws is rethrown here after all threads are done.
void parallel_for(int64_t count, const std::function<void(int64_t)>& body);

// Like parallel_for, but in contiguous ranges of at least `grain` indices: body(begin, end).
void parallel_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace unchain
