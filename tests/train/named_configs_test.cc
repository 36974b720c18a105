// Every model that configs/ describes can be built: its parameters beside those of softmax attention of its size.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "model/trainable.h"
#include "train/learner.h"
#include "train/run.h"

namespace unchain::test {
namespace {

namespace fs = std::filesystem;

// Pieces of the vocabulary that each size is meant for.
const std::map<std::string, int64_t> kSizes = {{"1m", 2048}, {"4m", 2048}, {"16m", 8192}, {"100m", 32768}};

model::Config config_of(const fs::path& path, int64_t pieces) {
  train::RunConfig config = train::read_config(path, {});
  return train::model_config(config, pieces);
}

// Without weights, so that the largest costs as little as the smallest. What a member adds or saves is small beside the
// model: up to 4 % less for shared_diff, whose maps share their projections, 8 % more for diff_v2 with its second
// queries.
TEST(NamedConfigs, EachIsAModelOfItsSize) {
  for (const auto& [size, pieces] : kSizes) {
    const fs::path folder = fs::path(UNCHAIN_SOURCE_DIR) / "configs" / size;
    const int64_t softmax = model::parameter_count(config_of(folder / "softmax.json", pieces));
    std::map<std::string, int64_t> counts;
    for (const auto& entry : fs::directory_iterator(folder)) {
      SCOPED_TRACE(entry.path().string());
      const std::string member = entry.path().stem();
      const model::Config config = config_of(entry.path(), pieces);
      EXPECT_EQ(config.attention.preset, member == "wide" ? "softmax" : member);
      const int64_t count = counts[member] = model::parameter_count(config);
      const double more = 100 * (static_cast<double>(count) / static_cast<double>(softmax) - 1);
      fmt::print("{}/{}: {} parameters, {:+.2f} % against softmax with {}\n", size, member, count, more, softmax);
      EXPECT_GE(more, -5);
      EXPECT_LE(more, 10);
    }
    EXPECT_EQ(counts.size(), 11u);
    // What these two are for.
    EXPECT_EQ(counts["off_by_one"], softmax);
    EXPECT_EQ(counts["wide"], counts["diff_v2"]);
  }
}

// With weights, at the size where these are quick to make.
TEST(NamedConfigs, TheSmallOnesAreBuilt) {
  for (const auto& entry : fs::directory_iterator(fs::path(UNCHAIN_SOURCE_DIR) / "configs/1m")) {
    SCOPED_TRACE(entry.path().string());
    const model::Config config = config_of(entry.path(), kSizes.at("1m"));
    const auto learner = train::make_learner(config, DType::f32, 0, false);
    int64_t count = 0;
    for (const model::Parameter& parameter : learner->parameters()) count += element_count(parameter.shape);
    EXPECT_EQ(count, model::parameter_count(config));
  }
}

}  // namespace
}  // namespace unchain::test
