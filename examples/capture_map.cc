// Captures the map of one head and prints it as a table: a row a query, a column a key, then the row's sum and λ.
//   example_capture_map MODEL [TEXT [LAYER HEAD]]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "unchain/language_model.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: example_capture_map MODEL [TEXT [LAYER HEAD]]\n");
    return 2;
  }
  const std::string text = argc > 2 ? argv[2] : "And God said, Let there be light";
  const int64_t layer = argc > 3 ? std::atoi(argv[3]) : 0, head = argc > 4 ? std::atoi(argv[4]) : 0;
  try {
    const auto model = unchain::LanguageModel::load(argv[1], unchain::Precision::f32);
    const std::vector<int32_t> ids = model.tokenize(text);
    const unchain::AttentionMap map = model.capture(ids, layer, head);

    double worst = 0;
    for (int64_t i = 0; i < map.tokens; ++i) {
      double sum = 0;
      std::printf("%-10s", model.detokenize({ids[static_cast<size_t>(i)]}).c_str());
      for (int64_t j = 0; j <= i; ++j) {
        sum += static_cast<double>(map.at(i, j));
        std::printf(" %6.3f", static_cast<double>(map.at(i, j)));
      }
      const double lambda = map.lambda.empty() ? 0 : static_cast<double>(map.lambda[static_cast<size_t>(i)]);
      std::printf("   sum %.3f, lambda %.3f\n", sum, lambda);
      worst = std::max(worst, std::fabs(sum - (1 - lambda)));
    }
    // Each of the two maps of a difference sums to 1, so P must sum to 1 − λ; softmax is λ = 0.
    std::printf("every row sums to 1 - lambda: %s\n", worst < 1e-5 ? "yes" : "no");
  } catch (const unchain::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", unchain::to_string(error.code()), error.what());
    return 1;
  }
}
