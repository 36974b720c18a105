#include "analysis/calibrated_basis.h"

#include "analysis/low_rank.h"
#include "base/check.h"
#include "base/thread.h"

namespace unchain::analysis {

CalibratedBasis calibrated_basis(const MeanMaps& mean, int layer, int64_t rank) {
  if (rank < 1) fail(ErrorCode::usage, "calibrated basis: rank {}, expected at least 1", rank);
  const auto found = mean.layers().find(layer);
  if (found == mean.layers().end())
    fail(ErrorCode::usage, "calibrated basis: layer {} was not seen; read texts with the observer first", layer);
  CalibratedBasis out{found->second.heads, mean.tokens(), std::min(rank, mean.tokens()), {}, {}};
  const auto each = static_cast<size_t>(out.tokens * out.rank);
  out.u.resize(static_cast<size_t>(out.heads) * each);
  out.v.resize(out.u.size());
  parallel_for(out.heads, [&](int64_t h) {
    const LowRank low_rank(mean.mean(layer, static_cast<int>(h), MapValue::noise), out.tokens);
    const Factors factors = low_rank.fitted(out.rank);
    for (size_t k = 0; k < each; ++k) {
      out.u[static_cast<size_t>(h) * each + k] = static_cast<float>(factors.u[k]);
      out.v[static_cast<size_t>(h) * each + k] = static_cast<float>(factors.v[k]);
    }
  });
  return out;
}

}  // namespace unchain::analysis
