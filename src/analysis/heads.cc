#include "analysis/heads.h"

#define EIGEN_DONT_PARALLELIZE  // callers are parallel over heads
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "base/thread.h"

namespace unchain::analysis {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// What HSIC needs of one side: the features in f64, the diagonal of K and K1 (with the diagonal of K set to 0).
struct Side {
  RowMajor x;
  Eigen::VectorXd diagonal;  // k_ii
  Eigen::VectorXd sums;      // Σ_{j≠i} k_ij
  double total = 0;          // 1ᵀK1
  double self = 0;           // HSIC(K, K)
};

double hsic(const Side& a, const Side& b) {
  const double n = static_cast<double>(a.x.rows());
  // tr KL = Σ_{i≠j} k_ij l_ij = ‖XᵀY‖² − Σ k_ii l_ii
  const double trace = (a.x.transpose() * b.x).squaredNorm() - a.diagonal.dot(b.diagonal);
  return (trace + a.total * b.total / ((n - 1) * (n - 2)) - 2 * a.sums.dot(b.sums) / (n - 2)) / (n * (n - 3));
}

Side make_side(const float* x, int64_t tokens, int64_t width, int64_t stride) {
  Side side;
  side.x =
      Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0, Eigen::OuterStride<>>(
          x, tokens, width, Eigen::OuterStride<>(stride))
          .cast<double>();
  side.diagonal = side.x.rowwise().squaredNorm();
  side.sums = side.x * side.x.colwise().sum().transpose() - side.diagonal;
  side.total = side.sums.sum();
  side.self = hsic(side, side);
  return side;
}

std::optional<double> cka(const Side& a, const Side& b) {
  // Rounding leaves about 1e-16 of the squared scale where the exact value is 0, as for constant features.
  const auto defined = [](const Side& s) {
    return s.self > 1e-13 * std::pow(s.diagonal.mean(), 2) && std::isfinite(s.self);
  };
  if (!defined(a) || !defined(b)) return std::nullopt;
  return hsic(a, b) / (std::sqrt(a.self) * std::sqrt(b.self));
}

}  // namespace

MapProducts::MapProducts(int heads)
    : heads_(heads), products_(static_cast<size_t>(heads) * static_cast<size_t>(heads)) {}

void MapProducts::add(const float* p, int64_t rows, int64_t keys, int64_t row_stride, int64_t head_stride) {
  Eigen::Map<Eigen::MatrixXd> products(products_.data(), heads_, heads_);
  for (int64_t r = 0; r < rows; ++r) {
    const Eigen::Map<const Eigen::MatrixXf, 0, Eigen::OuterStride<>> row(p + r * row_stride, keys, heads_,
                                                                         Eigen::OuterStride<>(head_stride));
    products += (row.transpose() * row).cast<double>();
  }
}

std::optional<double> MapProducts::mean_cosine_distance() const {
  const auto product = [&](int a, int b) {
    return products_[static_cast<size_t>(a) * static_cast<size_t>(heads_) + static_cast<size_t>(b)];
  };
  double sum = 0;
  int64_t pairs = 0;
  for (int a = 0; a < heads_; ++a) {
    for (int b = 0; b < a; ++b) {
      if (product(a, a) <= 0 || product(b, b) <= 0) continue;
      const double cosine = product(a, b) / (std::sqrt(product(a, a)) * std::sqrt(product(b, b)));
      sum += 1 - std::clamp(cosine, -1.0, 1.0);
      ++pairs;
    }
  }
  if (pairs == 0) return std::nullopt;
  return sum / static_cast<double>(pairs);
}

std::optional<double> linear_cka(const float* x, int64_t width_x, const float* y, int64_t width_y, int64_t tokens,
                                 int64_t stride) {
  if (tokens < 4) return std::nullopt;
  return cka(make_side(x, tokens, width_x, stride), make_side(y, tokens, width_y, stride));
}

std::optional<double> mean_cka(const float* outputs, int64_t tokens, int heads, int64_t width) {
  if (tokens < 4 || heads < 2) return std::nullopt;
  std::vector<Side> sides(static_cast<size_t>(heads));
  parallel_for(heads, [&](int64_t h) {
    sides[static_cast<size_t>(h)] = make_side(outputs + h * width, tokens, width, heads * width);
  });
  // Row a of the pairs: all b < a. Kept apart so that the sum does not depend on the order of the threads.
  std::vector<std::vector<std::optional<double>>> pairs(static_cast<size_t>(heads));
  parallel_for(heads, [&](int64_t a) {
    for (int64_t b = 0; b < a; ++b)
      pairs[static_cast<size_t>(a)].push_back(cka(sides[static_cast<size_t>(a)], sides[static_cast<size_t>(b)]));
  });
  double sum = 0;
  int64_t count = 0;
  for (const auto& row : pairs) {
    for (const auto& value : row) {
      if (!value) continue;
      sum += *value;
      ++count;
    }
  }
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

}  // namespace unchain::analysis
