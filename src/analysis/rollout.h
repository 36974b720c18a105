// Attention rollout: where what a position holds at the end comes from, if each layer passes on P̄ + I.
//   R = M_{L−1} … M_1 M_0,   M_l = (P̄_l + I), rows divided by their Σ|·|,   P̄_l: mean over heads of P, or of |P|
// With |P| the rows of R are shares and sum to 1, as they do for softmax either way; with the signed P they show what
// cancels. An observer of one forward pass, or of MapsFile::replay(). Source: Abnar & Zuidema, ACL 2020 (softmax maps,
// which are P and |P| at once). docs/analyses/flow.md.
#pragma once

#include <array>
#include <cstdint>

#include "attention/maps.h"
#include "tensor/matrix.h"
#include "tensor/tensor.h"

namespace unchain::analysis {

enum class Flow { signed_map, magnitude };

// Holds 4·N² numbers for N tokens; work 2·N³ multiply-adds a layer: for N up to a few thousand. Not thread-safe; uses
// all threads inside.
class Rollout : public attention::Observer {
 public:
  // Error: usage if tokens < 1.
  explicit Rollout(int64_t tokens);
  // Errors: shape if panels do not follow each other from row 0 and layer 0 on or do not fit the tokens; numeric if a
  // weight is not finite, naming layer, head and row.
  void on_maps(const attention::MapPanel& panel) override;
  // Error: shape if rows are missing.
  void end_layer(int layer) override;

  int layers() const { return layers_; }  // so far
  // R [N, N] of the layers so far: row i, of all it gives, what it gives to key j. Valid as long as the observer.
  Matrix flow(Flow which);

 private:
  static constexpr size_t kFlows = 2;
  int64_t tokens_, rows_ = 0;
  int layers_ = 0;
  std::array<Buffer<float>, kFlows> before_, after_;
  Buffer<float> mean_;  // M's rows of a panel
};

// The share of row `row` of a flow that keys begin … end − 1 have: Σ_span |R_ij|/Σ_j |R_ij|; 0 for a row of zeros.
// Error: usage if the row or the span lies outside.
double flow_share(const Matrix& flow, int64_t row, int64_t begin, int64_t end);

}  // namespace unchain::analysis
