#include "analysis/calibrated_basis.h"

#include <gtest/gtest.h>

#include "analysis/low_rank.h"
#include "analysis/planted_maps.h"
#include "support/temporary_folder.h"

namespace unchain::analysis {
namespace {

// The basis is what the fit says, in f32, and knows no window.
TEST(CalibratedBasis, HoldsTheFitOfTheMean) {
  MeanMaps mean(24);
  show(plant(3, 2, 24, 1, true, 5), mean, 64);
  const CalibratedBasis basis = calibrated_basis(mean, 3, 2);
  EXPECT_EQ(basis.heads, 2);
  EXPECT_EQ(basis.tokens, 24);
  ASSERT_EQ(basis.u.size(), 2u * 24 * 2);
  ASSERT_EQ(basis.v.size(), basis.u.size());
  const Factors expected = LowRank(mean.mean(3, 1, MapValue::noise), 24, 0).fitted(2);
  for (size_t k = 0; k < 48; ++k) {
    EXPECT_EQ(basis.u[48 + k], static_cast<float>(expected.u[k]));
    EXPECT_EQ(basis.v[48 + k], static_cast<float>(expected.v[k]));
  }
  test::expect_error([&] { calibrated_basis(mean, 3, 0); }, ErrorCode::usage, {"rank 0"});
  test::expect_error([&] { calibrated_basis(mean, 2, 1); }, ErrorCode::usage, {"layer 2"});
  MeanMaps plain(24);
  show(plant(0, 2, 24, 1, false), plain, 64);
  test::expect_error([&] { calibrated_basis(plain, 0, 1); }, ErrorCode::usage, {"layer 0"});
}

}  // namespace
}  // namespace unchain::analysis
