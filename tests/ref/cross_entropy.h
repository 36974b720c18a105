// Negative log-likelihood in double from whole rows of logits, and the gradients of its weighted sum.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace unchain::ref {

// logsumexp(logits) − logits[target], in nats.
inline double nll(const std::vector<double>& logits, size_t target) {
  double largest = logits[0], sum = 0;
  for (const double x : logits) largest = x > largest ? x : largest;
  for (const double x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum) - logits[target];
}

// Hidden states [T, D], the head [V, D] with its bias [V], a soft cap (0: none), and what rows count.
struct CrossEntropyCase {
  size_t rows, width, vocabulary;
  double cap;
  std::vector<int32_t> targets;  // −1: the row is left out
  std::vector<double> weights;
};

inline std::vector<double> logits_row(const CrossEntropyCase& c, const std::vector<double>& hidden,
                                      const std::vector<double>& head, const std::vector<double>& bias, size_t t) {
  std::vector<double> z(bias);
  for (size_t v = 0; v < c.vocabulary; ++v) {
    for (size_t i = 0; i < c.width; ++i) z[v] += hidden[t * c.width + i] * head[v * c.width + i];
    if (c.cap > 0) z[v] = c.cap * std::tanh(z[v] / c.cap);
  }
  return z;
}

// Σ_t weights_t·nll_t.
inline double weighted_nll(const CrossEntropyCase& c, const std::vector<double>& hidden,
                           const std::vector<double>& head, const std::vector<double>& bias) {
  double loss = 0;
  for (size_t t = 0; t < c.rows; ++t) {
    if (c.targets[t] < 0) continue;
    loss += c.weights[t] * nll(logits_row(c, hidden, head, bias, t), static_cast<size_t>(c.targets[t]));
  }
  return loss;
}

struct CrossEntropyGradients {
  std::vector<double> d_logits, d_hidden, d_head, d_bias;
};

// ∂nll/∂z_v = e^(z_v)/Σe^z − [v = target]; ∂z/∂(before the cap) = 1 − (z/cap)².
inline CrossEntropyGradients cross_entropy_backward(const CrossEntropyCase& c, const std::vector<double>& hidden,
                                                    const std::vector<double>& head, const std::vector<double>& bias) {
  CrossEntropyGradients g{std::vector<double>(c.rows * c.vocabulary), std::vector<double>(hidden.size()),
                          std::vector<double>(head.size()), std::vector<double>(c.vocabulary)};
  for (size_t t = 0; t < c.rows; ++t) {
    if (c.targets[t] < 0) continue;
    const std::vector<double> z = logits_row(c, hidden, head, bias, t);
    const double log_sum = nll(z, 0) + z[0];
    for (size_t v = 0; v < c.vocabulary; ++v) {
      const double p = std::exp(z[v] - log_sum), hit = v == static_cast<size_t>(c.targets[t]) ? 1 : 0;
      const double up = c.weights[t] * (p - hit) * (c.cap > 0 ? 1 - z[v] / c.cap * (z[v] / c.cap) : 1);
      g.d_logits[t * c.vocabulary + v] = up;
      g.d_bias[v] += up;
      for (size_t i = 0; i < c.width; ++i) {
        g.d_hidden[t * c.width + i] += up * head[v * c.width + i];
        g.d_head[v * c.width + i] += up * hidden[t * c.width + i];
      }
    }
  }
  return g;
}

}  // namespace unchain::ref
