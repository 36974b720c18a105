// Perplexity of each mode against sums of −log softmax in double, written out here.
#include "eval/perplexity.h"

#include <cmath>

#include "support/golden_model.h"

namespace unchain::test {
namespace {

TEST(Perplexity, IsTheMeanOfTheScoredTokens) {
  for (const char* name : {"llama_bias", "gemma3_window"}) {
    const Golden golden = read_golden(tiny(name));
    const auto model = model::load(golden.folder, DType::f32);
    for (const auto mode : {eval::WindowMode::disjoint, eval::WindowMode::sliding, eval::WindowMode::half}) {
      for (const int32_t bos : {-1, 1}) {
        SCOPED_TRACE(testing::Message() << name << " " << eval::to_string(mode) << " " << bos);
        eval::WindowOptions options;
        options.mode = mode;
        options.window = 16;
        const auto windows = eval::cut_windows(golden.ids, bos, options);
        double total = 0;
        int64_t scored = 0;
        std::vector<double> means;
        for (const eval::Window& window : windows) {
          const auto logits = logits_of(model, window.ids);
          const auto vocabulary = static_cast<size_t>(model->config.vocabulary);
          double sum = 0;
          for (size_t i = static_cast<size_t>(window.first_scored); i + 1 < window.ids.size(); ++i) {
            double exponentials = 0;
            for (size_t v = 0; v < vocabulary; ++v)
              exponentials += std::exp(static_cast<double>(logits[i * vocabulary + v]));
            sum += std::log(exponentials) -
                   static_cast<double>(logits[i * vocabulary + static_cast<size_t>(window.ids[i + 1])]);
          }
          means.push_back(sum / static_cast<double>(window.scored()));
          total += sum;
          scored += window.scored();
        }
        size_t calls = 0;
        const auto result = eval::perplexity(model, nullptr, windows, [&](size_t done, size_t all) {
          EXPECT_EQ(done, ++calls);
          EXPECT_EQ(all, windows.size());
        });
        EXPECT_EQ(calls, windows.size());
        EXPECT_EQ(result.tokens_scored, scored);
        EXPECT_NEAR(result.nll_nats, total / static_cast<double>(scored), 1e-5);
        EXPECT_NEAR(std::log(result.perplexity), result.nll_nats, 1e-12);
        EXPECT_TRUE(std::isnan(result.bits_per_byte));
        ASSERT_EQ(result.window_nll_nats.size(), means.size());
        for (size_t i = 0; i < means.size(); ++i) EXPECT_NEAR(result.window_nll_nats[i], means[i], 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace unchain::test
