#include "analysis/hessian.h"

#define EIGEN_DONT_PARALLELIZE  // one pool of threads only
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/rng.h"
#include "base/thread.h"

namespace unchain::analysis {
namespace {

using Eigen::MatrixXd;
using Eigen::MatrixXf;
using Eigen::VectorXd;

constexpr double kStorage = 0x1p-23;  // two vectors of unit length, rounded to f32: how far their product may be off
constexpr double kEnough = 1e-3;      // error of a product that needs no smaller step
constexpr int kQuarters = 10;         // steps that are tried at most, each a quarter of the one before
constexpr int64_t kSteepSteps = 8;    // Lanczos steps to the direction in which they are tried
constexpr double kNothing = 0x1p-40;  // of the largest ‖H v‖ so far: what is left of a vector within the basis

void check(std::span<const double> theta, const HessianOptions& options) {
  if (theta.empty()) fail(ErrorCode::shape, "hessian: no parameters, expected at least one");
  for (size_t i = 0; i < theta.size(); ++i) {
    if (!std::isfinite(theta[i])) fail(ErrorCode::numeric, "hessian: parameter {} is {}", i, theta[i]);
  }
  if (!(options.step > 0) || !std::isfinite(options.step))
    fail(ErrorCode::usage, "hessian: step {}, expected a positive number such as {}", options.step, kHessianStepF32);
  if (options.values < 1 || options.lanczos_steps < 1 || options.quadrature_steps < 1 || options.probes < 2) {
    fail(ErrorCode::usage,
         "hessian: {} values, {} Lanczos steps, {} probes of {} steps; expected at least 1, 1, 2 and 1", options.values,
         options.lanczos_steps, options.probes, options.quadrature_steps);
  }
}

// Products with H, counted.
class Products {
 public:
  Products(const Gradient& gradient, std::span<const double> theta, const HessianOptions& options, int64_t most)
      : gradient_(gradient), theta_(theta), progress_(options.progress), most_(most), at_(size()), g_(size()) {
    step = options.step;
    length_ = 1 + Eigen::Map<const VectorXd>(theta.data(), size()).norm();
  }

  double step;  // c

  int64_t size() const { return static_cast<int64_t>(theta_.size()); }
  int64_t count() const { return count_; }

  VectorXd operator()(const VectorXd& v) { return by_step(v, step); }
  // By how much H v changes when the step is halved: ¾ of the error if that comes from the step, √5 of it if it comes
  // from rounding.
  double step_error(const VectorXd& v) {
    const VectorXd whole = by_step(v, step);
    return (whole - by_step(v, step / 2)).norm();
  }

  VectorXd by_step(const VectorXd& v, double c) {
    const double epsilon = c * length_;
    at(v, epsilon);
    const VectorXd above = g_;
    at(v, -epsilon);
    ++count_;
    if (progress_) progress_(count_, most_);
    return (above - g_) / (2 * epsilon);
  }

 private:
  void at(const VectorXd& v, double epsilon) {
    const auto n = static_cast<size_t>(size());
    at_ = Eigen::Map<const VectorXd>(theta_.data(), size()) + epsilon * v;
    gradient_({g_.data(), n}, {at_.data(), n});
    if (g_.allFinite()) return;
    const auto bad = std::find_if_not(g_.begin(), g_.end(), [](double x) { return std::isfinite(x); });
    fail(ErrorCode::numeric, "hessian: product {}: the gradient by parameter {} is {}; try a smaller step than {}",
         count_ + 1, bad - g_.begin(), *bad, step);
  }

  const Gradient& gradient_;
  std::span<const double> theta_;
  const std::function<void(int64_t, int64_t)>& progress_;
  int64_t most_, count_ = 0;
  double length_ = 0;  // 1 + ‖θ‖
  VectorXd at_, g_;
};

// Normal entries: no direction is left out, as signs may leave out one of a small space.
VectorXd normals(int64_t size, Rng& rng) {
  VectorXd z(size);
  for (double& x : z) x = rng.normal();
  return z;
}

// Entries ±1, each as likely: of all probes whose mean is the trace, the one of least variance.
VectorXd signs(int64_t size, Rng& rng) {
  VectorXd z(size);
  for (double& x : z) x = rng.below(2) == 0 ? 1 : -1;
  return z;
}

// w ← w − Q Qᵀ w for q[P, K]. Returns the coefficients Qᵀ w. Columns rounded to f32 are orthogonal to 1e-7, so that
// each pass leaves that part of what it takes away: it is repeated, once at least, until most of w remains. The same
// bits for any number of threads. Source of the rule: Parlett, "The Symmetric Eigenvalue Problem", 6.9 (Kahan).
VectorXd orthogonalise(VectorXd& w, const Eigen::Ref<const MatrixXf>& q) {
  VectorXd total = VectorXd::Zero(q.cols()), part(q.cols());
  double before = w.norm();
  for (int pass = 0; pass < 5; ++pass) {
    parallel_for(q.cols(), [&](int64_t i) { part[i] = q.col(i).cast<double>().dot(w); });
    parallel_ranges(w.size(), 1 << 12, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < q.cols(); ++i)
        w.segment(begin, end - begin) -= part[i] * q.col(i).segment(begin, end - begin).cast<double>();
    });
    total += part;
    const double after = w.norm();
    if (pass > 0 && after > before / 2) break;
    before = after;
  }
  return total;
}

