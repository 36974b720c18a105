// The spectrum from gradients against dense Hessians: quadratics of planted spectrum, and a small net in double.
#include "analysis/hessian.h"

#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/thread.h"
#include "support/gradient_check.h"
#include "support/random_values.h"
#include "unchain/error.h"

namespace unchain::analysis {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using test::random_doubles;

constexpr double kEpsF64 = 0x1p-53;

MatrixXd random_matrix(int64_t n, uint64_t seed) {
  const std::vector<double> x = random_doubles(static_cast<size_t>(n * n), seed);
  return Eigen::Map<const MatrixXd>(x.data(), n, n);
}

// A symmetric matrix with these eigenvalues and random eigenvectors.
MatrixXd planted(const std::vector<double>& values, uint64_t seed) {
  const auto n = static_cast<int64_t>(values.size());
  const MatrixXd q = Eigen::HouseholderQR<MatrixXd>(random_matrix(n, seed)).householderQ();
  const MatrixXd a = q * Eigen::Map<const VectorXd>(values.data(), n).asDiagonal() * q.transpose();
  return (a + a.transpose()) / 2;
}

// ∇ of ½(θ − 1)ᵀA(θ − 1), where A is symmetric.
Gradient quadratic(const MatrixXd& a) {
  return [&a](std::span<double> g, std::span<const double> theta) {
    for (int64_t i = 0; i < a.rows(); ++i) {
      double sum = 0;
      for (int64_t j = 0; j < a.cols(); ++j) sum += a(i, j) * (theta[static_cast<size_t>(j)] - 1);
      g[static_cast<size_t>(i)] = sum;
    }
  };
}

double norm(const std::vector<double>& x) {
  return std::sqrt(test::dot(x, x));
}

// What a product with a quadratic's H may be off by: each of the two gradients has θ ± εv rounded once, and sums of P
// products whose terms are at most |a_ij|·|θ_j − 1|, in all at most ‖A‖_F·‖θ − 1‖.
double rounding(const MatrixXd& a, const std::vector<double>& theta, double step) {
  const double p = static_cast<double>(a.rows()), length = norm(theta) + std::sqrt(p) + 1;
  return 2 * (p + 3) * kEpsF64 * a.norm() * length / (2 * step * (1 + norm(theta)));
}

HessianOptions in_f64() {
  HessianOptions options;
  options.step = kHessianStepF64;
  return options;
}

// Lanczos vectors rounded to f32 have products with each other off by at most 2⁻²³, so that the K × K matrix of them is
// off by at most K·2⁻²³ in norm, and every value by that times ‖H‖. An error e of each product moves a value by at most
// √K·e.
double value_bound(int64_t vectors, double norm_of_h, double product_error) {
  const double k = static_cast<double>(vectors);
  return k * 0x1p-23 * norm_of_h + std::sqrt(k) * product_error;
}

void expect_ends(const HessianSpectrum& found, const VectorXd& ascending, size_t count, double bound) {
  ASSERT_EQ(found.lowest.size(), count);
  ASSERT_EQ(found.highest.size(), count);
  for (size_t i = 0; i < count; ++i) {
    const auto k = static_cast<int64_t>(i);
    EXPECT_NEAR(found.lowest[i].value, ascending[k], bound) << "lowest " << i;
    EXPECT_NEAR(found.highest[i].value, ascending[ascending.size() - 1 - k], bound) << "highest " << i;
    EXPECT_LE(found.lowest[i].residual, bound) << "lowest " << i;
    EXPECT_LE(found.highest[i].residual, bound) << "highest " << i;
  }
}

// A share by quadrature is zᵀFz/P averaged over 4 vectors z of random signs, F the projector on the eigenvectors that
// count: mean tr F/P, variance 2(‖F‖² − ΣF_ii²)/P² each. Four standard deviations, and 1e-6 for the error of the nodes.
void expect_shares(const HessianSpectrum& found, const MatrixXd& a, double band) {
  const Eigen::SelfAdjointEigenSolver<MatrixXd> dense(a);
  const double p = static_cast<double>(a.rows());
  const auto expect = [&](const HessianShare& share, const VectorXd& counts, double all, const char* name) {
    const MatrixXd f = dense.eigenvectors() * counts.asDiagonal() * dense.eigenvectors().transpose();
    const double mean = counts.sum() / all;
    const double deviation = std::sqrt(std::max(0.0, f.squaredNorm() - f.diagonal().squaredNorm()) / 2) / all;
    EXPECT_NEAR(share.mean, mean, 4 * deviation + 1e-6) << name;
    EXPECT_LE(share.error, 4 * deviation + 1e-6) << name;
  };
  const auto& values = dense.eigenvalues();
  const VectorXd negative = values.unaryExpr([&](double x) { return x < -band ? 1.0 : 0.0; });
  const VectorXd zero = values.unaryExpr([&](double x) { return std::abs(x) <= band ? 1.0 : 0.0; });
  expect(found.negative_share, negative, p, "negative");
  expect(found.zero_share, zero, p, "zero");
}

std::vector<double> clustered() {
  std::vector<double> values = {-2, -1.5, 3, 8};
  for (int i = 0; i < 9; ++i) values.push_back(-1e-3 - 1e-6 * i);
  for (int i = 0; i < 11; ++i) values.push_back(1e-2 + 1e-7 * i);
  return values;
}

TEST(Hessian, ProductOfAQuadratic) {
  const MatrixXd a = planted(clustered(), 1);
  const std::vector<double> theta = random_doubles(24, 2);
  VectorXd v = Eigen::Map<const VectorXd>(random_doubles(24, 3).data(), 24).normalized();
  for (const double step : {kHessianStepF32, kHessianStepF64}) {
    std::vector<double> out(24);
    hessian_product(out, quadratic(a), theta, {v.data(), 24}, step);
    EXPECT_LE((Eigen::Map<const VectorXd>(out.data(), 24) - a * v).norm(), rounding(a, theta, step));
  }
}

TEST(Hessian, PlantedSpectra) {
  const std::vector<std::vector<double>> spectra = {
      clustered(),
      {-3, -1, -0.5, 0.25, 1, 2, 7},                                      // fewer than two ends
      {2.5},                                                              //
      {-4, 4},                                                            //
      {-2, -2, -2, 1, 1, 1, 1, 3, 3, 5, 5, 5},                            // repeated
      {-2, -1, -1, 0, 0, 0, 0.5, 1, 1, 2, 3, 3, 4, 6, 6, 6, 6, 6, 6, 8},  // exact zeros
      {-1e6, -3e5, 2e4, 5e5, 1e6},                                        // large
      {-7e-9, -1e-9, 2e-9, 5e-9}};                                        // small
  for (size_t n = 0; n < spectra.size(); ++n) {
    SCOPED_TRACE(n);
    std::vector<double> values = spectra[n];
    std::sort(values.begin(), values.end());
    const auto size = static_cast<int64_t>(values.size());
    const MatrixXd a = planted(values, 10 + n);
    const std::vector<double> theta = random_doubles(values.size(), 30 + n);
    const double largest = std::max(std::abs(values.front()), std::abs(values.back()));
    const double bound = value_bound(size, largest, rounding(a, theta, kHessianStepF64));
    const HessianSpectrum found = hessian_spectrum(quadratic(a), theta, in_f64());
    EXPECT_EQ(found.parameters, size);
    EXPECT_EQ(found.step, kHessianStepF64);  // exact for a quadratic
    expect_ends(found, Eigen::Map<const VectorXd>(values.data(), size), std::min<size_t>(10, values.size()), bound);
    expect_shares(found, a, 1e-4 * largest / 8);  // between the zeros, off by 1e-16, and the least other value
    EXPECT_EQ(found.share_resolution, 0);         // the quadrature has all P nodes
    EXPECT_LE(found.symmetry_defect, 2 * bound / largest);
    EXPECT_LE(found.step_error, bound / largest);
  }
}

// On a diagonal every vector of signs has each eigenvalue's share exactly: nothing is left to chance.
TEST(Hessian, SharesOfADiagonalAreExact) {
  const std::vector<double> values = {-3, -2, -1, -0.5, 0, 0, 1, 2, 3, 5, 8};
  const MatrixXd a = Eigen::Map<const VectorXd>(values.data(), 11).asDiagonal();
  const HessianSpectrum found = hessian_spectrum(quadratic(a), random_doubles(11, 1), in_f64());
  for (const auto& [share, expected] :
       {std::pair{found.negative_share, 4.0 / 11}, {found.zero_share, 2.0 / 11}, {found.negative_weight, 6.5 / 25.5}}) {
    EXPECT_NEAR(share.mean, expected, 1e-6);
    EXPECT_LE(share.error, 1e-6);
  }
}

// 300 values, of which Lanczos sees 60 vectors: ten at each end stand apart from the rest in −0.5 … 0.5. After one step
// for each of the twenty, forty are left, in which an error shrinks at least by (x + √(x² − 1))⁴⁰ for the least of
// them, x = 4: to 1e-35 of the start, so that all twenty are exact. The share of −2.5 … 0 is not: no more than the
// resolution says.
TEST(Hessian, EndsOfALargerSpectrum) {
  std::vector<double> values;
  values.reserve(300);
  for (int i = 0; i < 10; ++i) values.push_back(-3 + 0.1 * i);
  for (int i = 0; i < 280; ++i) values.push_back(-0.5 + i / 279.0);
  for (int i = 0; i < 10; ++i) values.push_back(2 + 0.2 * i);
  const MatrixXd a = planted(values, 5);
  const std::vector<double> theta = random_doubles(300, 6);
  HessianOptions options = in_f64();
  options.probes = 16;
  const HessianSpectrum found = hessian_spectrum(quadratic(a), theta, options);
  expect_ends(found, Eigen::Map<const VectorXd>(values.data(), 300), 10,
              value_bound(60, 3.8, rounding(a, theta, kHessianStepF64)));
  // 150 of 300 values are negative; a projector of rank 150 has SD √(2·(150 − ΣF_ii²))/300 ≤ √(2·75)/300 a probe.
  EXPECT_NEAR(found.negative_share.mean, 0.5, 4 * std::sqrt(150.0 / 16) / 300 + found.share_resolution);
  EXPECT_GT(found.share_resolution, 0);
  EXPECT_LT(found.share_resolution, 0.15);  // 10 of 30 nodes at the ends, the rest share 280/300
  EXPECT_EQ(found.products, 8 + 2 + 60 + 16 * 30 + 6);
}

// A gap around 0, in which at most one node can fall, and that with a weight that decays: the share is exact to 1e-4
// although 30 nodes stand for 200 values.
TEST(Hessian, ShareAcrossAGap) {
  std::vector<double> values;
  values.reserve(200);
  for (int i = 0; i < 60; ++i) values.push_back(-2 + i / 59.0);
  for (int i = 0; i < 140; ++i) values.push_back(1 + i / 139.0);
  const MatrixXd a = planted(values, 7);
  const HessianSpectrum found = hessian_spectrum(quadratic(a), random_doubles(200, 8), in_f64());
  // F of rank 60: 60 − ΣF_ii² ≤ 60 − 60²/200 = 42.
  const double deviation = std::sqrt(2 * 42.0 / 4) / 200;
  EXPECT_NEAR(found.negative_share.mean, 0.3, 4 * deviation + 1e-4);
  EXPECT_GT(found.negative_share.error, 0);
  EXPECT_LT(found.negative_share.error, 3 * deviation);  // χ² of 3 degrees above 27: one in 10⁵
  // |λ| has mean 1.5 on both sides.
  EXPECT_NEAR(found.negative_weight.mean, 0.3, 4 * deviation * 4 / 3 + 1e-4);
}

// ½θᵀAθ + κ/24·(u·θ)⁴ with ‖u‖ = 1: H = A + κ/2·(u·θ)²·uuᵀ, and a product with u is off by ε²κ/6. With the first c
// that is 8, or 0.3 of the value, and falls to a sixteenth with each quarter: below 1e-3 after three.
TEST(Hessian, TheStepShrinksWhereTheLossIsFarFromQuadratic) {
  constexpr double kFourth = 600;
  const MatrixXd a = planted({-1, -0.5, 0.1, 0.2, 0.3, 0.5, 0.7, 1}, 2);
  std::vector<double> theta(8, 100), u(8, std::sqrt(0.125));
  for (size_t i = 1; i < 8; i += 2) theta[i] = -100;  // u·θ = 0
  for (double& x : theta) x += 0.3 * u[0];            // u·θ = 0.3
  const Gradient gradient = [&](std::span<double> g, std::span<const double> at) {
    const double along = test::dot(u, std::vector<double>(at.begin(), at.end()));
    for (size_t i = 0; i < 8; ++i) {
      g[i] = kFourth / 6 * std::pow(along, 3) * u[i];
      for (size_t j = 0; j < 8; ++j) g[i] += a(static_cast<int64_t>(i), static_cast<int64_t>(j)) * at[j];
    }
  };
  const Eigen::Map<const VectorXd> direction(u.data(), 8);
  const MatrixXd h = a + kFourth / 2 * 0.09 * direction * direction.transpose();
  const VectorXd values = Eigen::SelfAdjointEigenSolver<MatrixXd>(h).eigenvalues();
  const HessianSpectrum found = hessian_spectrum(gradient, theta, {});
  EXPECT_EQ(found.step, kHessianStepF32 / 64);
  const double epsilon = found.step * (1 + norm(theta)), product = epsilon * epsilon / 6 * kFourth;
  EXPECT_LE(product, 1e-3 * values[7]);
  expect_ends(found, values, 8, value_bound(8, values[7], product));
  EXPECT_LE(found.step_error, 1e-3);
}

TEST(Hessian, OfALinearLossIsZero) {
  const Gradient constant = [](std::span<double> g, std::span<const double>) { std::iota(g.begin(), g.end(), -1.0); };
  const HessianSpectrum found = hessian_spectrum(constant, random_doubles(5, 1));
  ASSERT_EQ(found.lowest.size(), 5u);
  for (const HessianValue& v : found.lowest) {
    EXPECT_EQ(v.value, 0);
    EXPECT_EQ(v.residual, 0);
  }
  EXPECT_EQ(found.negative_share.mean, 0);
  EXPECT_EQ(found.negative_weight.mean, 0);
  EXPECT_NEAR(found.zero_share.mean, 1, 1e-12);
  EXPECT_EQ(found.symmetry_defect, 0);
  EXPECT_EQ(found.step_error, 0);
}

// Two layers with tanh: loss = mean over samples of ½(w₂·tanh(W₁x + b₁) + b₂ − y)², 4·5 + 5 + 1 parameters.
struct TanhNet {
  static constexpr size_t kInputs = 3, kHidden = 5, kSamples = 12, kParameters = kHidden * (kInputs + 2) + 1;
  std::vector<double> x = random_doubles(kSamples * kInputs, 51), y = random_doubles(kSamples, 52);

