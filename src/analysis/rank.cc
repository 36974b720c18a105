// Singular values without vectors. Measured for a 512 × 512 map on one core without AVX: Eigen's BDCSVD 50 ms, this way
// 37 ms, eigenvalues of the Gram matrix 25 ms. The last loses every singular value below 1e-8 of the largest, which
// moves the entropy rank of a low-rank map in the fourth digit, so it is not used.
#include "analysis/rank.h"

#define EIGEN_DONT_PARALLELIZE  // callers are parallel over heads
#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/rng.h"

namespace unchain::analysis {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// The rotation that takes (f, g) to (r, 0): c = f/r, s = g/r.
struct Rotation {
  double c, s, r;
  Rotation(double f, double g) {
    r = std::sqrt(f * f + g * g);
    c = r == 0 ? 1 : f / r;
    s = r == 0 ? 0 : g / r;
  }
};

// The upper bidiagonal matrix with diagonal d and superdiagonal e, reduced towards a diagonal by implicit QR steps.
// Source: Golub & Van Loan, "Matrix Computations", 8.6 (the shifted step); Demmel & Kahan, SIAM J. Sci. Stat. Comput.
// 11 (1990) (the step with shift zero, which moves a zero of the diagonal to the end and cuts it off there).
class BidiagonalQr {
 public:
  BidiagonalQr(std::vector<double>& d, std::vector<double>& e) : d_(d), e_(e) {
    for (size_t i = 0; i < d_.size(); ++i) {
      scale_ = std::max({scale_, std::abs(d_[i]), i < e_.size() ? std::abs(e_[i]) : 0.0});
    }
  }

  void run() {
    size_t high = d_.size();
    size_t steps = 60 * d_.size() + 100;  // about two a value are needed
    while (high > 1) {
      size_t low = high - 1;  // the unreduced part is low … high − 1
      while (low > 0 && !negligible(low - 1)) --low;
      if (low == high - 1) {
        --high;
        continue;
      }
      if (steps-- == 0) fail(ErrorCode::internal, "singular values: no convergence for {} values", d_.size());
      if (cut_zero(low, high)) {
        step_without_shift(low, high - 1);
      } else {
        step(low, high - 1);
      }
    }
  }

 private:
  bool negligible(size_t i) {
    if (std::abs(e_[i]) > kEpsilon * (std::abs(d_[i]) + std::abs(d_[i + 1])) &&
        std::abs(e_[i]) > kEpsilon * kEpsilon * scale_) {
      return false;
    }
    e_[i] = 0;
    return true;
  }

  bool cut_zero(size_t low, size_t high) {
    bool found = false;
    for (size_t i = low; i < high; ++i) {
      if (std::abs(d_[i]) > kEpsilon * scale_ * 0.25) continue;
      d_[i] = 0;
      found = true;
    }
    return found;
  }

  void step_without_shift(size_t low, size_t last) {
    double c = 1, old_c = 1, old_s = 0;
    for (size_t i = low; i < last; ++i) {
      const Rotation right(d_[i] * c, e_[i]);
      if (i > low) e_[i - 1] = old_s * right.r;
      const Rotation left(old_c * right.r, d_[i + 1] * right.s);
      d_[i] = left.r;
      c = right.c;
      old_c = left.c;
      old_s = left.s;
    }
    const double h = d_[last] * c;
    e_[last - 1] = h * old_s;
    d_[last] = h * old_c;
  }

  void step(size_t low, size_t last) {
    // Wilkinson's shift: the eigenvalue of the last 2 × 2 part of BᵀB that is nearer to its last element.
    const double above = last - 1 > low ? e_[last - 2] : 0;
    const double a = d_[last - 1] * d_[last - 1] + above * above;
    const double b = d_[last - 1] * e_[last - 1];
    const double c = d_[last] * d_[last] + e_[last - 1] * e_[last - 1];
    const double half = (a - c) / 2;
    const double shift = b == 0 ? c : c - b * b / (half + std::copysign(std::sqrt(half * half + b * b), half));
    double y = d_[low] * d_[low] - shift, z = d_[low] * e_[low];
    for (size_t k = low; k < last; ++k) {
      const Rotation right(y, z);  // columns k, k + 1
      if (k > low) e_[k - 1] = right.r;
      y = right.c * d_[k] + right.s * e_[k];
      e_[k] = right.c * e_[k] - right.s * d_[k];
      z = right.s * d_[k + 1];
      d_[k + 1] *= right.c;
      const Rotation left(y, z);  // rows k, k + 1
      d_[k] = left.r;
      y = left.c * e_[k] + left.s * d_[k + 1];
      d_[k + 1] = left.c * d_[k + 1] - left.s * e_[k];
      if (k + 1 < last) {
        z = left.s * e_[k + 1];
        e_[k + 1] *= left.c;
      }
    }
    e_[last - 1] = y;
  }

