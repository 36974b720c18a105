// A differential model trained here is a folder that transformers reads (tests/golden/make_trained_golden.py): what is
// written today is still what it was shown, and gives the logits that it computed.
#include <gtest/gtest.h>

#include <cstring>

#include "model/save.h"
#include "support/compare.h"
#include "support/golden_model.h"
#include "train/checkpoint.h"
#include "train/train_support.h"

namespace unchain::test {
namespace {

using nlohmann::json;

// config.json and model.safetensors say the same.
void expect_same_model(const std::filesystem::path& actual, const std::filesystem::path& expected) {
  EXPECT_EQ(json::parse(read_file(actual / "config.json")), json::parse(read_file(expected / "config.json")));
  const auto a = model::ModelFile::open(actual), e = model::ModelFile::open(expected);
  ASSERT_EQ(a.tensors().size(), e.tensors().size());
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    const Tensor &tensor = a.tensors()[i], &like = e.tensors()[i];
    EXPECT_EQ(tensor.name, like.name);
    EXPECT_EQ(tensor.type, like.type);
    EXPECT_EQ(tensor.shape, like.shape);
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, like.bytes)) << tensor.name;
  }
}

TEST(TrainedFolder, IsStillWhatTransformersWasShown) {
  const Golden golden = read_golden(tiny("diffllama_trained"));
  const auto shown = model::ModelFile::open(golden.folder);
  const auto learner = train::make_learner(shown.config(), DType::f32, 1, false);
  ASSERT_EQ(learner->parameters().size(), shown.tensors().size());
  for (const model::Parameter& p : learner->parameters()) {
    const auto tensor = std::ranges::find(shown.tensors(), p.name, &Tensor::name);
    ASSERT_NE(tensor, shown.tensors().end()) << p.name;
    ASSERT_EQ(tensor->bytes.size(), p.value.size_bytes()) << p.name;
    std::memcpy(p.value.data(), tensor->bytes.data(), p.value.size_bytes());
  }
  TemporaryFolder folder;
  train::save_model(folder / "trained", *learner, kVocabulary);
  expect_same_model(folder / "trained", golden.folder);
  model::save_folder(model::ModelFile::open(folder / "trained"), folder / "exported", {});
  expect_same_model(folder / "exported", golden.folder);
}

// 1e-5 of the largest logit is asked for; f32 itself is off by some 1e-6 of it (f32_difference in the golden).
TEST(TrainedFolder, GivesTheLogitsOfTransformers) {
  const Golden golden = read_golden(tiny("diffllama_trained"));
  const auto model = model::load(golden.folder, DType::f32);
  const auto logits = logits_of(model, golden.ids);
  ASSERT_EQ(golden.logits.size(), 3u);
  for (const auto& [position, expected] : golden.logits) {
    const auto begin = logits.begin() + position * model->config.vocabulary;
    EXPECT_TRUE(
        close(std::vector<float>(begin, begin + model->config.vocabulary), expected, 1e-5 * golden.largest_logit))
        << "position " << position;
  }
}

}  // namespace
}  // namespace unchain::test
