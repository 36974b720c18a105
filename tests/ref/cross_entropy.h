// Negative log-likelihood in double from whole rows of logits.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace unchain::ref {

// logsumexp(logits) − logits[target], in nats.
inline double nll(const std::vector<double>& logits, size_t target) {
  double largest = logits[0], sum = 0;
  for (const double x : logits) largest = x > largest ? x : largest;
  for (const double x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum) - logits[target];
}

}  // namespace unchain::ref
