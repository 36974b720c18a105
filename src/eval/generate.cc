#include "eval/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace unchain::eval {

void check(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature))
    fail(ErrorCode::usage, "--temperature {}: expected 0 or more", options.temperature);
  if (!(options.top_p > 0) || options.top_p > 1)
    fail(ErrorCode::usage, "--top-p {}: expected a number above 0, up to 1", options.top_p);
}

int32_t sample(std::span<const float> logits, const SamplingOptions& options, Rng& rng) {
  check(options);
  const auto best = std::max_element(logits.begin(), logits.end());
  if (best == logits.end() || !std::isfinite(*best)) fail(ErrorCode::numeric, "sampling: the logits are not finite");
  if (options.temperature == 0) return static_cast<int32_t>(best - logits.begin());
  std::vector<double> weight(logits.size());
  for (size_t i = 0; i < weight.size(); ++i) weight[i] = std::exp((logits[i] - *best) / options.temperature);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  if (options.top_p < 1) {
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const double x = weight[static_cast<size_t>(a)], y = weight[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    });
    double kept = 0;
    size_t count = 0;
    while (count < order.size() && kept < options.top_p * total) kept += weight[static_cast<size_t>(order[count++])];
    order.resize(count);
    total = kept;
  }
  double left = rng.uniform() * total;
  for (const int32_t id : order) {
    left -= weight[static_cast<size_t>(id)];
    if (left < 0) return id;
  }
  return order.back();
}

std::vector<int32_t> generate(model::Context& context, std::span<const int32_t> prompt, int64_t count,
                              const SamplingOptions& options, uint64_t seed, const std::vector<int32_t>& stops,
                              const std::function<bool(int32_t)>& on_token) {
  if (prompt.empty()) fail(ErrorCode::usage, "prompt: is empty and the model adds no BOS; give at least one token");
  Rng rng(seed);
  std::vector<float> logits(static_cast<size_t>(context.model().config.vocabulary));
  std::vector<int32_t> result;
  std::vector<int32_t> next(prompt.begin(), prompt.end());
  while (static_cast<int64_t>(result.size()) < count) {
    context.extend(next, 1);
    context.logits(Matrix(logits.data(), 1, static_cast<int64_t>(logits.size())), 0, 1);
    const int32_t id = sample(logits, options, rng);
    if (std::find(stops.begin(), stops.end(), id) != stops.end()) break;
    result.push_back(id);
    if (!on_token(id)) break;
    next.assign(1, id);
  }
  return result;
}

}  // namespace unchain::eval
