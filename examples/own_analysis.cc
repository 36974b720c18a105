// A measure of one's own, of every head: how far back it looks, Σ_j |P_ij|·(i − j)/Σ_j |P_ij|, mean over rows i ≥ 1,
// and the mass of its negative weights, Σ|P⁻|/Σ|P|.
//   example_own_analysis MODEL [TEXT]
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "unchain/language_model.h"

struct Measures {
  double distance = 0;  // tokens
  double negative_mass = 0;
};

Measures measure(const unchain::AttentionMap& map) {
  Measures result;
  const auto rows = static_cast<double>(map.tokens - 1);
  for (int64_t i = 1; i < map.tokens; ++i) {
    double mass = 0, moment = 0, negative = 0;
    for (int64_t j = 0; j <= i; ++j) {
      const auto p = static_cast<double>(map.at(i, j));
      mass += std::fabs(p);
      moment += std::fabs(p) * static_cast<double>(i - j);
      if (p < 0) negative -= p;
    }
    result.distance += moment / mass / rows;
    result.negative_mass += negative / mass / rows;
  }
  return result;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: example_own_analysis MODEL [TEXT]\n");
    return 2;
  }
  const std::string text = argc > 2 ? argv[2] : "And God said, Let there be light: and there was light.";
  try {
    const auto model = unchain::LanguageModel::load(argv[1], unchain::Precision::f32);
    const std::vector<int32_t> ids = model.tokenize(text);
    // A head that weighs all keys alike looks back i/2 tokens.
    std::printf("%d tokens; looking everywhere alike is a distance of %.2f\n", static_cast<int>(ids.size()),
                static_cast<double>(ids.size()) / 4);
    for (int64_t layer = 0; layer < model.layers(); ++layer) {
      const auto maps = model.capture(ids, layer);
      for (size_t head = 0; head < maps.size(); ++head) {
        const Measures m = measure(maps[head]);
        std::printf("layer %2d, head %2d: distance %6.2f, negative mass %.3f\n", static_cast<int>(layer),
                    static_cast<int>(head), m.distance, m.negative_mass);
      }
    }
  } catch (const unchain::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", unchain::to_string(error.code()), error.what());
    return 1;
  }
}
