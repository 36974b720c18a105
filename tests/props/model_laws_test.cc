// Laws of whole models: causality, and that it does not matter in which steps a text is read.
// Two ways of computing the same in f32 are each within 4e-6 of the largest logit of the exact result (`f32_difference`
// of the goldens, measured with another implementation), so they differ by 8e-6 at most: 1e-5.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/thread.h"
#include "support/compare.h"
#include "support/golden_model.h"
#include "support/random_values.h"

namespace unchain::test {
namespace {

using model::Context;
using model::load;
using model::Transformer;

struct Model {
  Golden golden;
  std::shared_ptr<const Transformer> weights;
  double tolerance;
};

std::vector<Model> models(DType dtype = DType::f32) {
  std::vector<Model> result;
  for (const char* name : {"llama_grouped", "llama_bias", "gemma3_window", "gemma3_kv2", "gemma3_softcap"}) {
    Model m{read_golden(tiny(name)), load(tiny(name), dtype), 0};
    m.tolerance = 1e-5 * m.golden.largest_logit;
    result.push_back(std::move(m));
  }
  return result;
}

std::vector<float> rows(const std::vector<float>& logits, int64_t vocabulary, int64_t first, int64_t count) {
  return {logits.begin() + first * vocabulary, logits.begin() + (first + count) * vocabulary};
}

TEST(ModelLaws, TheFutureChangesNothingEarlier) {
  for (const Model& m : models()) {
    SCOPED_TRACE(m.golden.name);
    const int64_t vocabulary = m.weights->config.vocabulary;
    const auto before = logits_of(m.weights, m.golden.ids);
    for (const int64_t at : {1, 20, 63, 64, 69}) {
      auto ids = m.golden.ids;
      for (size_t i = static_cast<size_t>(at); i < ids.size(); ++i) ids[i] = (ids[i] + 13) % 97;
      const auto after = logits_of(m.weights, ids);
      EXPECT_TRUE(same_bits(rows(after, vocabulary, 0, at), rows(before, vocabulary, 0, at)));
      EXPECT_FALSE(same_bits(after, before));
    }
  }
}

TEST(ModelLaws, ResumingFromAnySplitPoint) {
  for (const Model& m : models()) {
    SCOPED_TRACE(m.golden.name);
    const int64_t vocabulary = m.weights->config.vocabulary;
    const std::span<const int32_t> ids(m.golden.ids);
    const auto whole = logits_of(m.weights, m.golden.ids);
    for (size_t split = 1; split < ids.size(); ++split) {
      SCOPED_TRACE(split);
      Context context(m.weights, 70);
      context.extend(ids.first(split), 0);
      EXPECT_EQ(context.kept(), 0);
      context.extend(ids.subspan(split));
      const auto first = static_cast<int64_t>(split);
      EXPECT_TRUE(close(kept_logits(context), widen(rows(whole, vocabulary, first, 70 - first)), m.tolerance));
    }
    // In steps of one to five tokens, which takes the paths for few rows and for many.
    for (const size_t step : {1u, 2u, 3u, 4u, 5u}) {
      SCOPED_TRACE(step);
      Context context(m.weights, 70);
      for (size_t at = 0; at < ids.size(); at += step) {
        context.extend(ids.subspan(at, std::min(step, ids.size() - at)));
        EXPECT_TRUE(close(kept_logits(context),
                          widen(rows(whole, vocabulary, static_cast<int64_t>(at), context.kept())), m.tolerance));
      }
    }
  }
}

TEST(ModelLaws, TruncateAndContinue) {
  for (const Model& m : models()) {
    SCOPED_TRACE(m.golden.name);
    const std::span<const int32_t> ids(m.golden.ids);
    for (const size_t back : {0u, 1u, 17u, 39u, 40u}) {
      Context context(m.weights, 70), fresh(m.weights, 70);
      context.extend(ids.first(40));
      context.truncate(static_cast<int64_t>(back));
      EXPECT_EQ(context.position(), static_cast<int64_t>(back));
      // The other context never read what was taken back. Its rows are computed in other panels: equal to rounding.
      if (back > 0) fresh.extend(ids.first(back));
      context.extend(ids.subspan(30, 35 - 5));
      fresh.extend(ids.subspan(30, 35 - 5));
      EXPECT_TRUE(close(kept_logits(context), widen(kept_logits(fresh)), m.tolerance)) << back;
    }
  }
}

TEST(ModelLaws, KeepingTheLastRowsEqualsKeepingAll) {
  for (const Model& m : models()) {
    SCOPED_TRACE(m.golden.name);
    const int64_t vocabulary = m.weights->config.vocabulary;
    const auto whole = logits_of(m.weights, m.golden.ids);
    for (const int64_t keep : {1, 2, 4, 5, 64, 69, 70}) {
      Context context(m.weights, 70);
      context.extend(m.golden.ids, keep);
      EXPECT_EQ(context.kept(), keep);
      EXPECT_TRUE(close(kept_logits(context), widen(rows(whole, vocabulary, 70 - keep, keep)), m.tolerance));
    }
  }
}

TEST(ModelLaws, Bf16AgreesWithItselfInSteps) {
  // The paths for few and for many rows round different things to bf16: in the mean square as far apart as two bf16
  // forwards, √2 times the bound of tests/model/golden_test.cc for one.
  for (const Model& m : models(DType::bf16)) {
    SCOPED_TRACE(m.golden.name);
    const std::span<const int32_t> ids(m.golden.ids);
    const auto whole = logits_of(m.weights, m.golden.ids);
    const double layers = static_cast<double>(m.weights->config.layer_count());
    const double bound = std::sqrt(2) * 2 * std::sqrt((18 * layers + 2) / 3) * kEpsBf16;
    for (const size_t step : {1u, 3u, 33u}) {
      Context context(m.weights, 70);
      double errors = 0, squares = 0;
      size_t next = 0;
      for (size_t at = 0; at < ids.size(); at += step) {
        context.extend(ids.subspan(at, std::min(step, ids.size() - at)));
        for (const float z : kept_logits(context)) {
          const double expected = static_cast<double>(whole[next++]);
          errors += (static_cast<double>(z) - expected) * (static_cast<double>(z) - expected);
          squares += expected * expected;
        }
      }
      EXPECT_LT(std::sqrt(errors / squares), bound) << step;
    }
    Context last(m.weights, 70);
    last.extend(ids, 1);
    double errors = 0, squares = 0;
    const auto logits = kept_logits(last);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double expected = static_cast<double>(whole[whole.size() - logits.size() + i]);
      errors += (static_cast<double>(logits[i]) - expected) * (static_cast<double>(logits[i]) - expected);
      squares += expected * expected;
    }
    EXPECT_LT(std::sqrt(errors / squares), bound) << "only the last row";
  }
}

TEST(ModelLaws, ThreadsChangeNothing) {
  for (const Model& m : models()) {
    SCOPED_TRACE(m.golden.name);
    std::vector<std::vector<float>> results;
    for (const int count : {1, 1, 2, 2}) {
      set_threads(count);
      results.push_back(logits_of(m.weights, m.golden.ids));
    }
    set_threads(0);
    EXPECT_TRUE(same_bits(results[0], results[1])) << "one thread, twice";
    EXPECT_TRUE(same_bits(results[2], results[3])) << "two threads, twice";
    EXPECT_TRUE(close(results[0], widen(results[2]), m.tolerance)) << "one and two threads";
  }
}

}  // namespace
}  // namespace unchain::test
