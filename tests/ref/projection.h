// Linear layers in double, y = x Wᵀ, and what attention makes of them: σ, softmax over ranks, a base with low-rank
// updates. Forward and backward by plain loops.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "ref/linear.h"
#include "ref/softmax.h"

namespace unchain::ref {

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct ProjectGradients {
  std::vector<double> d_x, d_weight;
};

// y[T, O] = x[T, D] weight[O, D]ᵀ: a linear layer without a bias.
inline std::vector<double> project(const std::vector<double>& x, const std::vector<double>& weight, int64_t rows,
                                   int64_t out, int64_t in) {
  return linear(x, weight, std::vector<double>(static_cast<size_t>(out)), static_cast<size_t>(rows),
                static_cast<size_t>(in));
}

inline ProjectGradients project_backward(const std::vector<double>& d_y, const std::vector<double>& x,
                                         const std::vector<double>& weight, int64_t rows, int64_t out, int64_t in) {
  LinearBackward g =
      linear_backward(d_y, x, weight, static_cast<size_t>(rows), static_cast<size_t>(in), static_cast<size_t>(out));
  return {std::move(g.d_x), std::move(g.d_weight)};
}

// y = σ(x Wᵀ): λ by token, gates.
inline std::vector<double> sigmoid_project(const std::vector<double>& x, const std::vector<double>& weight,
                                           int64_t rows, int64_t out, int64_t in) {
  std::vector<double> y = project(x, weight, rows, out, in);
  for (double& value : y) value = sigmoid(value);
  return y;
}

inline ProjectGradients sigmoid_project_backward(std::vector<double> d_y, const std::vector<double>& y,
                                                 const std::vector<double>& x, const std::vector<double>& weight,
                                                 int64_t rows, int64_t out, int64_t in) {
  for (size_t i = 0; i < y.size(); ++i) d_y[i] *= y[i] * (1 - y[i]);
  return project_backward(d_y, x, weight, rows, out, in);
}

// α[T, H, R] = softmax over the R of x W_αᵀ, weight[H·R, D].
inline std::vector<double> softmax_project(const std::vector<double>& x, const std::vector<double>& weight,
                                           int64_t rows, int64_t heads, int64_t rank, int64_t in) {
  return softmax(project(x, weight, rows, heads * rank, in), static_cast<size_t>(rows * heads),
                 static_cast<size_t>(rank));
}

inline ProjectGradients softmax_project_backward(const std::vector<double>& d_alpha, const std::vector<double>& alpha,
                                                 const std::vector<double>& x, const std::vector<double>& weight,
                                                 int64_t rows, int64_t heads, int64_t rank, int64_t in) {
  const std::vector<double> d_logits =
      softmax_backward(d_alpha, alpha, static_cast<size_t>(rows * heads), static_cast<size_t>(rank));
  return project_backward(d_logits, x, weight, rows, heads * rank, in);
}

// y = x Wᵀ + (x downᵀ) upᵀ, weight[O, D], down[R, D], up[O, R]: the projections of shared_diff.
struct UpdatedWeight {
  std::vector<double> weight, down, up;
};

inline std::vector<double> updated_project(const std::vector<double>& x, const UpdatedWeight& w, int64_t rows,
                                           int64_t out, int64_t in, int64_t rank) {
  std::vector<double> y = project(x, w.weight, rows, out, in);
  const std::vector<double> update = project(project(x, w.down, rows, rank, in), w.up, rows, out, rank);
  for (size_t i = 0; i < y.size(); ++i) y[i] += update[i];
  return y;
}

struct UpdatedGradients {
  std::vector<double> d_x, d_weight, d_down, d_up;
};

inline UpdatedGradients updated_project_backward(const std::vector<double>& d_y, const std::vector<double>& x,
                                                 const UpdatedWeight& w, int64_t rows, int64_t out, int64_t in,
                                                 int64_t rank) {
  const ProjectGradients base = project_backward(d_y, x, w.weight, rows, out, in);
  const ProjectGradients up = project_backward(d_y, project(x, w.down, rows, rank, in), w.up, rows, out, rank);
  const ProjectGradients down = project_backward(up.d_x, x, w.down, rows, rank, in);
  UpdatedGradients g{base.d_x, base.d_weight, down.d_weight, up.d_weight};
  for (size_t i = 0; i < g.d_x.size(); ++i) g.d_x[i] += down.d_x[i];
  return g;
}

}  // namespace unchain::ref
