// Every tiny golden model in every form that its folder holds: config.json with either spelling of the rope keys, GGUF.
#include <gtest/gtest.h>

#include <cmath>

#include "base/thread.h"
#include "support/compare.h"
#include "support/golden_model.h"

namespace unchain::test {
namespace {

using model::load;
using model::ModelFile;

// The agreed limit: 1e-4 of the largest logit. Ours is within 1e-5 on all of them; the references are good to 4e-6.
void expect_golden(const Golden& golden, const std::filesystem::path& path) {
  SCOPED_TRACE(path.filename().string());
  const auto model = load(ModelFile::open(path), DType::f32);
  const auto logits = logits_of(model, golden.ids);
  const auto vocabulary = static_cast<size_t>(model->config.vocabulary);
  ASSERT_GE(golden.logits.size(), 3u);
  for (const auto& [position, expected] : golden.logits) {
    SCOPED_TRACE(testing::Message() << "position " << position);
    const auto begin = logits.begin() + position * static_cast<int64_t>(vocabulary);
    const std::vector<float> row(begin, begin + static_cast<int64_t>(vocabulary));
    EXPECT_TRUE(close(row, expected, 1e-4 * golden.largest_logit));
  }
  EXPECT_NEAR(mean(nll_of(model, golden.ids)), golden.mean_nll, 1e-4);
}

TEST(GoldenModels, AllAreThere) {
  const auto goldens = all_goldens();
  EXPECT_GE(goldens.size(), 12u);
  for (const Golden& golden : goldens) EXPECT_EQ(golden.ids.size(), 70u) << golden.name;
}

TEST(GoldenModels, Folders) {
  for (const int count : {1, 2}) {
    set_threads(count);
    for (const Golden& golden : all_goldens()) expect_golden(golden, golden.folder);
  }
  set_threads(0);
}

TEST(GoldenModels, GgufFiles) {
  int found = 0;
  for (const Golden& golden : all_goldens()) {
    if (!std::filesystem::exists(golden.folder / "model.gguf")) continue;
    SCOPED_TRACE(golden.name);
    expect_golden(golden, golden.folder / "model.gguf");
    ++found;
  }
  EXPECT_GE(found, 5);
}

TEST(GoldenModels, OtherSpellingsOfTheConfig) {
  int found = 0;
  for (const Golden& golden : all_goldens()) {
    if (!std::filesystem::exists(golden.folder / "other_config.json")) continue;
    TemporaryFolder copy;
    for (const auto& entry : std::filesystem::directory_iterator(golden.folder)) {
      if (entry.path().filename() != "config.json") std::filesystem::copy(entry.path(), copy.path());
    }
    std::filesystem::rename(copy / "other_config.json", copy / "config.json");
    SCOPED_TRACE(golden.name);
    expect_golden(golden, copy.path());
    ++found;
  }
  EXPECT_GE(found, 5);
}

TEST(GoldenModels, NoTensorIsLeftOver) {
  for (const Golden& golden : all_goldens()) {
    EXPECT_TRUE(ModelFile::open(golden.folder).unused_tensors().empty()) << golden.name;
  }
}

TEST(GoldenModels, ParametersAreCounted) {
  // llama_tied has one tensor for embedding and output; every number of a file is used exactly once.
  for (const Golden& golden : all_goldens()) {
    const ModelFile file = ModelFile::open(golden.folder);
    int64_t numbers = 0;
    for (const Tensor& tensor : file.tensors()) numbers += tensor.elements();
    EXPECT_EQ(load(file, DType::f32)->parameters(), numbers) << golden.name;
  }
}

TEST(GoldenModels, Bf16IsClose) {
  // Weights, activations and keys rounded to 8 bits in a few layers of wide random weights: a wrong path is off by the
  // size of the logits themselves. The bound is on the mean NLL, as for real models (1 % of the perplexity).
  for (const Golden& golden : all_goldens()) {
    SCOPED_TRACE(golden.name);
    const auto narrow = load(golden.folder, DType::bf16);
    EXPECT_EQ(narrow->dtype, DType::bf16);
    const auto logits = logits_of(narrow, golden.ids);
    const size_t vocabulary = static_cast<size_t>(narrow->config.vocabulary);
    double squares = 0, errors = 0;
    for (const auto& [position, expected] : golden.logits) {
      for (size_t i = 0; i < vocabulary; ++i) {
        const double error = static_cast<double>(logits[static_cast<size_t>(position) * vocabulary + i]) - expected[i];
        errors += error * error;
        squares += expected[i] * expected[i];
      }
    }
    const int64_t layers = narrow->config.layer_count();
    // Each layer rounds both sides of seven products, and query, keys, values and map: 18 roundings, of 2⁻⁸/√3 in the
    // mean square, that add up at random; two more for the output. Later layers may double what earlier ones leave.
    const double bound = 2 * std::sqrt((18.0 * static_cast<double>(layers) + 2) / 3) * 0x1p-8;
    RecordProperty(golden.name, std::to_string(std::sqrt(errors / squares)));
    EXPECT_LT(std::sqrt(errors / squares), bound);
  }
}

}  // namespace
}  // namespace unchain::test
