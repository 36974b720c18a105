#include "analysis/lambda_optimum.h"

#include <cmath>

#include "base/check.h"
#include "base/thread.h"

namespace unchain::analysis {

void LambdaOptimum::Sums::add(const Sums& other) {
  both += other.both;
  positive += other.positive;
  noise += other.noise;
  lambda += other.lambda;
  rows += other.rows;
}

LambdaProjection LambdaOptimum::Sums::projection() const {
  LambdaProjection out;
  if (noise > 0) out.optimum = both / noise;
  if (noise > 0 && positive > 0) out.cosine = both / (std::sqrt(positive) * std::sqrt(noise));
  if (rows > 0) out.lambda = lambda / static_cast<double>(rows);
  return out;
}

void LambdaOptimum::on_maps(const attention::MapPanel& panel) {
  if (!panel.noise) return;
  const auto [entry, fresh] = layers_.try_emplace(panel.layer);
  std::vector<Sums>& heads = entry->second;
  if (fresh) heads.resize(static_cast<size_t>(panel.heads));
  if (heads.size() != static_cast<size_t>(panel.heads)) {
    fail(ErrorCode::shape, "lambda: layer {}: {} heads, expected {} as in the first window", panel.layer, panel.heads,
         heads.size());
  }
  parallel_for(panel.heads, [&](int64_t h) {
    const int head = static_cast<int>(h);
    for (int64_t r = 0; r < panel.rows; ++r) {
      const int64_t i = panel.first_row + r;
      if (i == 0) continue;
      const float *positive = panel.positive_row(head, r), *noise = panel.noise_row(head, r);
      // Both maps are 0 outside what they see, so that products from the first key of either on are those of both.
      const int64_t first = std::min(panel.first_key(r), panel.first_noise_key(r));
      std::span<const int64_t> targets = targets_.keys(i);
      Sums row;
      for (int64_t j = first; j <= i; ++j) {
        while (!targets.empty() && targets.front() < j) targets = targets.subspan(1);
        if (!targets.empty() && targets.front() == j) continue;
        const double a = positive[j], b = noise[j];
        row.both += a * b;
        row.positive += a * a;
        row.noise += b * b;
      }
      row.lambda = panel.lambda[h * panel.rows + r];
      row.rows = 1;
      if (!std::isfinite(row.positive + row.noise + row.lambda)) {
        fail(ErrorCode::numeric, "lambda: layer {} head {} row {}: a weight or λ is not finite", panel.layer, head, i);
      }
      heads[static_cast<size_t>(head)].add(row);
    }
  });
}

std::vector<LayerLambda> LambdaOptimum::results() const {
  std::vector<LayerLambda> out;
  for (const auto& [layer, heads] : layers_) {
    LayerLambda& layer_out = out.emplace_back(LayerLambda{layer, {}, {}});
    Sums all;
    for (const Sums& head : heads) {
      all.add(head);
      layer_out.heads.push_back(head.projection());
    }
    layer_out.all = all.projection();
  }
  return out;
}

}  // namespace unchain::analysis