// H Q = Q T + r eᵀ, e the last unit vector, r ⟂ Q. T is what the products gave: upper Hessenberg, and tridiagonal only
// as far as they are symmetric.
struct Krylov {
  MatrixXf q;       // [P, K]
  MatrixXd t;       // [K, K]
  double rest = 0;  // ‖r‖
};

// The Krylov space of `start` and H. Where it ends before `steps` vectors, it goes on in a random direction of
// `restart`, or is left as it is (nullptr).
Krylov lanczos(Products& products, const VectorXd& start, int64_t steps, Rng* restart) {
  Krylov k{MatrixXf(start.size(), steps), MatrixXd::Zero(steps, steps)};
  VectorXd next = start;
  double scale = 0;
  for (int64_t j = 0; j < steps; ++j) {
    k.q.col(j) = next.normalized().cast<float>();
    next = products(k.q.col(j).cast<double>());
    scale = std::max(scale, next.norm());
    const auto known = k.q.leftCols(j + 1);
    k.t.col(j).head(j + 1) = orthogonalise(next, known);
    k.rest = next.norm();
    const bool last = j + 1 == steps, ended = k.rest <= kNothing * scale;
    if (ended) k.rest = 0;
    if (ended && !last && !restart) {
      k.q.conservativeResize(Eigen::NoChange, j + 1);
      k.t.conservativeResize(j + 1, j + 1);
      break;
    }
    if (last) break;
    k.t(j + 1, j) = k.rest;
    if (ended) {
      next = normals(start.size(), *restart);
      orthogonalise(next, known);
    }
  }
  return k;
}

// Eigenpairs of the symmetric part of T, ascending.
struct Ritz {
  VectorXd values, residuals;
  MatrixXd s;  // columns
};

Ritz ritz(const Krylov& k) {
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver((k.t + k.t.transpose()) / 2);
  if (solver.info() != Eigen::Success)
    fail(ErrorCode::internal, "hessian: no eigenvalues of the {} Lanczos vectors", k.t.rows());
  Ritz out{solver.eigenvalues(), VectorXd(k.t.rows()), solver.eigenvectors()};
  // H y − ϑ y = Q (T − ϑ) s + r (last entry of s)
  const MatrixXd inside = k.t * out.s - out.s * out.values.asDiagonal();
  for (int64_t i = 0; i < out.values.size(); ++i)
    out.residuals[i] = std::hypot(inside.col(i).norm(), k.rest * out.s(k.t.rows() - 1, i));
  return out;
}

// The direction y = Q s of value i.
VectorXd direction(const Krylov& k, const Ritz& r, int64_t i) {
  VectorXd y = VectorXd::Zero(k.q.rows());
  for (int64_t j = 0; j < k.q.cols(); ++j) y += r.s(j, i) * k.q.col(j).cast<double>();
  return y;
}

// The largest step that is exact enough where H is largest. What comes from the step falls to a sixteenth with each
// quarter, what comes from rounding rises fourfold: the change by the next quarter is the error but for a tenth.
double choose_step(Products& products, const VectorXd& start) {
  const Krylov k = lanczos(products, start, std::min(kSteepSteps, products.size()), nullptr);
  const Ritz r = ritz(k);
  int64_t steepest = 0;
  r.values.cwiseAbs().maxCoeff(&steepest);
  const VectorXd v = direction(k, r, steepest);
  double best = products.step, least = INFINITY;
  VectorXd now = products.by_step(v, best);
  double c = best;
  for (int i = 0; i < kQuarters; ++i) {
    const VectorXd next = products.by_step(v, c / 4);
    const double change = (now - next).norm();
    if (change >= least) break;
    best = c;
    least = change;
    if (change <= kEnough * next.norm()) break;
    c /= 4;
    now = next;
  }
  return best;
}

