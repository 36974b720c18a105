// AdamW in double, one number at a time, as the paper's algorithm 2 writes it (arXiv 1711.05101).
#pragma once

#include <cmath>

namespace unchain::ref {

struct AdamW {
  double rate, beta1, beta2, eps, decay;
};
struct AdamWState {
  double value, m = 0, v = 0;
};

inline void adamw(AdamWState& s, double gradient, int step, const AdamW& o) {
  s.m = o.beta1 * s.m + (1 - o.beta1) * gradient;
  s.v = o.beta2 * s.v + (1 - o.beta2) * gradient * gradient;
  const double m_hat = s.m / (1 - std::pow(o.beta1, step)), v_hat = s.v / (1 - std::pow(o.beta2, step));
  s.value -= o.rate * (m_hat / (std::sqrt(v_hat) + o.eps) + o.decay * s.value);
}

}  // namespace unchain::ref
