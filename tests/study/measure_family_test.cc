// Every member of the family is measured: all numbers are finite, and what is of a noise term is absent where none is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include "model/model_file.h"
#include "study/measure_model.h"
#include "support/family_model.h"
#include "support/temporary_folder.h"

namespace unchain::study {
namespace {

// All presets, those that analyses are held against by hand and the others; diff_v1 with heads added, not halved; and
// fixed_diff with rows of a map.
std::vector<std::string> family() {
  std::vector<std::string> all = {"diff_v1, added", "fixed_diff, calibrated"};
  std::istringstream names(attention::preset_names());
  for (std::string name; names >> name;) {
    std::erase(name, ',');
    all.push_back(name);
  }
  return all;
}

// Two layers whose vocabulary is that of the tokenizer gemma_like.
model::Config member_config(const std::string& member) {
  model::Config config = test::family_config(member);
  config.vocabulary = 700;
  config.context = 128;
  if (member.ends_with(", added")) config.attention.accounting = attention::Accounting::added;
  return config;
}

std::vector<int32_t> random_ids(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(10 + static_cast<int32_t>(rng.below(20)));
  return ids;
}

void expect_measured(const std::string& member) {
  const test::TemporaryFolder folder;
  const model::Config config = member_config(member);
  model::Trainable trainable(config, DType::f32, 1);
  test::stir(trainable);
  test::write_folder(folder / "m", trainable);
  const std::filesystem::path tokenizers = std::filesystem::path(UNCHAIN_TEST_DATA) / "tokenizer";
  std::filesystem::copy_file(tokenizers / "gemma_like.json", folder / "m" / "tokenizer.json");
  write_text(folder / "m" / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  MeasureInputs in;
  in.model = model::load(folder / "m", DType::f32);
  in.bos = 1;
  in.texts = {random_ids(80, 1), random_ids(80, 2)};
  in.calibration = random_ids(160, 3);
  in.context = 40;
  in.keys.windows = 2;
  in.keys.calibration_windows = 4;
  eval::NeedleOptions needle;
  needle.form = text::NeedleForm::pair;
  needle.lengths = {60};
  needle.depths = {0, 1};
  needle.needles = 2;
  needle.samples = 2;
  Measures measures;
  const auto tokenizer = model::ModelFile::open(folder / "m").tokenizer();
  ask_rungs(in, *tokenizer, &trainable, {needle}, measures);
  const auto shown = measure_model(in, &trainable, measures);

  const bool noise = config.attention.noise != attention::NoiseMap::none;
  const std::set<std::string> of_noise = {"a1_removes_share",    "lambda_used",          "lambda_projected",
                                          "loss_fixed_a2_nats",  "loss_masked_a2_nats",  "loss_rows_a2_nats",
                                          "noise_removes_share", "random_removes_share", "terms_cosine"};
  size_t found = 0;
  for (const auto& [name, measured] : measures) {
    SCOPED_TRACE(name);
    if (name.starts_with("a2_") || name.starts_with("log_a2_") || of_noise.contains(name)) {
      EXPECT_EQ(measured.value.has_value(), noise);
      found += of_noise.contains(name);
    } else if (name !=
               "key_mass_auc") {  // which takes right answers and wrong ones, and these models give no right ones
      EXPECT_TRUE(measured.value.has_value());
    }
    EXPECT_TRUE(!measured.value || std::isfinite(*measured.value));
    for (const auto& text : measured.windows)
      for (const Window& window : text)
        for (const double value : window) EXPECT_TRUE(std::isfinite(value));
  }
  EXPECT_EQ(found, of_noise.size());
  EXPECT_GT(measures.size(), 50u);
  EXPECT_EQ(shown["curves"]["rank_of_a2"].empty(), !noise);
  EXPECT_EQ(shown["curves"].contains("lambda"), noise);
  for (const char* key : {"gain_nats", "a2_rank", "lambda", "lambda_projected"})
    for (const auto& layer : shown["layers"][key]) EXPECT_EQ(layer.is_number(), noise) << key;
}

TEST(SlowMeasureFamily, EveryMemberIsMeasured) {
  const auto members = family();
  EXPECT_GE(members.size(), 13u);
  for (const std::string& member : members) {
    SCOPED_TRACE(member);
    expect_measured(member);
  }
}

}  // namespace
}  // namespace unchain::study
