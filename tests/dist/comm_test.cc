// The sums and messages of ranks.
#include "dist/comm.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/mpirun.h"
#include "unchain/error.h"

namespace unchain::test {
namespace {

TEST(Comm, ARankAloneChangesNothing) {
  const auto comm = dist::alone();
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->ranks(), 1);
  EXPECT_EQ(comm->local_ranks(), 1);
  std::vector<float> values = {1, 2};
  comm->sum(std::span(values));
  EXPECT_EQ(values, (std::vector<float>{1, 2}));
  comm->broadcast(std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::vector<float>{1, 2}));
  comm->barrier();
  EXPECT_EQ(dist::connect()->ranks(), 1);
}

// What each process of the tests below does.
TEST(CommRank, DISABLED_Works) {
  const auto comm = dist::connect();
  const int64_t ranks = comm->ranks();
  ASSERT_EQ(ranks, 3);
  ASSERT_EQ(comm->local_ranks(), 3);
  std::vector<float> values((1 << 24) + 5);  // more than one message
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i % 7) * (1 + comm->rank()));
  comm->sum(std::span(values));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(6 * (i % 7)));
  std::vector<double> numbers = {0.1 * static_cast<double>(comm->rank() + 1)};
  comm->sum(std::span(numbers));
  EXPECT_DOUBLE_EQ(numbers[0], 0.6);
  comm->sum(std::span<double>());
  uint64_t number = 42 + static_cast<uint64_t>(comm->rank());
  comm->broadcast(std::as_writable_bytes(std::span(&number, 1)));
  EXPECT_EQ(number, 42u);
  comm->barrier();
}

TEST(CommRank, DISABLED_Aborts) {
  const auto comm = dist::connect();
  if (comm->rank() == 1) comm->abort(5);
  comm->barrier();  // never comes
}

TEST(Comm, SeveralProcessesAddUpAndEndTogether) {
  if (!find_mpirun()) return;
  EXPECT_EQ(under_mpirun(3, "CommRank.DISABLED_Works"), 0);
  EXPECT_EQ(under_mpirun(3, "CommRank.DISABLED_Aborts"), 5);
}

}  // namespace
}  // namespace unchain::test
