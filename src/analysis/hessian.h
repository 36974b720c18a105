// The Hessian H of a loss at θ, from gradients alone: both ends of its spectrum, and how much of it lies below zero.
//   H v ≈ (∇f(θ + εv) − ∇f(θ − εv))/2ε with ‖v‖ = 1, ε = c·(1 + ‖θ‖)
//   ends: Lanczos with full re-orthogonalisation, H Q = Q T + r eᵀ; an eigenpair (ϑ, s) of T is one of H, y = Q s, up
//   to
//         its residual ‖H y − ϑ y‖
//   shares: stochastic Lanczos quadrature; the measure of a random vector z has weight (first entry of s)² at each ϑ
// Sources: Golub & Van Loan, "Matrix Computations", 10.1; Ubaru, Chen & Saad, SIAM J. Matrix Anal. Appl. 38 (2017),
// section 3; Ghorbani, Krishnan & Xiao, ICML 2019 (the same on trained nets). What it tells: docs/analyses/hessian.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace unchain::analysis {

// g[P] = ∇f(theta[P]). It is called from one thread, again and again, and gives equal bits for equal theta.
using Gradient = std::function<void(std::span<double> g, std::span<const double> theta)>;

// The largest c for gradients computed in f32 and in f64.
inline constexpr double kHessianStepF32 = 1e-3, kHessianStepF64 = 1e-5;

struct HessianOptions {
  double step = kHessianStepF32;  // the largest c that is tried
  int64_t values = 10;            // of each end
  int64_t lanczos_steps = 60;     // P where that is less; so are quadrature_steps
  int64_t probes = 4;             // random vectors of the quadrature, at least 2
  int64_t quadrature_steps = 30;
  uint64_t seed = 0;
  std::function<void(int64_t done, int64_t most)> progress;  // after each product with H; may be empty
};

struct HessianValue {
  double value = 0;
  double residual = 0;  // ‖H y − value·y‖: an eigenvalue lies within it, but for the error of a product
};

// An average over probes; error: its standard error.
struct HessianShare {
  double mean = 0, error = 0;
};

struct HessianSpectrum {
  std::vector<HessianValue> lowest, highest;  // outermost first; values of each, or lanczos_steps if less
  HessianShare negative_share;                // part of the eigenvalues below −zero_band, 0 … 1
  HessianShare zero_share;                    // within zero_band of 0: their sign is not known
  HessianShare negative_weight;               // Σ_{λ<0} |λ|/Σ|λ|, 0 … 1
  // The heavier node beside −zero_band: for its probes negative_share is off by at most this.
  double share_resolution = 0;
  double zero_band = 0;  // what a product with H may be off by, and so a value
  double step = 0;       // c that was taken
  // The largest difference of H v by steps ε and ε/2 over the largest |value|; v random and at both ends.
  double step_error = 0;
  double symmetry_defect = 0;  // √Σ(u·Hv − v·Hu)²/√Σ(u·Hv)² over all pairs of Lanczos vectors
  int64_t parameters = 0, products = 0;
};

// out[P] = H v by one central difference; v[P] is of unit length; `step` is c. out overlaps nothing. Off by ε²/6 of the
// fourth derivative along v, and by the rounding of the gradient over ε. Errors: shape (lengths differ); numeric (a
// gradient that is not finite).
void hessian_product(std::span<double> out, const Gradient& gradient, std::span<const double> theta,
                     std::span<const double> v, double step);

// The spectrum at theta[P]. First c is chosen: from options.step down by quarters, until the product with the steepest
// direction of 8 Lanczos steps is off by less than 1e-3 of itself, or by the least there is. About
// 2·(lanczos_steps + probes·quadrature_steps + 20) gradients. Memory: 4·P bytes for each Lanczos vector, kept as f32,
// and some 60·P. f32 moves values by some 2⁻²³ of the largest |value|, far less than f32 gradients do. A value that
// repeats is found as often as it does only if lanczos_steps reaches P. The same bits for the same seed and any number
// of threads, if the gradients have them. Errors: usage (an option out of range); shape (no parameters); numeric (theta
// or a gradient not finite; u·Hv and v·Hu further apart than the error of the products explains: the callback is no
// gradient).
HessianSpectrum hessian_spectrum(const Gradient& gradient, std::span<const double> theta,
                                 const HessianOptions& options = {});

}  // namespace unchain::analysis
