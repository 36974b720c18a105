// The tokens that a row should look at, by four definitions, and the attention they get: key mass Σ_{key} P_ij / Σ_j
// |P_ij| of the signed map, of A1, and un-normalised. docs/analyses/key-tokens.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "analysis/token_span.h"
#include "attention/maps.h"
#include "model/trainable.h"

namespace unchain::analysis {

// The key tokens of a row, ascending; empty for a row that is not measured. Keys behind the row do not count.
using KeysOfRow = std::function<std::span<const int64_t>(int64_t row)>;

// A span of keys for the rows of another: an answer in the text at the rows that predict it again, or the entity that a
// question names.
KeysOfRow span_keys(TokenSpan rows, TokenSpan keys);
// The same keys for every row.
KeysOfRow column_keys(std::vector<int64_t> columns);
// Keys that continue an earlier occurrence of the row's token (InductionTargets).
KeysOfRow induction_keys(std::span<const int32_t> tokens);

// Σ over layers, heads and rows of |P_ij · ∂loss/∂P_ij|, for each key j.
class ColumnScores : public attention::GradientObserver {
 public:
  explicit ColumnScores(int64_t tokens) : scores_(static_cast<size_t>(tokens)) {}
  // Error: shape if the panel has more keys than there are tokens.
  void on_maps(const attention::GradientPanel& panel) override;
  std::span<const double> scores() const { return scores_; }

 private:
  std::vector<double> scores_;
};

// The ⌊share · N⌋ columns of the highest scores that are above 0, ascending: none in a window of fewer than 1/share.
std::vector<int64_t> top_columns(std::span<const double> scores, double share = 0.05);

// The top columns of a window by its mean NLL. One forward and backward pass, which adds to the gradients of the
// model's parameters. They are chosen by the weight that key mass then measures: judge them on another model than the
// one that chose them. Errors: usage (fewer than two tokens, ids outside the vocabulary); unsupported (a model in
// bf16); numeric.
std::vector<int64_t> loss_columns(model::Trainable& model, std::span<const int32_t> window, double share = 0.05);

// Means over the rows that have key tokens; all absent if there is none. Shares leave out rows without any weight.
struct HeadKeyMass {
  int64_t rows = 0;
  std::optional<double> share, share_positive;  // Σ_{key} P_ij / Σ_j |P_ij|, and of A1
  // `share` with each weight times ‖v_j W_O‖, what the key would write; absent where the norms are not known.
  std::optional<double> share_value_weighted;
  // Σ_{key} of P_ij, of A1_ij, and of P_ij / max(1 − λ_i, 0.1), whose rows sum to 1 where λ ≤ 0.9 (its share is P's).
  std::optional<double> mass, mass_positive, mass_rescaled;
};
struct LayerKeyMass {
  int layer = 0;
  std::vector<HeadKeyMass> heads;
};

// Use: one forward pass over the window whose keys these are, with this observer; results. Row 0 has one entry and is
// left out, and so are keys in front of a row's window. Not thread-safe; uses the process's threads inside.
class KeyMass : public attention::Observer {
 public:
  // Without `value_weighted` that share is not measured, which saves the passes through W_O.
  explicit KeyMass(KeysOfRow keys, bool value_weighted = true)
      : keys_(std::move(keys)), value_weighted_(value_weighted) {}
  bool wants_value_norm() const override { return value_weighted_; }
  // Error: numeric if a weight is not finite, naming layer, head and row.
  void on_maps(const attention::MapPanel& panel) override;
  std::vector<LayerKeyMass> results() const;  // in the order in which layers were seen

 private:
  struct Sums {
    int64_t rows = 0, weighted = 0, weighted_positive = 0, value_weighted = 0;
    double share = 0, share_positive = 0, share_value_weighted = 0, mass = 0, mass_positive = 0, mass_rescaled = 0;
  };
  struct LayerSums {
    int layer = 0;
    std::vector<Sums> heads;
  };
  static void add_row(Sums& sums, const attention::MapPanel& panel, int head, int64_t row,
                      std::span<const int64_t> keys);

  KeysOfRow keys_;
  bool value_weighted_;
  std::vector<LayerSums> layers_;
};

}  // namespace unchain::analysis
