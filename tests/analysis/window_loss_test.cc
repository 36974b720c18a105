#include "analysis/window_loss.h"

#include <gtest/gtest.h>

#include "analysis/loaded_family.h"
#include "support/attention_case.h"

namespace unchain::test {
namespace {

using namespace analysis;

// NLL of rows 0 … n − 2 in double from f32 logits of about 5.
std::vector<double> losses(const LoadedFamily& family, const std::vector<int32_t>& ids,
                           std::vector<attention::Editor*> editors = {}) {
  const auto logits = logits_with(family, ids, std::move(editors));
  std::vector<double> nll;
  for (size_t i = 0; i + 1 < ids.size(); ++i) nll.push_back(nll_from_logits(logits, ids, i));
  return nll;
}

double total(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum;
}

constexpr double kTolerance = 1e-5;  // two orders of f32 sums in logits of about 5

struct Silence : attention::Editor {
  void edit_outputs(attention::OutputPanel& panel) override {
    for (int64_t r = 0; r < panel.rows; ++r)
      std::fill_n(panel.output + r * panel.row_stride, panel.heads * panel.value_width, 0.0f);
  }
};

TEST(WindowLoss, IsTheMeanOverTokensOfAllWindows) {
  const LoadedFamily family(family_config("diff_v1"));
  const TokenWindows windows = {token_ids(40), token_ids(2, 5), token_ids(23, 6)};
  WindowLoss loss(family.model, windows);
  EXPECT_EQ(loss.windows(), 3u);
  Silence silence;
  for (const std::vector<attention::Editor*>& editors : {std::vector<attention::Editor*>{}, {&silence}}) {
    double sum = 0;
    for (size_t w = 0; w < 3; ++w) {
      const auto nll = losses(family, windows[w], editors);
      sum += total(nll);
      EXPECT_NEAR(*loss.of_window(w, {{}, editors}), total(nll) / static_cast<double>(nll.size()), kTolerance) << w;
    }
    EXPECT_NEAR(loss.mean({{}, editors}), sum / (39 + 1 + 22), kTolerance);
  }
  EXPECT_GT(std::abs(loss.mean({}) - loss.mean({{}, {&silence}})), 1e-2);
}

TEST(WindowLoss, InductionCountsOnlyRowsWithATarget) {
  const LoadedFamily family(family_config("diff_v1"));
  // Row i has a target if the pair (i, i + 1) stood before it: rows 4 (5 6), 5 (6 7) and 8 (5 6).
  const std::vector<int32_t> ids = {5, 6, 7, 1, 5, 6, 7, 9, 5, 6}, none = {1, 2, 3, 4, 2, 1};
  WindowLoss loss(family.model, {ids, none});
  const auto nll = losses(family, ids);
  EXPECT_NEAR(*loss.of_window(0, {}, Scored::induction), (nll[4] + nll[5] + nll[8]) / 3, kTolerance);
  EXPECT_FALSE(loss.of_window(1, {}, Scored::induction));
}

TEST(WindowLoss, Errors) {
  const LoadedFamily family(family_config("softmax"));
  expect_error([&] { WindowLoss(family.model, {}); }, ErrorCode::usage, {"no window"});
  expect_error([&] { WindowLoss(family.model, {{1, 2}, {3}}); }, ErrorCode::usage, {"window 1", "1 tokens"});
  WindowLoss loss(family.model, {{1, 99, 2}});
  expect_error([&] { loss.mean({}); }, ErrorCode::usage, {"token 99"});
}

}  // namespace
}  // namespace unchain::test
