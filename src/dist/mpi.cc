// Ranks through MPI; without MPI at build time there is one rank only. Only functions of MPI 3 are used.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "dist/comm.h"

#ifdef UNCHAIN_MPI
#include <mpi.h>
#endif

namespace unchain::dist {
namespace {

// How many ranks the launcher says there are; 0 if no launcher started this process.
int64_t launched_ranks() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    const std::string_view text(value);
    int64_t ranks = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), ranks).ec == std::errc() && ranks > 0) return ranks;
  }
  return 0;
}

#ifdef UNCHAIN_MPI

constexpr size_t kMost = size_t{1} << 24;  // numbers in one call: MPI counts with an int, and buffers what it sends

void check(int result, const char* what) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail(ErrorCode::io, "MPI: {} failed: {}; see whether the other ranks are still there", what, text);
}

class Mpi : public Comm {
 public:
  Mpi() {
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), "MPI_Comm_size");
    MPI_Comm local = MPI_COMM_NULL;
    check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local), "MPI_Comm_split_type");
    check(MPI_Comm_size(local, &local_ranks_), "MPI_Comm_size");
    MPI_Comm_free(&local);
  }
  ~Mpi() override { MPI_Finalize(); }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  int64_t rank() const override { return rank_; }
  int64_t ranks() const override { return ranks_; }
  int64_t local_ranks() const override { return local_ranks_; }
  void sum(std::span<float> values) override { sum_of(values, MPI_FLOAT); }
  void sum(std::span<double> values) override { sum_of(values, MPI_DOUBLE); }
  void broadcast(std::span<std::byte> bytes) override {
    each_part(bytes, [](std::byte* data, int count) {
      check(MPI_Bcast(data, count, MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
    });
  }
  void barrier() override { check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); }
  void abort(int status) override {
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  template <class T, class Use>
  static void each_part(std::span<T> values, const Use& use) {
    for (size_t first = 0; first < values.size(); first += kMost)
      use(values.data() + first, static_cast<int>(std::min(kMost, values.size() - first)));
  }
  template <class T>
  static void sum_of(std::span<T> values, MPI_Datatype type) {
    each_part(values, [type](T* data, int count) {
      check(MPI_Allreduce(MPI_IN_PLACE, data, count, type, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
    });
  }

  int rank_ = 0, ranks_ = 1, local_ranks_ = 1;
};

#endif

}  // namespace

std::unique_ptr<Comm> connect() {
  const int64_t ranks = launched_ranks();
#ifdef UNCHAIN_MPI
  if (ranks > 0) return std::make_unique<Mpi>();
#else
  if (ranks > 1) {
    fail(ErrorCode::unsupported,
         "mpirun: started {} ranks, but this unchain was built without MPI; install libopenmpi-dev and build again, or "
         "run one process",
         ranks);
  }
#endif
  return alone();
}

}  // namespace unchain::dist
