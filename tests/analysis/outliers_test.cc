#include "analysis/outliers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/loaded_family.h"
#include "ref/projection.h"
#include "ref/rms_norm.h"
#include "support/attention_case.h"
#include "support/compare.h"

namespace unchain::test {
namespace {

using namespace analysis;

TEST(Outliers, OfNumbersByHand) {
  // Medians of |a|: 2 (of 1 2 3), 5 (of 4 5 100), 1 (of 0 1 2), 4 (of 3 4 9); of those (2 + 4)/2.
  std::vector<float> a = {1, -2, 3, -100, 4, 5, 0, 1, 2, 9, 3, -4};
  OutlierSearch search, pieces;
  search.add(Matrix(a.data(), 4, 3));
  pieces.add(Matrix(a.data(), 1, 3));
  pieces.add(Matrix(a.data() + 3, 3, 3));
  for (const Outlier& found : {search.result(), pieces.result()}) {
    EXPECT_EQ(found.largest, 100);
    EXPECT_EQ(found.position, 1);
    EXPECT_EQ(found.channel, 0);
    EXPECT_EQ(found.typical, 3);
    EXPECT_DOUBLE_EQ(found.ratio(), 100.0 / 3);
  }
  std::vector<float> even = {1, -4, 2, 8};
  OutlierSearch row;
  row.add(Matrix(even.data(), 1, 4));
  EXPECT_EQ(row.result().typical, 3) << "the mean of the middle two";
}

// max |a| and the median of the rows' medians, by sorting.
std::pair<double, double> sorted(const std::vector<double>& a, size_t width) {
  const auto middle = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
  };
  std::vector<double> medians;
  double largest = 0;
  for (size_t at = 0; at < a.size(); at += width) {
    std::vector<double> row;
    for (size_t i = at; i < at + width; ++i) row.push_back(std::abs(a[i]));
    largest = std::max(largest, *std::max_element(row.begin(), row.end()));
    medians.push_back(middle(row));
  }
  return {largest, middle(medians)};
}

TEST(Outliers, OfAModelsStreamAndLogits) {
  for (const std::string member : {"softmax", "diff_v1", "lowrank_diff"}) {
    // One large number of the embedding shows before the first layer.
    const LoadedFamily family(family_config(member), [](const std::string& name, std::span<float> values) {
      if (name == "model.embed_tokens.weight") values[17 * 24 + 5] = -40;
    });
    auto ids = token_ids(60);
    std::replace(ids.begin(), ids.end(), 17, 18);
    ids[33] = 17;
    model::Context context(family.model, 70);
    context.extend(std::vector<int32_t>{1, 2, 3});
    const Outliers found = activation_outliers(context, ids);
    ASSERT_EQ(found.hidden.size(), 3u);
    std::vector<double> embedding;
    for (const int32_t id : ids) {
      const auto row = family.weights.at("model.embed_tokens.weight").begin() + id * 24;
      embedding.insert(embedding.end(), row, row + 24);
    }
    EXPECT_EQ(found.hidden[0].largest, 40);
    EXPECT_EQ(found.hidden[0].typical, sorted(embedding, 24).second);
    EXPECT_EQ(found.hidden[0].position, 33);
    EXPECT_EQ(found.hidden[0].channel, 5);
    const auto logits = widen(logits_with(family, ids));
    const auto [largest, typical] = sorted(logits, 50);
    EXPECT_NEAR(found.logits.largest, largest, 1e-5 * largest);  // sums in f32, in another order
    EXPECT_NEAR(found.logits.typical, typical, 1e-5 * largest);
    EXPECT_NEAR(std::abs(logits[static_cast<size_t>(found.logits.position * 50 + found.logits.channel)]), largest,
                1e-5 * largest);
    // Behind the last layer: what norm and vocabulary make logits of.
    const Matrix last = context.hidden(0, 60);
    const std::vector<double> hidden(last.f32(), last.f32() + 60 * 24);
    EXPECT_EQ(found.hidden[2].largest, sorted(hidden, 24).first);
    EXPECT_EQ(found.hidden[2].typical, sorted(hidden, 24).second);
    const auto expected = ref::project(ref::rms_norm(hidden, family.weights.at("model.norm.weight"), 60, 24, 1e-5),
                                       family.weights.at("lm_head.weight"), 60, 50, 24);
    EXPECT_TRUE(close(expected, logits, 1e-5 * largest));
  }
}

TEST(Outliers, Errors) {
  expect_error([] { OutlierSearch().result(); }, ErrorCode::usage, {"no activations"});
  std::vector<float> bad = {1, 2, 3, NAN};
  expect_error([&] { OutlierSearch().add(Matrix(bad.data(), 2, 2)); }, ErrorCode::numeric, {"position 1", "channel 1"});
  const LoadedFamily family(family_config("softmax"));
  model::Context context(family.model, 5);
  expect_error([&] { activation_outliers(context, {}); }, ErrorCode::usage, {"no activations"});
  context.extend(std::vector<int32_t>{1, 2, 3}, 2);
  expect_error([&] { context.hidden(1, 2); }, ErrorCode::usage, {"1 to 3", "2 kept"});
}

}  // namespace
}  // namespace unchain::test
