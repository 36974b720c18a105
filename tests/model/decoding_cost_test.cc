#include "model/decoding_cost.h"

#include <gtest/gtest.h>

#include "model/model_file.h"
#include "support/family_model.h"
#include "support/temporary_folder.h"

namespace unchain::model {
namespace {

DecodingCost cost_of(const std::string& member, int64_t tokens) {
  Trainable trainable(test::family_config(member), DType::f32, 1);
  const test::TemporaryFolder folder;
  test::write_folder(folder / "m", trainable);
  return decoding_cost(*load(folder / "m", DType::f32), tokens);
}

// The table of docs/relations.md: two layers of H = 8 heads on G = 4 groups, E = W = 6, after 10 tokens.
TEST(DecodingCost, IsThatOfTheTable) {
  constexpr int64_t kLayers = 2, kHeads = 8, kGroups = 4, kWidth = 6, kTokens = 10;
  constexpr int64_t kCache = kLayers * kGroups * 2 * kWidth * kTokens;
  constexpr int64_t kWork = kLayers * kHeads * 2 * kWidth * kTokens;
  for (const char* member : {"softmax", "diff_v1", "diff_v2", "gated", "lowrank_diff", "fixed_diff"}) {
    EXPECT_EQ(cost_of(member, kTokens).cache_numbers, kCache) << member;
  }
  EXPECT_EQ(cost_of("softmax", kTokens).multiply_adds, kWork);
  EXPECT_EQ(cost_of("diff_v1", kTokens).multiply_adds, kWork);
  EXPECT_EQ(cost_of("diff_v2", kTokens).multiply_adds, kLayers * kHeads * 3 * kWidth * kTokens);
  EXPECT_EQ(cost_of("softmax", kTokens).state_numbers, 0);
  for (const int64_t tokens : {int64_t{1}, kTokens, 1000 * kTokens}) {
    const DecodingCost learned = cost_of("lowrank_diff", tokens), fixed = cost_of("fixed_diff", tokens),
                       plain = cost_of("softmax", tokens);
    EXPECT_EQ(learned.state_numbers, kLayers * kHeads * 4 * (kWidth + 1));
    EXPECT_EQ(learned.multiply_adds - plain.multiply_adds, kLayers * kHeads * 4 * 3 * kWidth);
    EXPECT_EQ(fixed.state_numbers, kLayers * kHeads * 5 * kWidth);
    EXPECT_EQ(fixed.multiply_adds - plain.multiply_adds, kLayers * kHeads * 5 * 2 * kWidth);
  }
  test::expect_error([] { cost_of("softmax", 0); }, ErrorCode::usage, {"0 tokens"});
}

}  // namespace
}  // namespace unchain::model