// With products off by E, u·Hv − v·Hu over the K Lanczos vectors is QᵀE − EᵀQ, of norm ≤ 2‖E‖ ≤ 2√K times the error of
// one product.
void check_symmetry(HessianSpectrum& out, const Krylov& k, double error) {
  const double defect = (k.t - k.t.transpose()).norm(), norm = k.t.norm();
  const double bound = 2 * std::sqrt(static_cast<double>(k.t.rows())) * error;
  out.symmetry_defect = norm > 0 ? defect / norm : 0;
  if (defect <= bound) return;
  fail(ErrorCode::numeric,
       "hessian: u·Hv and v·Hu differ by {:.3g} of their size, where the error of the products explains {:.3g}; H is "
       "not symmetric, so the callback is no gradient of one loss",
       out.symmetry_defect, bound / norm);
}

// Part of the measure of one probe.
struct Shares {
  double negative = 0, zero = 0, weight = 0, resolution = 0;
};

Shares shares(const Krylov& k, double band) {
  const Ritz r = ritz(k);
  Shares out;
  double all = 0;
  for (int64_t i = 0; i < r.values.size(); ++i) {
    const double value = r.values[i], weight = r.s(0, i) * r.s(0, i);
    const bool below = value < -band, beside = i == 0 || r.values[i - 1] < -band;
    if (below) out.negative += weight;
    // Chebyshev, Markov and Stieltjes: what the measure has below a point between two nodes is what the nodes have
    // there, less at most the last one before the point, plus at most the first behind it. Of a space that has ended
    // the nodes have the measure itself.
    if (k.rest > 0 && below) out.resolution = weight;
    if (k.rest > 0 && !below && beside) out.resolution = std::max(out.resolution, weight);
    if (std::abs(value) <= band) out.zero += weight;
    if (value < 0) out.weight += weight * -value;
    all += weight * std::abs(value);
  }
  if (all > 0) out.weight /= all;
  return out;
}

HessianShare average(const std::vector<Shares>& probes, double Shares::*part) {
  const double n = static_cast<double>(probes.size());
  HessianShare out;
  for (const Shares& p : probes) out.mean += p.*part / n;
  for (const Shares& p : probes) out.error += std::pow(p.*part - out.mean, 2) / (n * (n - 1));
  out.error = std::sqrt(out.error);
  return out;
}

}  // namespace

void hessian_product(std::span<double> out, const Gradient& gradient, std::span<const double> theta,
                     std::span<const double> v, double step) {
  HessianOptions options;
  options.step = step;
  check(theta, options);
  if (v.size() != theta.size() || out.size() != theta.size()) {
    fail(ErrorCode::shape, "hessian: {} parameters, a vector of {} and a result of {}", theta.size(), v.size(),
         out.size());
  }
  Products products(gradient, theta, options, 1);
  Eigen::Map<VectorXd>(out.data(), products.size()) = products(Eigen::Map<const VectorXd>(v.data(), products.size()));
}

HessianSpectrum hessian_spectrum(const Gradient& gradient, std::span<const double> theta,
                                 const HessianOptions& options) {
  check(theta, options);
  const auto size = static_cast<int64_t>(theta.size());
  const int64_t steps = std::min(options.lanczos_steps, size), nodes = std::min(options.quadrature_steps, size);
  Products products(gradient, theta, options, kSteepSteps + 1 + kQuarters + steps + options.probes * nodes + 6);
  HessianSpectrum out;
  out.parameters = size;
  {
    Rng rng(options.seed);
    const VectorXd start = normals(size, rng);
    out.step = products.step = choose_step(products, start);

    // 1. The ends.
    const Krylov k = lanczos(products, start, steps, &rng);
    const Ritz r = ritz(k);
    const int64_t ends[] = {0, steps - 1}, count = std::min(options.values, steps);
    for (int64_t i = 0; i < count; ++i) {
      out.lowest.push_back({r.values[i], r.residuals[i]});
      out.highest.push_back({r.values[ends[1] - i], r.residuals[ends[1] - i]});
    }
    const double scale = r.values.cwiseAbs().maxCoeff();

    // 2. How exact the products are, and whether they are symmetric.
    double changed = products.step_error(k.q.col(0).cast<double>());  // a random direction
    for (const int64_t end : ends) changed = std::max(changed, products.step_error(direction(k, r, end)));
    out.step_error = scale > 0 ? changed / scale : 0;
    out.zero_band = changed * 4 / 3 + kStorage * scale;
    check_symmetry(out, k, out.zero_band);
  }

  // 3. The shares: one stream of random numbers a probe.
  std::vector<Shares> probes;
  for (int64_t p = 0; p < options.probes; ++p) {
    Rng rng(options.seed, static_cast<uint64_t>(p) + 1);
    probes.push_back(shares(lanczos(products, signs(size, rng), nodes, nullptr), out.zero_band));
    out.share_resolution += probes.back().resolution / static_cast<double>(options.probes);
  }
  out.negative_share = average(probes, &Shares::negative);
  out.zero_share = average(probes, &Shares::zero);
  out.negative_weight = average(probes, &Shares::weight);
  out.products = products.count();
  return out;
}

}  // namespace unchain::analysis
