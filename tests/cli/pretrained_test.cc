// The real models through the program, against the goldens of other implementations.
#include "support/pretrained.h"
#include "support/compare.h"
#include "support/golden_model.h"
#include "support/program.h"

namespace unchain::test {
namespace {

using nlohmann::json;

class PretrainedProgram : public Pretrained {
 protected:
  void expect_prompts(const std::filesystem::path& model, const std::string& name) {
    const json prompts = golden(name, "prompts").at("prompts");
    ASSERT_EQ(prompts.size(), 8u);
    for (const json& prompt : prompts) {
      SCOPED_TRACE(prompt.at("name").get<std::string>());
      std::vector<std::string> text = {model.string(), "--text", prompt.at("text")};
      if (prompt.at("name") == "chat") text.push_back("--special");
      std::vector<std::string> tokenize = {"tokenize"}, logits = {"logits", "--dtype", "f32"};
      tokenize.insert(tokenize.end(), text.begin(), text.end());
      logits.insert(logits.end(), text.begin(), text.end());
      EXPECT_EQ(run_json(tokenize)["ids"], prompt.at("ids"));
      const json result = run_json(logits);
      EXPECT_EQ(result["ids"], prompt.at("ids"));
      EXPECT_NEAR(result["nll_nats"].get<double>(), prompt.at("mean_nll").get<double>(), 1e-4);
      EXPECT_TRUE(close(result["top_logits"].get<std::vector<double>>(),
                        prompt.at("last_logits_top20").at("values").get<std::vector<double>>(), 1e-3));
    }
  }
  void expect_perplexity(const std::filesystem::path& model, double expected) {
    const json result = run_json({"perplexity", model.string(), (shared_ / "data/wikitext-2/wiki.test.raw").string(),
                                  "--window", "512", "--max-windows", "8", "--dtype", "f32"});
    EXPECT_NEAR(result["perplexity"].get<double>(), expected, 0.01);
    EXPECT_EQ(result["tokens_scored"], 4088);
  }
};

TEST_F(PretrainedProgram, SmolLm2Prompts) {
  expect_prompts(smollm2(), "smollm2");
}
TEST_F(PretrainedProgram, Gemma3Prompts) {
  expect_prompts(gemma3(), "gemma3-270m");
}
TEST_F(PretrainedProgram, SmolLm2Perplexity) {
  expect_perplexity(smollm2(), 30.356);
}
TEST_F(PretrainedProgram, Gemma3Perplexity) {
  expect_perplexity(gemma3(), 23.458);
}

// How far apart logits may be that are equal but for the pairs of rotary position, by the largest logit. A GGUF file of
// Llama type and a folder pair a head's dimensions in different ways, so rows of query and key stand in another order,
// and the E products of a score are added in another order; nothing else differs. To first order, for independent
// roundings of at most u = 2⁻²⁴, u/√3 as a root mean square:
// - A score has E additions, and each rounds its partial sum; these grow to S = scale·√Σ(q_e·k_e)² (products of random
//   signs) and are S/√2 on average. Two orders: Δ = √2·√E·u/√3·S/√2 = u·S·√(E/3).
// - A weight e^s/Σe^s takes its own Δ less the mean of the others': √2·Δ of its size; a head's output likewise.
// - L layers add their errors to the stream, which the norms keep in proportion: √L·√2·Δ. Logits are linear in it.
// S is measured, the root mean square over the heads and pairs of the text below: 5.3. SmolLM2 (L 30, E 64): 1.1e-5 of
// the largest logit; measured 1.5e-6. Two key rows of one layer in each other's place make 9e-3 and more.
double reordered_sums(const model::Config& config) {
  constexpr double kRounding = 0x1p-24, kScore = 5.3;
  return kRounding * kScore * std::sqrt(2.0 / 3 * static_cast<double>(config.layer_count() * config.head_dim));
}

TEST_F(PretrainedProgram, SmolLm2AsAFolder) {
  TemporaryFolder folder;
  run_json({"export", smollm2().string(), "-o", (folder / "hf").string()});
  const auto ids = golden("smollm2", "wikitext2_ppl").at("chunks")[0].at("ids").get<std::vector<int32_t>>();
  const auto rows = [&](const std::shared_ptr<const model::Transformer>& model) {
    model::Context context(model, 512);
    context.extend(ids);
    std::vector<float> logits;
    for (const int64_t position : {0, 20, 500}) {
      std::vector<float> row(static_cast<size_t>(model->config.vocabulary));
      context.logits(Matrix(row.data(), 1, model->config.vocabulary), position, 1);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    return logits;
  };
  const auto original = model::load(smollm2(), DType::f32);
  const auto expected = rows(original);
  const auto [low, high] = std::minmax_element(expected.begin(), expected.end());
  const double largest = std::max(-*low, *high);
  const auto written = rows(model::load(folder / "hf", DType::f32));
  EXPECT_TRUE(close(written, expected, reordered_sums(original->config) * largest));
  EXPECT_EQ(run_json({"tokenize", (folder / "hf").string(), "--text", "don't  stop\n\n12"})["ids"],
            run_json({"tokenize", smollm2().string(), "--text", "don't  stop\n\n12"})["ids"]);
}

}  // namespace
}  // namespace unchain::test
