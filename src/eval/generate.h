// Text from a model, token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/rng.h"
#include "model/context.h"

namespace unchain::eval {

struct SamplingOptions {
  double temperature = 0;  // 0: always the likeliest token
  double top_p = 1;        // sample among the likeliest tokens that together have this probability
};

// Error: usage if temperature < 0, or top_p is outside (0, 1].
void check(const SamplingOptions& options);

// One token by these logits; the lowest id wins a tie. Errors: usage (temperature < 0, top_p outside (0, 1]); numeric
// (logits not finite).
int32_t sample(std::span<const float> logits, const SamplingOptions& options, Rng& rng);

// Continues the prompt by at most `count` tokens. `on_token` returns false to end. A token of `stops` ends the text and
// is not handed out. Returns the new tokens. Errors: those of Context::extend, usage for an empty prompt.
std::vector<int32_t> generate(model::Context& context, std::span<const int32_t> prompt, int64_t count,
                              const SamplingOptions& options, uint64_t seed, const std::vector<int32_t>& stops,
                              const std::function<bool(int32_t)>& on_token);

}  // namespace unchain::eval
