#include "analysis/low_rank.h"

#define EIGEN_DONT_PARALLELIZE  // callers are parallel over heads
#include <Eigen/Cholesky>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace unchain::analysis {
namespace {

using RowMajor = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<RowMajor>;
using ConstView = Eigen::Map<const RowMajor>;

// The U that minimises Σ (a_ij − u_i · v_j)² + ridge Σ ‖u_i‖² over what the rows of `a` see. The Gram matrix of the
// keys that row i sees is that of row i − 1, one key more, and with a window one less.
RowMajor solve_rows(const RowMajor& a, const RowMajor& v, int64_t window, double ridge) {
  const RowMajor right = a * v;  // `a` is 0 where rows see nothing
  RowMajor u(v.rows(), v.cols());
  Eigen::MatrixXd gram = Eigen::MatrixXd::Identity(v.cols(), v.cols()) * ridge;
  Eigen::LLT<Eigen::MatrixXd> solver(v.cols());
  for (int64_t i = 0; i < v.rows(); ++i) {
    gram.noalias() += v.row(i).transpose() * v.row(i);
    if (window > 0 && i >= window) gram.noalias() -= v.row(i - window).transpose() * v.row(i - window);
    solver.compute(gram);
    u.row(i) = solver.solve(right.row(i).transpose()).transpose();
  }
  return u;
}

}  // namespace

LowRank::LowRank(std::vector<double> map, int64_t tokens, int64_t window)
    : tokens_(tokens), window_(window), map_(std::move(map)) {
  if (tokens < 1 || map_.size() != static_cast<size_t>(tokens) * static_cast<size_t>(tokens))
    fail(ErrorCode::shape, "low rank: {} numbers for {} tokens, expected a square map", map_.size(), tokens);
  for (size_t i = 0; i < map_.size(); ++i) {
    if (!std::isfinite(map_[i])) {
      fail(ErrorCode::numeric, "low rank: row {} key {} is {}, expected a finite number",
           i / static_cast<size_t>(tokens), i % static_cast<size_t>(tokens), map_[i]);
    }
  }
  // A v_k v_kᵀ, summed over the R leading eigenvectors v_k of AᵀA, is the best map of rank R; and since all N of them
  // are orthogonal whatever their eigenvalues' error, the sum over all is A to rounding.
  const ConstView a(map_.data(), tokens, tokens);
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(Eigen::MatrixXd(a.transpose() * a));
  right_.resize(map_.size());
  left_.resize(map_.size());
  View right(right_.data(), tokens, tokens), left(left_.data(), tokens, tokens);
  right = solver.eigenvectors().rowwise().reverse();
  left.noalias() = a * right;
  for (int64_t k = 0; k < tokens; ++k) {
    const double root = std::sqrt(left.col(k).norm());
    if (root == 0) continue;
    left.col(k) /= root;
    right.col(k) *= root;
  }
}

Factors LowRank::truncated(int64_t rank) const {
  if (rank < 0) fail(ErrorCode::usage, "low rank: rank {}, expected 0 or more", rank);
  Factors out{tokens_, std::min(rank, tokens_), {}, {}};
  for (auto [to, from] : {std::pair(&out.u, &left_), std::pair(&out.v, &right_)}) {
    to->resize(static_cast<size_t>(tokens_ * out.rank));
    View(to->data(), tokens_, out.rank) = ConstView(from->data(), tokens_, tokens_).leftCols(out.rank);
  }
  return out;
}

Factors LowRank::fitted(int64_t rank, const FitOptions& options) const {
  Factors out = truncated(rank);
  if (out.rank == tokens_ || out.rank == 0) return out;
  const RowMajor a = ConstView(map_.data(), tokens_, tokens_);
  // Rows see keys as columns are seen by rows, counted from the end: of the map turned about its other diagonal V is
  // the left side.
  const RowMajor turned = a.transpose().reverse();
  View u(out.u.data(), tokens_, out.rank), v(out.v.data(), tokens_, out.rank);
  for (int sweep = 0; sweep < options.sweeps; ++sweep) {
    u = solve_rows(a, v, window_, options.ridge);
    v = solve_rows(turned, u.colwise().reverse(), window_, options.ridge).colwise().reverse();
  }
  return out;
}

double row_divisor(double sum) {
  return std::max(sum, 0.1);
}

void write_row(float* row, const Factors& factors, int64_t position, int64_t first_key, bool divide) {
  const ConstView u(factors.u.data(), factors.tokens, factors.rank), v(factors.v.data(), factors.tokens, factors.rank);
  const int64_t keys = position + 1 - first_key;
  std::fill_n(row, first_key, 0.0f);
  const Eigen::VectorXd weights = v.middleRows(first_key, keys) * u.row(position).transpose();
  const double divisor = divide ? row_divisor(weights.sum()) : 1;
  Eigen::Map<Eigen::VectorXf>(row + first_key, keys) = (weights / divisor).cast<float>();
}

}  // namespace unchain::analysis
