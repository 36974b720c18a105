#include "analysis/fixed_rows.h"

#include <Eigen/LU>
#include <algorithm>
#include <cmath>
#include <limits>

#include "analysis/low_rank.h"
#include "base/check.h"
#include "base/thread.h"

namespace unchain::analysis {
namespace {

constexpr size_t kMostDecays = 8;

// F_m,ij [R, i + 1] of all rows m at query i.
Eigen::MatrixXd rows_of(std::span<const double> decays, int64_t i) {
  Eigen::MatrixXd rows = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(2 + decays.size()), i + 1);
  rows(0, 0) = 1;
  rows.row(1).setConstant(1 / static_cast<double>(i + 1));
  for (size_t d = 0; d < decays.size(); ++d) {
    const double decay = decays[d];
    double weight = (1 - decay) / (1 - std::pow(decay, static_cast<double>(i + 1)));
    for (int64_t j = i; j >= 0; --j, weight *= decay) rows(static_cast<Eigen::Index>(2 + d), j) = weight;
  }
  return rows;
}

// The b ≥ 0 with Σ b = 1 that makes bᵀ G b − 2 cᵀ b least: of every set of shares that are not 0, the point where the
// slope vanishes along Σ b = 1. The least one of those that lie within is the answer, since the problem is convex.
std::vector<double> nearest_mixture(const Eigen::MatrixXd& gram, const Eigen::VectorXd& with_map) {
  const auto count = gram.rows();
  std::vector<double> best(static_cast<size_t>(count));
  double least = std::numeric_limits<double>::infinity();
  for (uint32_t set = 1; set < uint32_t{1} << count; ++set) {
    std::vector<Eigen::Index> in;
    for (Eigen::Index m = 0; m < count; ++m)
      if (set >> m & 1) in.push_back(m);
    const auto n = static_cast<Eigen::Index>(in.size());
    Eigen::MatrixXd system = Eigen::MatrixXd::Ones(n + 1, n + 1);
    system(n, n) = 0;
    system.topLeftCorner(n, n) = gram(in, in);
    Eigen::VectorXd right(n + 1);
    right << with_map(in), 1;
    const Eigen::FullPivLU<Eigen::MatrixXd> solver(system);
    if (!solver.isInvertible()) continue;  // rows that are the same on so few tokens: fewer of them do as well
    const Eigen::VectorXd b = solver.solve(right).head(n);
    if (b.minCoeff() < 0) continue;
    const double error = b.dot(gram(in, in) * b) - 2 * b.dot(Eigen::VectorXd(with_map(in)));
    if (error >= least) continue;
    least = error;
    std::fill(best.begin(), best.end(), 0.0);
    for (Eigen::Index k = 0; k < n; ++k) best[static_cast<size_t>(in[static_cast<size_t>(k)])] = b(k);
  }
  return best;
}

}  // namespace

FixedRows fit_fixed_rows(const MeanMaps& mean, MapPart part, std::span<const float> decays) {
  if (decays.size() > kMostDecays)
    fail(ErrorCode::usage, "fixed rows: {} decays, expected {} at most", decays.size(), kMostDecays);
  for (const float decay : decays) {
    if (!(decay > 0 && decay < 1))
      fail(ErrorCode::usage, "fixed rows: decay {}, expected a number between 0 and 1", decay);
  }
  const MapValue value = part == MapPart::noise ? MapValue::noise : MapValue::positive;
  FixedRows out{{decays.begin(), decays.end()}, {}};
  const auto count = static_cast<Eigen::Index>(2 + decays.size());
  const int64_t n = mean.tokens();
  for (const auto& entry : mean.layers()) {
    const MeanMaps::Layer& layer = entry.second;
    if (layer.sums[static_cast<size_t>(value)].empty()) continue;
    const int64_t window = part == MapPart::noise ? layer.noise_window : layer.window;
    auto& shares = out.shares[entry.first];
    shares.resize(static_cast<size_t>(layer.heads));
    std::vector<Eigen::MatrixXd> visible;  // [N], of every query
    Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(count, count);
    for (int64_t i = 0; i < n; ++i) {
      visible.emplace_back(rows_of(out.decays, i).rightCols(window > 0 ? std::min(window, i + 1) : i + 1));
      gram.noalias() += visible.back() * visible.back().transpose();
    }
    parallel_for(layer.heads, [&](int64_t h) {
      const std::vector<double> map = mean.mean(entry.first, static_cast<int>(h), value);
      Eigen::VectorXd with_map = Eigen::VectorXd::Zero(count);
      for (int64_t i = 0; i < n; ++i) {
        const Eigen::MatrixXd& rows = visible[static_cast<size_t>(i)];
        with_map += rows * Eigen::Map<const Eigen::VectorXd>(map.data() + i * n + i + 1 - rows.cols(), rows.cols());
      }
      shares[static_cast<size_t>(h)] = nearest_mixture(gram, with_map);
    });
  }
  if (out.shares.empty()) {
    fail(ErrorCode::usage, "fixed rows: no mean {} map was seen; read texts with the observer first",
         part == MapPart::noise ? "noise" : "positive");
  }
  return out;
}

void FixedRowsReplacement::edit_head(const attention::MapPanel& panel, int head) const {
  const auto& shares = rows_->shares.at(panel.layer);
  if (shares.size() != static_cast<size_t>(panel.heads)) {
    fail(ErrorCode::shape, "fixed rows: layer {}: {} heads, those that were fitted are {}", panel.layer, panel.heads,
         shares.size());
  }
  const std::vector<double>& mixed = shares[static_cast<size_t>(head)];
  const Eigen::Map<const Eigen::VectorXd> mixture(mixed.data(), static_cast<Eigen::Index>(mixed.size()));
  for (int64_t r = 0; r < panel.rows; ++r) {
    float* to = row(panel, head, r);
    const int64_t i = panel.first_row + r, first = first_key(panel, r);
    const Eigen::VectorXd weights = rows_of(rows_->decays, i).rightCols(i + 1 - first).transpose() * mixture;
    const double divisor = options().divide ? row_divisor(weights.sum()) : 1;
    std::fill_n(to, first, 0.0f);
    Eigen::Map<Eigen::VectorXf>(to + first, weights.size()) = (weights / divisor).cast<float>();
  }
}

}  // namespace unchain::analysis
