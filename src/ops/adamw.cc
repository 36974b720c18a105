#include "ops/adamw.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/thread.h"
#include "simd/gradients.h"

namespace unchain::ops {

void adamw_step(const AdamWParameter& parameter, std::span<const float> gradient, int64_t step, double gradient_scale,
                const AdamW& options) {
  const size_t n = parameter.value.size();
  if (gradient.size() != n || parameter.m.size() != n || parameter.v.size() != n ||
      (!parameter.narrow.empty() && parameter.narrow.size() != n)) {
    fail(ErrorCode::shape, "adamw: {} values, {} gradients, {} and {} moments, {} rounded values", n, gradient.size(),
         parameter.m.size(), parameter.v.size(), parameter.narrow.size());
  }
  if (step < 1) fail(ErrorCode::usage, "adamw: step {}, they count from 1", step);
  const auto power = static_cast<double>(step);
  const auto narrowed = [](double x) { return static_cast<float>(x); };
  const simd::AdamWStep constants{
      .gradient_scale = narrowed(gradient_scale),
      .beta1 = narrowed(options.beta1),
      .one_minus_beta1 = narrowed(1 - options.beta1),
      .beta2 = narrowed(options.beta2),
      .one_minus_beta2 = narrowed(1 - options.beta2),
      .rate = narrowed(options.learning_rate / (1 - std::pow(options.beta1, power))),
      .root_scale = narrowed(1 / std::sqrt(1 - std::pow(options.beta2, power))),
      .eps = narrowed(options.eps),
      .keep = narrowed(1 - options.learning_rate * options.weight_decay),
  };
  // Blocks that begin at multiples of 4096, so that each number is computed alike in whole vectors by any thread.
  constexpr size_t kBlock = 4096;
  parallel_ranges(static_cast<int64_t>((n + kBlock - 1) / kBlock), 4, [&](int64_t begin, int64_t end) {
    const size_t first = static_cast<size_t>(begin) * kBlock, last = std::min(static_cast<size_t>(end) * kBlock, n);
    bf16* narrow = parameter.narrow.empty() ? nullptr : parameter.narrow.data() + first;
    simd::adamw(parameter.value.data() + first, parameter.m.data() + first, parameter.v.data() + first, narrow,
                gradient.data() + first, constants, last - first);
  });
}

double sum_squares(std::span<const float> x) {
  constexpr size_t kChunks = 256, kLeast = 4096;
  const size_t size = std::max((x.size() + kChunks - 1) / kChunks, kLeast), chunks = (x.size() + size - 1) / size;
  double partial[kChunks] = {};
  parallel_ranges(static_cast<int64_t>(chunks), 4, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      partial[i] = simd::sum_squares_f64(x.data() + i * size, std::min(size, x.size() - i * size));
    }
  });
  double sum = 0;
  for (size_t i = 0; i < chunks; ++i) sum += partial[i];
  return sum;
}

}  // namespace unchain::ops
