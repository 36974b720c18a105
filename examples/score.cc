// Loads a model, scores a text, and shows where one head looks from the last token.
//   example_score MODEL [TEXT [LAYER HEAD]]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "unchain/language_model.h"

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: example_score MODEL [TEXT [LAYER HEAD]]\n");
    return 2;
  }
  const std::string text = argc > 2 ? argv[2] : "The capital of France is Paris, and the capital of Italy is Rome.";
  const int64_t layer = argc > 3 ? std::atoi(argv[3]) : 0, head = argc > 4 ? std::atoi(argv[4]) : 0;
  try {
    const auto model = unchain::LanguageModel::load(argv[1]);
    const std::vector<int32_t> ids = model.tokenize(text);

    // Score: how surprising each token is, in nats.
    const std::vector<double> nll = model.score(ids);
    for (size_t i = 0; i < nll.size(); ++i) std::printf("%7.3f  %s\n", nll[i], model.detokenize({ids[i + 1]}).c_str());

    // Capture a map: what the last token attends to.
    const unchain::AttentionMap map = model.capture(ids, layer, head);
    std::vector<int64_t> keys(ids.size());
    for (size_t j = 0; j < keys.size(); ++j) keys[j] = static_cast<int64_t>(j);
    const int64_t last = map.tokens - 1;
    std::sort(keys.begin(), keys.end(), [&](int64_t a, int64_t b) { return map.at(last, a) > map.at(last, b); });
    std::printf("\nlayer %d, head %d, from the last token:\n", static_cast<int>(layer), static_cast<int>(head));
    for (size_t j = 0; j < std::min<size_t>(5, keys.size()); ++j) {
      std::printf("%6.3f  %s\n", static_cast<double>(map.at(last, keys[j])),
                  model.detokenize({ids[static_cast<size_t>(keys[j])]}).c_str());
    }
  } catch (const unchain::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", unchain::to_string(error.code()), error.what());
    return 1;
  }
}
