// Runs a body once on every instruction set that this machine has and the kernels were compiled for.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "simd/kernels.h"

namespace unchain::test {

template <class Body>
void on_every_target(const Body& body) {
  int ran = 0;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    EXPECT_STREQ(simd::target_name(), hwy::TargetName(target)) << "the forced instruction set is not the one that runs";
    body();
    ++ran;
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  EXPECT_GE(ran, 1);
  testing::Test::RecordProperty("instruction_sets", ran);
}

}  // namespace unchain::test
