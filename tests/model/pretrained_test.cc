// SmolLM2-135M and Gemma-3-270M against the goldens of an independent f32 implementation, which a second one in f64
// confirms to 3e-5 on logits and 2e-6 on mean NLLs: 1e-3, 1e-4 and, on the perplexity, 0.01 leave room for f32 alone.
#include <cmath>

#include "model/context.h"
#include "model/model_file.h"
#include "support/compare.h"
#include "support/golden_model.h"
#include "support/pretrained.h"

namespace unchain::test {
namespace {

using model::load;
using model::Transformer;

class PretrainedModel : public Pretrained {
 protected:
  void expect_prompts(const std::shared_ptr<const Transformer>& model, const std::string& name) {
    const auto prompts = golden(name, "prompts").at("prompts");
    ASSERT_EQ(prompts.size(), 8u);
    for (const auto& prompt : prompts) {
      SCOPED_TRACE(prompt.at("name").get<std::string>());
      const auto ids = prompt.at("ids").get<std::vector<int32_t>>();
      model::Context context(model, static_cast<int64_t>(ids.size()) + 16);
      context.extend(ids);
      std::vector<float> logits(static_cast<size_t>(model->config.vocabulary));
      const Matrix last(logits.data(), 1, model->config.vocabulary);
      context.logits(last, context.kept() - 1, 1);
      const auto top = prompt.at("last_logits_top20").at("ids").get<std::vector<size_t>>();
      const auto values = prompt.at("last_logits_top20").at("values").get<std::vector<double>>();
      ASSERT_EQ(top.size(), 20u);
      std::vector<float> ours;
      double sum = 0, exponentials = 0;
      size_t above = 0;
      for (const size_t id : top) ours.push_back(logits[id]);
      for (const float z : logits) {
        sum += static_cast<double>(z);
        exponentials += std::exp(static_cast<double>(z));
        above += static_cast<double>(z) > values.back() + 1e-3;
      }
      EXPECT_TRUE(close(ours, values, 1e-3));
      EXPECT_LE(above, 19u) << "a logit outside the golden's largest 20 is above them";
      EXPECT_NEAR(std::log(exponentials), prompt.at("last_logsumexp").get<double>(), 1e-3);
      EXPECT_NEAR(sum, prompt.at("last_logits_sum").get<double>(), 1e-4 * static_cast<double>(logits.size()));
      std::vector<double> nll(ids.size() - 1);
      std::vector<int32_t> targets(ids.begin() + 1, ids.end());
      targets.push_back(-1);
      nll.resize(ids.size());
      context.nll(nll, targets);
      nll.pop_back();
      EXPECT_TRUE(close(nll, prompt.at("nll").get<std::vector<double>>(), 1e-3));
      EXPECT_NEAR(mean(nll), prompt.at("mean_nll").get<double>(), 1e-4);
      // Greedy tokens through the path for single tokens, where the golden's gap is above our error.
      if (prompt.at("greedy16").at("min_logit_gap").get<double>() < 5e-3) continue;
      for (const int32_t expected : prompt.at("greedy16").at("ids").get<std::vector<int32_t>>()) {
        const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        ASSERT_EQ(best, expected);
        context.extend(std::vector<int32_t>{best});
        context.logits(last, 0, 1);
      }
    }
  }

  // Mean NLLs of the eight chunks of 512; the largest difference to the goldens; the perplexity.
  double expect_chunks(const std::shared_ptr<const Transformer>& model, const nlohmann::json& expected,
                       double chunk_tolerance) {
    model::Context context(model, 512);
    double total = 0;
    EXPECT_EQ(expected.at("chunks").size(), 8u);
    for (const auto& chunk : expected.at("chunks")) {
      auto ids = chunk.at("ids").get<std::vector<int32_t>>();
      context.truncate(0);
      context.extend(ids);
      ids.erase(ids.begin());
      ids.push_back(-1);
      std::vector<double> nll(ids.size());
      context.nll(nll, ids);
      nll.pop_back();
      if (chunk_tolerance > 0) {
        EXPECT_NEAR(mean(nll), chunk.at("mean_nll").get<double>(), chunk_tolerance) << "chunk " << chunk.at("chunk");
      }
      total += mean(nll) / 8;
    }
    return std::exp(total);
  }

  void expect_perplexity(const std::filesystem::path& path, const std::string& name) {
    const auto expected = golden(name, "wikitext2_ppl");
    const double ppl = expected.at("ppl").get<double>();
    EXPECT_NEAR(expect_chunks(load(path, DType::f32), expected, 1e-4), ppl, 0.01);
    EXPECT_NEAR(expect_chunks(load(path, DType::bf16), expected, 0), ppl, 0.01 * ppl) << "bf16";
  }
};

TEST_F(PretrainedModel, SmolLm2Prompts) {
  expect_prompts(load(smollm2(), DType::f32), "smollm2");
}
TEST_F(PretrainedModel, Gemma3Prompts) {
  expect_prompts(load(gemma3(), DType::f32), "gemma3-270m");
}
TEST_F(PretrainedModel, SmolLm2Perplexity) {
  expect_perplexity(smollm2(), "smollm2");
}
TEST_F(PretrainedModel, Gemma3Perplexity) {
  expect_perplexity(gemma3(), "gemma3-270m");
}

TEST_F(PretrainedModel, Gemma3BeyondItsWindow) {
  // 1280 tokens: BOS and the chunks' text in order, longer than the window of 512.
  const auto expected = golden("gemma3-270m", "wikitext2_ppl");
  std::vector<int32_t> ids = {2};
  for (const auto& chunk : expected.at("chunks")) {
    const auto part = chunk.at("ids").get<std::vector<int32_t>>();
    ids.insert(ids.end(), part.begin() + 1, part.end());
  }
  ids.resize(expected.at("long").at("n_tokens").get<size_t>());
  const auto nll = nll_of(load(gemma3(), DType::f32), ids);
  EXPECT_NEAR(mean(nll), expected.at("long").at("mean_nll").get<double>(), 1e-4);
  EXPECT_NEAR(mean({nll.end() - 512, nll.end()}), expected.at("long").at("mean_nll_last_512").get<double>(), 1e-4);
}

}  // namespace
}  // namespace unchain::test
