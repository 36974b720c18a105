#include "eval/generate.h"

#include <cmath>
#include <limits>

#include "support/golden_model.h"

namespace unchain::test {
namespace {

using eval::sample;
using eval::SamplingOptions;

int32_t draw(const std::vector<float>& logits, double temperature, double top_p, uint64_t seed = 0) {
  Rng rng(seed);
  return sample(logits, {temperature, top_p}, rng);
}

TEST(Sample, GreedyTakesTheLargestAndTheLowestOfEquals) {
  EXPECT_EQ(draw({0.5f, 2, 2, -1}, 0, 1), 1);
  EXPECT_EQ(draw({-5}, 0, 1), 0);
}

TEST(Sample, FrequenciesAreTheProbabilities) {
  // softmax of log weights 1 : 2 : 5, and at temperature ½ the squares 1 : 4 : 25.
  const std::vector<float> logits = {0, std::log(2.0f), std::log(5.0f)};
  for (const auto& [temperature, expected] :
       {std::pair{1.0, std::vector{1 / 8., 2 / 8., 5 / 8.}}, std::pair{0.5, std::vector{1 / 30., 4 / 30., 25 / 30.}}}) {
    Rng rng(3);
    std::vector<double> counts(3);
    const int draws = 20000;
    for (int i = 0; i < draws; ++i) counts[static_cast<size_t>(sample(logits, {temperature, 1}, rng))] += 1;
    for (size_t i = 0; i < 3; ++i) {
      // Five standard deviations of a binomial share.
      EXPECT_NEAR(counts[i] / draws, expected[i], 5 * std::sqrt(expected[i] * (1 - expected[i]) / draws));
    }
  }
}

TEST(Sample, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  std::vector<int> seen(3), few(3);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_EQ(draw(logits, 1, 1e-9, seed), 1);
    EXPECT_EQ(draw(logits, 1, 0.4, seed), 1);
    ++few[static_cast<size_t>(draw(logits, 1, 0.7, seed))];
    ++seen[static_cast<size_t>(draw(logits, 1, 1, seed))];
  }
  EXPECT_EQ(few[0], 0);
  EXPECT_GT(few[2], 0);
  EXPECT_GT(seen[0], 0);
}

TEST(Sample, WhatCannotBe) {
  for (const double p : {0.0, -0.1, 1.0001, std::nan("")})
    expect_error([&] { draw({1, 2}, 1, p); }, ErrorCode::usage, {"--top-p"});
  for (const double t : {-1.0, std::nan(""), HUGE_VAL})
    expect_error([&] { draw({1, 2}, t, 1); }, ErrorCode::usage, {"--temperature"});
  expect_error([] { draw({}, 0, 1); }, ErrorCode::numeric, {"finite"});
  expect_error([] { draw({1, std::numeric_limits<float>::infinity()}, 1, 1); }, ErrorCode::numeric, {"finite"});
}

TEST(Generate, GreedyIsTheLargestLogitOfTheWholeText) {
  const Golden golden = read_golden(tiny("llama_grouped"));
  const auto model = model::load(golden.folder, DType::f32);
  model::Context context(model, 24);
  std::vector<int32_t> text(golden.ids.begin(), golden.ids.begin() + 8);
  const auto ids = eval::generate(context, text, 8, {}, 0, {}, [](int32_t) { return true; });
  ASSERT_EQ(ids.size(), 8u);
  for (const int32_t id : ids) {
    const auto logits = logits_of(model, text);
    const auto row = logits.end() - model->config.vocabulary;
    EXPECT_EQ(id, std::max_element(row, logits.end()) - row);
    text.push_back(id);
  }
  // A stop is not handed out, a callback may end the text.
  context.truncate(0);
  const std::vector<int32_t> prompt(golden.ids.begin(), golden.ids.begin() + 8);
  const auto first = static_cast<size_t>(std::find(ids.begin(), ids.end(), ids[3]) - ids.begin());
  EXPECT_EQ(eval::generate(context, prompt, 8, {}, 0, {ids[3]}, [](int32_t) { return true; }).size(), first);
  context.truncate(0);
  EXPECT_EQ(eval::generate(context, prompt, 8, {}, 0, {}, [](int32_t) { return false; }).size(), 1u);
  expect_error([&] { eval::generate(context, {}, 8, {}, 0, {}, [](int32_t) { return true; }); }, ErrorCode::usage,
               {"prompt"});
}

}  // namespace
}  // namespace unchain::test
