// Models of Hugging Face's diffllama: a loss and its gradients against those that transformers computes in double
// (tests/golden/make_diffllama.py). Their logits are tested with all other tiny models.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/config_attention.h"
#include "model/trainable.h"
#include "support/golden_model.h"

namespace unchain::test {
namespace {

TEST(DiffLlama, GradientsAreThoseOfTransformers) {
  int cases = 0;
  for (const Golden& golden : all_goldens()) {
    const auto json = nlohmann::json::parse(read_file(golden.folder / "golden.json"));
    if (!json.contains("gradients")) continue;
    ++cases;
    model::Trainable m(model::ModelFile::open(golden.folder), DType::f32);
    EXPECT_EQ(m.config().attention.preset, "diff_v1");
    const auto count = static_cast<int64_t>(golden.ids.size());
    std::vector<int32_t> targets(golden.ids.begin() + 1, golden.ids.end());
    targets.push_back(-1);
    const std::vector<float> weights(golden.ids.size(), 1 / static_cast<float>(count - 1));
    std::vector<double> nll(golden.ids.size());
    m.forward_backward(nll, {1, count, golden.ids, targets, {}, weights});
    nll.pop_back();
    EXPECT_NEAR(mean(nll), golden.mean_nll, 1e-4 * golden.mean_nll);
    for (const model::Parameter& p : m.parameters()) {
      SCOPED_TRACE(golden.name + " " + p.name);
      const auto& expected = json.at("gradients").at(p.name);
      const double norm = expected.at("norm").get<double>();
      double squares = 0;
      for (const float x : p.gradient) squares += static_cast<double>(x) * static_cast<double>(x);
      EXPECT_NEAR(std::sqrt(squares), norm, 1e-4 * norm);
      const auto first = expected.at("first").get<std::vector<double>>();
      for (size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(static_cast<double>(p.gradient[i]), first[i], 1e-4 * norm);
    }
  }
  EXPECT_EQ(cases, 3);
}

}  // namespace
}  // namespace unchain::test
