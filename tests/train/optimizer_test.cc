#include "train/optimizer.h"

#include "ref/adamw.h"
#include "train/train_support.h"

namespace unchain::test {
namespace {

// Two parameters of different groups, one of which decays.
struct Pair {
  std::vector<float> w = random_floats(1000, 1), b = random_floats(10, 2), d_w = random_floats(1000, 3),
                     d_b = random_floats(10, 4);
  std::vector<bf16> narrow = std::vector<bf16>(1000);
  std::vector<model::Parameter> parameters = {{"w", "attention", {100, 10}, true, w, d_w, narrow},
                                              {"b", "norm", {10}, false, b, d_b, {}}};
};

double norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

std::vector<ref::AdamWState> states(const std::vector<float>& values) {
  std::vector<ref::AdamWState> result;
  for (const float value : values) result.push_back({value});
  return result;
}

void step(std::vector<ref::AdamWState>& states, const std::vector<float>& gradient, double scale, int t, double rate,
          double decay) {
  for (size_t i = 0; i < states.size(); ++i)
    ref::adamw(states[i], scale * gradient[i], t, {rate, 0.9, 0.95, 1e-8, decay});
}

TEST(Optimizer, FollowsAdamWithDecayAndClipping) {
  for (const double clip : {0.0, 1.0, 1e6}) {
    Pair pair;
    train::TrainKeys keys;
    keys.clip = clip;
    train::Optimizer optimizer(pair.parameters, keys);
    auto w = states(pair.w), b = states(pair.b);
    for (int t = 1; t <= 5; ++t) {
      const double total = std::hypot(norm(pair.d_w), norm(pair.d_b)), rate = 0.01 * t;
      const double scale = clip > 0 && total > clip ? clip / total : 1;
      const train::OptimizerReport report = optimizer.step(pair.parameters, t, rate);
      EXPECT_NEAR(report.gradient_norm, total, 1e-9 * total);
      EXPECT_NEAR(report.group_norms.at("attention"), norm(pair.d_w), 1e-9 * total);
      EXPECT_NEAR(report.group_norms.at("norm"), norm(pair.d_b), 1e-9 * total);
      EXPECT_TRUE(report.update_ratios.empty());
      step(w, pair.d_w, scale, t, rate, 0.1);
      step(b, pair.d_b, scale, t, rate, 0);
      // A few roundings to f32 a step, of values near 1.
      for (size_t i = 0; i < pair.w.size(); ++i) {
        ASSERT_NEAR(pair.w[i], w[i].value, 1e-5) << "clip " << clip << " step " << t;
        ASSERT_EQ(pair.narrow[i].bits, to_bf16(pair.w[i]).bits);
      }
      for (size_t i = 0; i < pair.b.size(); ++i) ASSERT_NEAR(pair.b[i], b[i].value, 1e-5);
      for (float& g : pair.d_w) g *= -0.7f;
    }
  }
}

TEST(Optimizer, MeasuresHowFarWeightsMove) {
  Pair pair;
  const std::vector<float> before = pair.w;
  train::Optimizer optimizer(pair.parameters, {});
  const auto report = optimizer.step(pair.parameters, 1, 0.01, true);
  std::vector<float> change(before.size());
  for (size_t i = 0; i < change.size(); ++i) change[i] = pair.w[i] - before[i];
  EXPECT_NEAR(report.update_ratios.at("attention"), norm(change) / norm(before), 1e-6);
  EXPECT_EQ(report.update_ratios.size(), 2u);
}

TEST(Optimizer, NamesTheGradientThatIsNotFinite) {
  for (const float bad : {NAN, INFINITY}) {
    Pair pair;
    pair.d_b[3] = bad;
    const std::vector<float> before = pair.w;
    train::Optimizer optimizer(pair.parameters, {});
    expect_error([&] { optimizer.step(pair.parameters, 1, 0.01); }, ErrorCode::numeric, {"gradient of b"});
    EXPECT_EQ(pair.w, before);
  }
}

}  // namespace
}  // namespace unchain::test
