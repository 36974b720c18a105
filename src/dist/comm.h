// Several processes (ranks) that run the same program on parts of one job. One rank alone is the common case and costs
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace unchain::dist {

// All ranks call the same functions in the same order, from one thread. Errors of the transport: io.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t ranks() const = 0;
  // How many of the ranks share this machine.
  virtual int64_t local_ranks() const = 0;
  // Each number becomes its sum over all ranks, the same bits on every rank.
  virtual void sum(std::span<float> values) = 0;
  virtual void sum(std::span<double> values) = 0;
  // The bytes of rank 0 go to all.
  virtual void broadcast(std::span<std::byte> bytes) = 0;
  // Returns when all ranks have come here.
  virtual void barrier() = 0;
  // Ends the job on all ranks at once with this exit status: for a rank that cannot go on.
  [[noreturn]] virtual void abort(int status) = 0;
};

// The rank alone.
std::unique_ptr<Comm> alone();

// What this process was started as: a rank of an mpirun, else alone. To be called once; MPI is left when the object
// goes. Error: unsupported (several ranks, but this build has no MPI).
std::unique_ptr<Comm> connect();

}  // namespace unchain::dist
