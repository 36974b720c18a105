// The rows of fixed_diff in place of a trained map: a mixture of the first token, the uniform row and decays, the same
// for all texts, that lies nearest to a head's mean map. docs/analyses/functional-rank.md, docs/math/fixed_diff.md.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "analysis/mean_map.h"
#include "analysis/replacement.h"

namespace unchain::analysis {

struct FixedRows {
  std::vector<double> decays;
  // By layer, for each head the share of every row: first token, uniform, decays. Not below 0; their sum is 1.
  std::map<int, std::vector<std::vector<double>>> shares;
};

// For every head that was seen, the mixture with the least Σ (Ā_ij − Σ_m b_m F_m,ij)² over the visible entries of its
// mean map Ā. Work: N²·R² multiply-adds a layer, N²·R and 2^R systems of R equations a head; holds N²·R/2 f64 numbers.
// Errors: usage (no such map in the mean, more than eight decays, one that is not between 0 and 1).
FixedRows fit_fixed_rows(const MeanMaps& mean, MapPart part, std::span<const float> decays);

// Puts those mixtures in place of the maps. Layers that have none stay. Error of edit_maps(): shape (other heads).
class FixedRowsReplacement : public Replacement {
 public:
  // `rows` outlives this.
  FixedRowsReplacement(ReplacementOptions options, const FixedRows& rows)
      : Replacement(std::move(options)), rows_(&rows) {}
  bool wants(int layer) const override { return rows_->shares.contains(layer) && Replacement::wants(layer); }

 private:
  void edit_head(const attention::MapPanel& panel, int head) const override;

  const FixedRows* rows_;
};

}  // namespace unchain::analysis
