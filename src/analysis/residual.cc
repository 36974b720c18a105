#include "analysis/residual.h"

#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace unchain::analysis {
namespace {

struct Products {
  double xx = 0, rr = 0, xr = 0;
};

Products products(const float* x, const float* r, int64_t width) {
  Products p;
  for (int64_t i = 0; i < width; ++i) {
    const double a = x[i], b = r[i];
    p.xx += a * a;
    p.rr += b * b;
    p.xr += a * b;
  }
  return p;
}

// The same of a random direction of the norm that r has.
Products randomised(const float* x, Products of_write, int64_t width, Rng& rng) {
  double squares = 0, inner = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double u = rng.normal();
    squares += u * u;
    inner += u * static_cast<double>(x[i]);
  }
  of_write.xr = inner * std::sqrt(of_write.rr / squares);
  return of_write;
}

}  // namespace

ResidualWrites::ResidualWrites(uint64_t seed) : seed_(seed) {}

void ResidualWrites::on_residual(const attention::ResidualPanel& panel) {
  LayerState& state = layers_[panel.layer];
  state.noise_term = panel.noise != nullptr;
  const auto add = [](Sums& sums, const Products& p) {
    const auto to = [](Mean& mean, double value) {
      mean.sum += value;
      ++mean.count;
    };
    if (p.xx == 0) return;
    if (p.rr > 0) to(sums.cosine, p.xr / (std::sqrt(p.xx) * std::sqrt(p.rr)));
    to(sums.size, std::sqrt(p.rr / p.xx));
    to(sums.removed, -p.xr / p.xx);
  };
  for (int64_t row = 0; row < panel.rows; ++row) {
    const int64_t position = panel.first_row + row, at = row * panel.width;
    if (position == 0) continue;
    const auto of_term = [&](const float* write) {
      const Products p = products(panel.x + at, write + at, panel.width);
      if (!std::isfinite(p.xx) || !std::isfinite(p.rr))
        fail(ErrorCode::numeric, "residual stream: layer {}, position {}: not finite", panel.layer, position);
      return p;
    };
    add(state.sums[kPositive], of_term(panel.positive));
    if (panel.noise == nullptr) continue;
    const Products noise = of_term(panel.noise);
    add(state.sums[kNoise], noise);
    // A stream for each row of each layer of each window: 2²⁴ positions, 2¹⁶ layers.
    Rng rng(seed_, (ended_ << 40) + (static_cast<uint64_t>(panel.layer) << 24) + static_cast<uint64_t>(position));
    add(state.sums[kRandom], randomised(panel.x + at, noise, panel.width, rng));
  }
}

void ResidualWrites::end_window() {
  if (layers_.empty()) fail(ErrorCode::usage, "residual stream: the window has no rows");
  for (auto& [layer, state] : layers_) {
    for (int term = 0; term < kTerms; ++term) {
      Sums& sums = state.sums[term];
      const auto close = [](std::vector<std::optional<double>>& windows, const Mean& mean) {
        windows.push_back(mean.count ? std::optional(mean.sum / static_cast<double>(mean.count)) : std::nullopt);
      };
      close(state.windows[term].cosine, sums.cosine);
      close(state.windows[term].size, sums.size);
      close(state.windows[term].removed, sums.removed);
      sums = {};
    }
  }
  ++ended_;
}

std::vector<LayerWrites> ResidualWrites::results() const {
  if (ended_ == 0) fail(ErrorCode::usage, "residual stream: no window has ended");
  Bootstrap bootstrap(seed_);
  std::vector<LayerWrites> results;
  for (const auto& [layer, state] : layers_) {
    const auto summarise = [&, &windows = state.windows](Term term) {
      const Windows& w = windows[term];
      return WriteMeasures{bootstrap.summarise(w.cosine), bootstrap.summarise(w.size), bootstrap.summarise(w.removed),
                           w.removed};
    };
    results.push_back({layer, state.noise_term, summarise(kPositive), summarise(kNoise), summarise(kRandom)});
  }
  return results;
}

}  // namespace unchain::analysis