  std::vector<double>& d_;
  std::vector<double>& e_;
  double scale_ = 0;
};

double entropy_rank(std::span<const double> sigma, double sum, bool squared) {
  double entropy = 0;
  for (const double s : sigma) {
    const double p = (squared ? s * s : s) / sum;
    if (p > 0) entropy -= p * std::log(p);
  }
  return std::exp(entropy);
}

}  // namespace

RankMeasures rank_measures(std::span<const double> sigma) {
  double sum = 0, squares = 0;
  for (const double s : sigma) {
    sum += s;
    squares += s * s;
  }
  RankMeasures out;
  if (squares == 0) return out;
  out.entropy = entropy_rank(sigma, sum, false);
  out.entropy_squared = entropy_rank(sigma, squares, true);
  out.stable = squares / (sigma[0] * sigma[0]);
  double held = 0;
  for (size_t k = 0; k < sigma.size(); ++k) {
    held += sigma[k] * sigma[k] / squares;
    const double count = static_cast<double>(k + 1);
    if (out.r90 == 0 && held >= 0.90 - 1e-12) out.r90 = count;
    if (out.r99 == 0 && held >= 0.99 - 1e-12) out.r99 = count;
  }
  return out;
}

std::vector<double> bidiagonal_singular_values(std::vector<double> diagonal, std::vector<double> super) {
  BidiagonalQr(diagonal, super).run();
  for (double& d : diagonal) d = std::abs(d);
  std::sort(diagonal.begin(), diagonal.end(), std::greater<>());
  return diagonal;
}

std::vector<double> singular_values(const float* a, int64_t rows, int64_t cols, int64_t stride) {
  if (rows <= 0 || cols <= 0) return {};
  // At least as many rows as columns; A and its transpose have the same singular values.
  Eigen::MatrixXd m(std::max(rows, cols), std::min(rows, cols));
  for (int64_t i = 0; i < rows; ++i) {
    const Eigen::Map<const Eigen::VectorXf> row(a + i * stride, cols);
    if (!row.allFinite())
      fail(ErrorCode::numeric, "singular values: row {} of the matrix has an element that is not finite", i);
    if (rows <= cols) {
      m.col(i) = row.cast<double>();
    } else {
      m.row(i) = row.cast<double>();
    }
  }
  if (m.cols() == 1) return {m.norm()};
  // The first half of Eigen's BDCSVD; blocked, so that half of the work is matrix products.
  Eigen::internal::UpperBidiagonalization<Eigen::MatrixXd> reduced(m);
  auto b = reduced.bidiagonal();
  std::vector<double> diagonal(static_cast<size_t>(m.cols())), super(static_cast<size_t>(m.cols() - 1));
  Eigen::VectorXd::Map(diagonal.data(), m.cols()) = b.diagonal<0>();
  Eigen::VectorXd::Map(super.data(), m.cols() - 1) = b.diagonal<1>();
  return bidiagonal_singular_values(std::move(diagonal), std::move(super));
}

Block rank_block(int64_t tokens) {
  Block block;
  if (tokens < 2) return block;
  block.columns = 3 * (tokens / 4) + 3 * (tokens % 4) / 4;  // ⌊3N/4⌋ without overflow
  const int64_t available = tokens - block.columns;
  const int64_t count = std::min<int64_t>(available, 256);
  for (int64_t r = 0; r < count; ++r) block.rows.push_back(block.columns + r * available / count);
  return block;
}

void permute_visible(float* map, int64_t tokens, int64_t window, uint64_t seed, uint64_t stream) {
  Rng rng(seed, stream);
  for (int64_t i = 1; i < tokens; ++i) {
    const int64_t first = window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
    float* row = map + i * tokens;
    for (int64_t j = i; j > first; --j) {
      std::swap(row[j], row[first + static_cast<int64_t>(rng.below(static_cast<uint64_t>(j - first + 1)))]);
    }
  }
}

void fill_uniform(float* map, int64_t tokens, int64_t window) {
  std::fill(map, map + tokens * tokens, 0.0f);
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t first = window > 0 ? std::max<int64_t>(0, i - window + 1) : 0;
    std::fill(map + i * tokens + first, map + i * tokens + i + 1, 1.0f / static_cast<float>(i + 1 - first));
  }
}

}  // namespace unchain::analysis
