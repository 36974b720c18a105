// Trains a model in memory, a few seconds: 12 random symbols, then the same 12 again, whose loss alone counts. A model
// that has learned to look back 12 tokens has a loss near 0; one that guesses, ln 16 = 2.77 nats.
//   example_train [PRESET]     diff_v2, softmax, lowrank_diff … (docs/attention-family.md)
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/trainable.h"
#include "train/optimizer.h"
#include "unchain/error.h"

int main(int argc, char** argv) {
  using namespace unchain;
  const std::string preset = argc > 1 ? argv[1] : "diff_v2";
  constexpr int kSymbols = 16, kRows = 16, kHalf = 12, kContext = 2 * kHalf - 1, kSteps = 200;
  try {
    // The keys of a config.json, as docs/training.md lists them.
    const std::string json =
        R"({"model_type": "unchain", "vocab_size": 16, "max_position_embeddings": 32, "hidden_size": 32,
            "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "initializer_range": 0.1, "attention": {"preset": ")" +
        preset + "\"}}";
    model::Trainable net(model::config_from_json(json, "examples/train.cc"), DType::f32, /*seed=*/0);
    train::Optimizer optimizer(net.parameters(), train::TrainKeys());
    std::printf("%s, %d parameters\n", preset.c_str(), static_cast<int>(net.parameter_count()));

    Rng rng(0);
    double loss = 0;
    for (int step = 1; step <= kSteps; ++step) {
      std::vector<int32_t> inputs, targets;
      for (int row = 0; row < kRows; ++row) {
        int32_t symbols[2 * kHalf];
        for (int i = 0; i < kHalf; ++i) symbols[i] = symbols[i + kHalf] = static_cast<int32_t>(rng.below(kSymbols));
        for (int i = 0; i < kContext; ++i) {
          inputs.push_back(symbols[i]);
          targets.push_back(i + 1 < kHalf ? -1 : symbols[i + 1]);  // −1: no loss
        }
      }
      // The gradient is that of Σ weight·nll: with these weights, of the mean.
      const std::vector<float> weights(inputs.size(), 1.0f / (kRows * kHalf));
      std::vector<double> nll(inputs.size());
      net.zero_gradients();
      net.forward_backward(nll, {kRows, kContext, inputs, targets, {}, weights});
      optimizer.step(net.parameters(), step, /*learning_rate=*/5e-3);
      loss = std::accumulate(nll.begin(), nll.end(), 0.0) / (kRows * kHalf);
      if (step == 1 || step % 50 == 0) std::printf("step %3d  loss %.3f nats\n", step, loss);
    }
    std::printf("%s\n", loss < 0.3 ? "it has learned to copy" : "it has not learned to copy");
  } catch (const Error& error) {
    return std::fprintf(stderr, "%s error: %s\n", to_string(error.code()), error.what()), 1;
  }
}