  // g may be empty. θ: for each hidden unit its weights, bias and outgoing weight; then b₂.
  double loss(std::span<double> g, std::span<const double> theta) const {
    std::fill(g.begin(), g.end(), 0.0);
    double sum = 0;
    for (size_t s = 0; s < kSamples; ++s) {
      double out = theta[kParameters - 1], h[kHidden];
      for (size_t u = 0; u < kHidden; ++u) {
        const double* unit = &theta[u * (kInputs + 2)];
        double score = unit[kInputs];
        for (size_t i = 0; i < kInputs; ++i) score += unit[i] * x[s * kInputs + i];
        h[u] = std::tanh(score);
        out += unit[kInputs + 1] * h[u];
      }
      const double error = (out - y[s]) / kSamples;
      sum += error * (out - y[s]) / 2;
      if (g.empty()) continue;
      for (size_t u = 0; u < kHidden; ++u) {
        double* unit = &g[u * (kInputs + 2)];
        const double d_score = error * theta[u * (kInputs + 2) + kInputs + 1] * (1 - h[u] * h[u]);
        for (size_t i = 0; i < kInputs; ++i) unit[i] += d_score * x[s * kInputs + i];
        unit[kInputs] += d_score;
        unit[kInputs + 1] += error * h[u];
      }
      g[kParameters - 1] += error;
    }
    return sum;
  }
  Gradient gradient() const {
    return [this](std::span<double> g, std::span<const double> theta) { loss(g, theta); };
  }
};

// Differences of the gradient by four points, h = 2e-3: off by h⁴/30 = 5e-13 of the sixth derivative and 1e-13 of
// rounding.
MatrixXd dense_hessian(const Gradient& gradient, const std::vector<double>& theta) {
  constexpr double kStep = 2e-3;
  const auto n = static_cast<int64_t>(theta.size());
  MatrixXd h(n, n);
  for (int64_t i = 0; i < n; ++i) {
    const auto at = [&](double step) {
      std::vector<double> moved = theta, g(theta.size());
      moved[static_cast<size_t>(i)] += step;
      gradient(g, moved);
      return VectorXd(Eigen::Map<const VectorXd>(g.data(), n));
    };
    h.col(i) = (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
  }
  return (h + h.transpose()) / 2;
}

TEST(Hessian, OfANetAgreesWithTheDenseOne) {
  const TanhNet net;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<double> theta = random_doubles(TanhNet::kParameters, 60 + seed);
    std::vector<double> g(theta.size());
    net.loss(g, theta);
    ASSERT_TRUE(test::gradients_agree(
        g, test::differences(theta, [&](const std::vector<double>& at) { return net.loss({}, at); })));
    const MatrixXd dense = dense_hessian(net.gradient(), theta);
    const VectorXd values = Eigen::SelfAdjointEigenSolver<MatrixXd>(dense).eigenvalues();
    const double largest = values.cwiseAbs().maxCoeff();
    ASSERT_LT(values[0], -0.01);  // a spectrum of both signs
    const double length = 1 + norm(theta);
    for (const bool narrow : {false, true}) {
      const Gradient gradient = [&](std::span<double> out, std::span<const double> at) {
        net.loss(out, at);
        for (double& x : out) x = narrow ? static_cast<double>(static_cast<float>(x)) : x;
      };
      HessianOptions options;
      options.step = narrow ? kHessianStepF32 : kHessianStepF64;
      options.seed = seed;
      const HessianSpectrum found = hessian_spectrum(gradient, theta, options);
      // f32 gradients: rounded to f32. Along a direction of unit length the fourth derivative is below 100: a unit's
      // derivatives are those of tanh, at most 2, 2, 4, 8, times |x| ≤ 3 to the same power, seldom all at once.
      const double epsilon = found.step * length;
      const double product = epsilon * epsilon / 6 * 100 + (narrow ? 0x1p-24 : 100 * kEpsF64) * norm(g) / epsilon;
      expect_ends(found, values, 10, value_bound(TanhNet::kParameters, largest, product));
      EXPECT_LE(found.step_error * largest, 2 * product);
      if (!narrow) expect_shares(found, dense, found.zero_band);
    }
  }
}

std::string error_of(const Gradient& gradient, const std::vector<double>& theta, const HessianOptions& options,
                     ErrorCode code) {
  try {
    hessian_spectrum(gradient, theta, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Hessian, WhatIsNoGradientIsNotSymmetric) {
  const TanhNet net;
  const std::vector<double> theta = random_doubles(TanhNet::kParameters, 61);
  for (const double step : {kHessianStepF64, kHessianStepF32}) {
    HessianOptions options;
    options.step = step;
    // A factor forgotten in one of 26 gradients, here a hundredth; and a field that turns.
    const Gradient scaled = [&](std::span<double> g, std::span<const double> at) {
      net.loss(g, at);
      g[4] *= 1.01;
    };
    const Gradient turning = [&](std::span<double> g, std::span<const double> at) {
      net.loss(g, at);
      g[0] += 1e-2 * at[7];
      g[7] -= 1e-2 * at[0];
    };
    for (const Gradient& wrong : {scaled, turning}) {
      EXPECT_NE(error_of(wrong, theta, options, ErrorCode::numeric).find("not symmetric"), std::string::npos);
    }
    EXPECT_EQ(error_of(net.gradient(), theta, options, ErrorCode::numeric), "no error");
  }
  // Noise is no asymmetry: gradients with an error of 1e-5 that depends on θ in no regular way.
  HessianOptions options;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    options.seed = seed;
    const Gradient noisy = [&](std::span<double> g, std::span<const double> at) {
      net.loss(g, at);
      for (size_t i = 0; i < g.size(); ++i) {
        uint64_t bits = 0;
        std::memcpy(&bits, &at[i], sizeof bits);
        g[i] += 1e-5 * Rng(bits, i).normal();
      }
    };
    EXPECT_EQ(error_of(noisy, theta, options, ErrorCode::numeric), "no error");
  }
}

// S + K with K antisymmetric, and all P vectors: the defect is ‖2K‖/‖S + K‖, whatever the basis.
TEST(Hessian, TheSymmetryDefectIsThatOfThePlantedOne) {
  const MatrixXd s = planted(clustered(), 3), r = random_matrix(24, 4);
  for (const double size : {1e-4, 1e-2, 1.0}) {
    const MatrixXd a = s + size * (r - r.transpose());
    const std::string message = error_of(quadratic(a), random_doubles(24, 5), in_f64(), ErrorCode::numeric);
    const size_t at = message.find("differ by ");
    ASSERT_NE(at, std::string::npos) << message;
    const double expected = 2 * size * (r - r.transpose()).norm() / a.norm();
    EXPECT_NEAR(std::stod(message.substr(at + 10)), expected, 0.006 * expected + 24 * 0x1p-23) << message;  // 3 digits
  }
}

TEST(Hessian, SameSeedSameBitsForAnyNumberOfThreads) {
  constexpr size_t kSize = 20000;  // several ranges of the threads
  const Gradient quartic = [](std::span<double> g, std::span<const double> theta) {
    for (size_t i = 0; i < g.size(); ++i)
      g[i] = (static_cast<double>(i) / kSize - 0.3) * theta[i] + std::pow(theta[i], 3);
  };
  const std::vector<double> theta = random_doubles(kSize, 1, 0.1);
  HessianOptions options = in_f64();
  options.lanczos_steps = 20;
  options.quadrature_steps = 8;
  const auto numbers = [&](uint64_t seed, int threads) {
    options.seed = seed;
    set_threads(threads);
    const HessianSpectrum f = hessian_spectrum(quartic, theta, options);
    set_threads(0);
    std::vector<double> all = {f.negative_share.mean,  f.negative_share.error, f.zero_share.mean,
                               f.negative_weight.mean, f.share_resolution,     f.zero_band,
                               f.step_error,           f.symmetry_defect};
    for (const auto* end : {&f.lowest, &f.highest}) {
      for (const HessianValue& v : *end) {
        all.push_back(v.value);
        all.push_back(v.residual);
      }
    }
    return all;
  };
  const std::vector<double> one = numbers(1, 1);
  EXPECT_TRUE(test::same_bits(one, numbers(1, 2)));
  EXPECT_TRUE(test::same_bits(one, numbers(1, 1)));
  EXPECT_NE(one, numbers(2, 1));
}

TEST(Hessian, ProgressCountsEveryProduct) {
  const MatrixXd a = planted(clustered(), 1);
  HessianOptions options = in_f64();
  std::vector<int64_t> done, most;
  options.progress = [&](int64_t d, int64_t m) {
    done.push_back(d);
    most.push_back(m);
  };
  int64_t gradients = 0;
  const Gradient counted = [&](std::span<double> g, std::span<const double> theta) {
    ++gradients;
    quadratic(a)(g, theta);
  };
  const HessianSpectrum found = hessian_spectrum(counted, random_doubles(24, 1), options);
  EXPECT_EQ(found.products, 8 + 2 + 24 + 4 * 24 + 6);  // the first step that is tried is exact enough
  EXPECT_EQ(gradients, 2 * found.products);
  ASSERT_EQ(done.size(), static_cast<size_t>(found.products));
  for (size_t i = 0; i < done.size(); ++i) {
    EXPECT_EQ(done[i], static_cast<int64_t>(i) + 1);
    EXPECT_EQ(most[i], 8 + 11 + 24 + 4 * 24 + 6);
  }
}

TEST(Hessian, Errors) {
  const MatrixXd a = planted(clustered(), 1);
  const std::vector<double> theta = random_doubles(24, 1);
  int calls = 0;
  const Gradient broken = [&](std::span<double> g, std::span<const double> at) {
    quadratic(a)(g, at);
    if (++calls == 6) g[17] = std::numeric_limits<double>::quiet_NaN();
  };
  const std::string message = error_of(broken, theta, {}, ErrorCode::numeric);
  EXPECT_NE(message.find("product 3"), std::string::npos) << message;
  EXPECT_NE(message.find("parameter 17"), std::string::npos) << message;
  EXPECT_NE(error_of(quadratic(a), {}, {}, ErrorCode::shape).find("no parameters"), std::string::npos);
  EXPECT_NE(error_of(quadratic(a), {1, INFINITY}, {}, ErrorCode::numeric).find("parameter 1 is inf"),
            std::string::npos);
  const auto refused = [&](auto change) {
    HessianOptions options;
    change(options);
    return error_of(quadratic(a), theta, options, ErrorCode::usage) != "no error";
  };
  EXPECT_TRUE(refused([](HessianOptions& o) { o.step = 0; }));
  EXPECT_TRUE(refused([](HessianOptions& o) { o.step = NAN; }));
  EXPECT_TRUE(refused([](HessianOptions& o) { o.values = 0; }));
  EXPECT_TRUE(refused([](HessianOptions& o) { o.lanczos_steps = 0; }));
  EXPECT_TRUE(refused([](HessianOptions& o) { o.quadrature_steps = 0; }));
  EXPECT_TRUE(refused([](HessianOptions& o) { o.probes = 1; }));
  std::vector<double> out(24);
  EXPECT_THROW(hessian_product(out, quadratic(a), theta, std::vector<double>(23), 1e-5), Error);
}

}  // namespace
}  // namespace unchain::analysis
