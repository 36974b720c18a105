#include "eval/perplexity.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>

#include "model/context.h"

namespace unchain::eval {

PerplexityResult perplexity(const std::shared_ptr<const model::Transformer>& model,
                            const tokenizer::Tokenizer* tokenizer, const std::vector<Window>& windows,
                            const std::function<void(size_t, size_t)>& progress) {
  size_t longest = 1;
  for (const Window& window : windows) longest = std::max(longest, window.ids.size());
  model::Context context(model, static_cast<int64_t>(longest));
  PerplexityResult result;
  double total = 0;
  size_t bytes = 0;
  const auto start = std::chrono::steady_clock::now();
  for (size_t w = 0; w < windows.size(); ++w) {
    const Window& window = windows[w];
    // The prediction of the last token is of no use here, so it is not computed.
    const std::span<const int32_t> ids(window.ids.data(), window.ids.size() - 1);
    context.truncate(0);
    context.extend(ids, window.scored());
    const std::vector<int32_t> targets(window.ids.end() - window.scored(), window.ids.end());
    std::vector<double> nll(targets.size());
    context.nll(nll, targets);
    double sum = 0;
    for (const double x : nll) sum += x;
    total += sum;
    result.window_nll_nats.push_back(sum / static_cast<double>(targets.size()));
    result.tokens_scored += window.scored();
    result.tokens_read += static_cast<int64_t>(ids.size());
    if (tokenizer != nullptr) bytes += tokenizer->decode(targets).size();
    if (progress) progress(w + 1, windows.size());
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.nll_nats = total / static_cast<double>(result.tokens_scored);
  result.perplexity = std::exp(result.nll_nats);
  result.bits_per_byte =
      bytes ? total / (std::numbers::ln2 * static_cast<double>(bytes)) : std::numeric_limits<double>::quiet_NaN();
  return result;
}

}  // namespace unchain::eval
