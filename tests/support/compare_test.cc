// A comparator that cannot fail proves nothing: each way of being wrong must be seen.
#include "support/compare.h"

#include <limits>
#include <string>

namespace unchain::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

TEST(Compare, AcceptsWhatIsWithinTheTolerance) {
  EXPECT_TRUE(close(Floats{1, -2, 0}, Doubles{1.25, -2.25, 0}, 0.25));
  EXPECT_TRUE(close(Floats{}, Doubles{}, 0));
  EXPECT_TRUE(close(std::vector<bf16>{to_bf16(3)}, Doubles{3}, 0));
  EXPECT_TRUE(close_each(Floats{1, 2}, Doubles{1, 4}, Doubles{0, 2}));
}

TEST(Compare, SeesValuesThatAreTooFar) {
  EXPECT_FALSE(close(Floats{1, 2}, Doubles{1, 2.3}, 0.25));
  EXPECT_FALSE(close(Floats{-1, -2}, Doubles{-1, -3}, 0.5)) << "both negative";
  EXPECT_FALSE(close(Floats{2}, Doubles{-2}, 0.5)) << "sign flip";
  EXPECT_FALSE(close(Floats{-2e-3f}, Doubles{2e-3}, 1e-3)) << "sign flip of small numbers";
  EXPECT_FALSE(close_each(Floats{1, 2}, Doubles{1.5, 4}, Doubles{0, 2})) << "each entry has its own tolerance";
}

TEST(Compare, SeesWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(close(Floats{nan}, Doubles{1}, 1e9));
  EXPECT_FALSE(close(Floats{1}, Doubles{kNaN}, 1e9));
  EXPECT_FALSE(close(Floats{nan}, Doubles{kNaN}, 1e9));
  EXPECT_FALSE(close(Floats{inf}, Doubles{1}, 1e9));
  EXPECT_FALSE(close(Floats{inf}, Doubles{kInf}, 1e9));
  EXPECT_FALSE(close(Floats{inf}, Doubles{-kInf}, kInf));
  EXPECT_FALSE(close(Floats{1}, Doubles{1}, kNaN)) << "a tolerance that is NaN accepts nothing";
  EXPECT_FALSE(close(Floats{1}, Doubles{9}, kInf)) << "nor one that is infinite";
}

TEST(Compare, SeesWrongLengthsAndSharedMemory) {
  EXPECT_FALSE(close(Floats{1, 2}, Doubles{1}, 1));
  EXPECT_FALSE(close(Floats{1}, Doubles{1, 2}, 1));
  EXPECT_FALSE(close(Floats{}, Doubles{1}, 1));
  EXPECT_FALSE(close_each(Floats{1, 2}, Doubles{1, 2}, Doubles{1}));
  const Floats values = {1, 2, 3};
  const std::span<const float> all(values);
  EXPECT_FALSE(close(all, all, 0));
  EXPECT_FALSE(close(all.subspan(0, 2), all.subspan(1, 2), 9)) << "overlapping";
  EXPECT_FALSE(same_bits(values, values));
}

TEST(Compare, SaysWhereAndHowMuch) {
  const auto result = close(Floats{1, 2, 7}, Doubles{1, 2.5, 4}, 0.25);
  const std::string message = result.message();
  for (const char* part : {"2 of 3", "[2]", "7", "4", "error 3", "tolerance 0.25"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " is not in: " << message;
  }
}

TEST(Compare, SameBitsTellsZerosApart) {
  EXPECT_TRUE(same_bits(Floats{1, 2}, Floats{1, 2}));
  EXPECT_FALSE(same_bits(Floats{0.0f}, Floats{-0.0f}));
  EXPECT_FALSE(same_bits(Floats{1}, Floats{1, 2}));
}

}  // namespace
}  // namespace unchain::test
