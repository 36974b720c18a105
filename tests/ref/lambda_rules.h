// Where λ comes from, and the two small steps after attention, in double: depth and head rules (the token rule is
// sigmoid_project of projection.h, a held λ is a constant), a noise term taken off, gates. docs/math/diff_v1.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ref/projection.h"

namespace unchain::ref {

// λ_init of layer l, which counts from 1.
inline double lambda_init(int64_t l) {
  return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(l - 1));
}

// λ = exp(q1 · k1) − exp(q2 · k2) + init, one a layer.
struct DepthVectors {
  std::vector<double> q1, k1, q2, k2;  // [E] each
};

inline double depth_inner(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t e = 0; e < a.size(); ++e) sum += a[e] * b[e];
  return sum;
}

inline double depth_lambda(const DepthVectors& v, double init) {
  return std::exp(depth_inner(v.q1, v.k1)) - std::exp(depth_inner(v.q2, v.k2)) + init;
}

// d_lambda: of the layer's λ, so Σ over all rows and heads.
inline DepthVectors depth_lambda_backward(double d_lambda, const DepthVectors& v) {
  const double first = d_lambda * std::exp(depth_inner(v.q1, v.k1));
  const double second = -d_lambda * std::exp(depth_inner(v.q2, v.k2));
  DepthVectors g = v;
  for (size_t e = 0; e < v.q1.size(); ++e) {
    g.q1[e] = first * v.k1[e];
    g.k1[e] = first * v.q1[e];
    g.q2[e] = second * v.k2[e];
    g.k2[e] = second * v.q2[e];
  }
  return g;
}

// λ[T, H] = σ(logits[H]) in every row.
inline std::vector<double> head_lambda(const std::vector<double>& logits, int64_t rows) {
  std::vector<double> lambda;
  for (int64_t t = 0; t < rows; ++t) {
    for (const double logit : logits) lambda.push_back(sigmoid(logit));
  }
  return lambda;
}

inline std::vector<double> head_lambda_backward(const std::vector<double>& d_lambda,
                                                const std::vector<double>& logits) {
  std::vector<double> d_logits(logits.size());
  for (size_t i = 0; i < d_lambda.size(); ++i) {
    const double y = sigmoid(logits[i % logits.size()]);
    d_logits[i % logits.size()] += d_lambda[i] * y * (1 - y);
  }
  return d_logits;
}

// out = positive − λ · noise, [T, H, W] with λ[T, H]: how a noise map that is no softmax of pairs comes in. The
// gradient of `positive` is d_out.
inline std::vector<double> subtract_noise(std::vector<double> positive, const std::vector<double>& lambda,
                                          const std::vector<double>& noise) {
  const size_t width = noise.size() / lambda.size();
  for (size_t i = 0; i < noise.size(); ++i) positive[i] -= lambda[i / width] * noise[i];
  return positive;
}

struct SubtractGradients {
  std::vector<double> d_lambda, d_noise;
};

inline SubtractGradients subtract_noise_backward(const std::vector<double>& d_out, const std::vector<double>& lambda,
                                                 const std::vector<double>& noise) {
  const size_t width = noise.size() / lambda.size();
  SubtractGradients g{std::vector<double>(lambda.size()), std::vector<double>(noise.size())};
  for (size_t i = 0; i < noise.size(); ++i) {
    g.d_lambda[i / width] -= d_out[i] * noise[i];
    g.d_noise[i] = -lambda[i / width] * d_out[i];
  }
  return g;
}

// out = gate · o: gate[T, H] for outputs o[T, H, W], or one gate for each entry.
inline std::vector<double> apply_gate(std::vector<double> o, const std::vector<double>& gate) {
  const size_t width = o.size() / gate.size();
  for (size_t i = 0; i < o.size(); ++i) o[i] *= gate[i / width];
  return o;
}

struct GateGradients {
  std::vector<double> d_o, d_gate;
};

inline GateGradients apply_gate_backward(const std::vector<double>& d_out, const std::vector<double>& o,
                                         const std::vector<double>& gate) {
  const size_t width = o.size() / gate.size();
  GateGradients g{std::vector<double>(o.size()), std::vector<double>(gate.size())};
  for (size_t i = 0; i < o.size(); ++i) {
    g.d_o[i] = d_out[i] * gate[i / width];
    g.d_gate[i / width] += d_out[i] * o[i];
  }
  return g;
}

}  // namespace unchain::ref
