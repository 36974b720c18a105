#include <cstdlib>

#include "dist/comm.h"

namespace unchain::dist {
namespace {

class Single : public Comm {
 public:
  int64_t rank() const override { return 0; }
  int64_t ranks() const override { return 1; }
  int64_t local_ranks() const override { return 1; }
  void sum(std::span<float>) override {}
  void sum(std::span<double>) override {}
  void broadcast(std::span<std::byte>) override {}
  void barrier() override {}
  void abort(int status) override { std::_Exit(status); }
};

}  // namespace

std::unique_ptr<Comm> alone() {
  return std::make_unique<Single>();
}

}  // namespace unchain::dist
