// The frozen noise map of `fixed_diff` with `calibrated` (docs/math/fixed_diff.md), from a trained model's mean noise.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/mean_map.h"

namespace unchain::analysis {

struct CalibratedBasis {
  int64_t heads = 0, tokens = 0, rank = 0;
  std::vector<float> u, v;  // basis_u, basis_v [H, N, R]
};

// The mean A2 of each head of a layer, fitted at this rank over all keys j ≤ i: the member's noise knows no window, so
// that places which a window hid count as 0. Goes into models whose max_position_embeddings is N and whose outputs a
// layer are as many. Errors: usage (no noise of that layer in the mean, rank below 1).
CalibratedBasis calibrated_basis(const MeanMaps& mean, int layer, int64_t rank);

}  // namespace unchain::analysis
