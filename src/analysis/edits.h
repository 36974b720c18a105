// Edits of a running model: what becomes of the output if a map, a λ or a head were otherwise. Each is an editor for
// model::Context::extend(); it knows the model that it is for, and a layer or head that this model lacks is an error.
// Not thread-safe, as editors are not.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/maps.h"
#include "model/transformer.h"

namespace unchain::analysis {

// Heads of layers, both by number from 0; an empty list stands for all of them.
struct Where {
  std::vector<int> layers = {}, heads = {};
};

// Keys begin … end − 1.
struct KeySpan {
  int64_t begin = 0, end = 0;
};

// For each layer of a model the heads that an edit touches.
class ChosenHeads {
 public:
  // Of layers with a noise term only, where `with_noise`: then "all layers" are those. Errors: usage, naming the layer
  // or the head, if the model has not got it, if a layer is named that has no noise term, or if no layer has one.
  ChosenHeads(const model::Transformer& model, const Where& where, bool with_noise = false);

  bool has(int layer) const;
  // Ascending; empty for a layer that is not chosen.
  const std::vector<int>& heads(int layer) const;

 private:
  std::vector<std::vector<int>> heads_;  // [L]
};

// λ → m·λ.
class ScaleLambda : public attention::Editor {
 public:
  // Errors: as ChosenHeads of layers with a noise term.
  ScaleLambda(const model::Transformer& model, double m, const Where& where = {});
  bool wants(int layer) const override { return chosen_.has(layer); }
  void edit_maps(attention::MapPanel& panel) override;

 private:
  ChosenHeads chosen_;
  float m_;
};

// P_ij → 0 for keys j of a span and query rows i (positions; empty: all), in both maps; what remains of a row is not
// divided by its sum.
class KnockOut : public attention::Editor {
 public:
  // Errors: as ChosenHeads; usage (a span that ends before it begins or begins below 0, a row below 0).
  KnockOut(const model::Transformer& model, KeySpan keys, std::vector<int64_t> rows, const Where& where = {});
  bool wants(int layer) const override { return chosen_.has(layer); }
  void edit_maps(attention::MapPanel& panel) override;

 private:
  ChosenHeads chosen_;
  KeySpan keys_;
  std::vector<int64_t> rows_;  // ascending
};

// The heads' outputs × g, after head norm and gates.
class ScaleHead : public attention::Editor {
 public:
  // Errors: as ChosenHeads.
  ScaleHead(const model::Transformer& model, double g, const Where& where);
  bool wants(int layer) const override { return chosen_.has(layer); }
  void edit_outputs(attention::OutputPanel& panel) override;

 private:
  ChosenHeads chosen_;
  float g_;
};

// The outputs of all heads of a layer → 0: of its attention W_O's bias alone is left, where there is one.
class ZeroAttention : public attention::Editor {
 public:
  // Errors: as ChosenHeads.
  ZeroAttention(const model::Transformer& model, int layer);
  bool wants(int layer) const override { return chosen_.has(layer); }
  void edit_outputs(attention::OutputPanel& panel) override;

 private:
  ChosenHeads chosen_;
};

// The outputs of all heads of a layer, one vector of O·W numbers a row, + norms[row] in a random direction, uniform on
// the sphere: the control beside another change of this size. Row i draws from the stream 2³²·stream + i of the seed,
// whatever the panels.
class RandomChange : public attention::Editor {
 public:
  // norms: of positions 0, 1, 2 … Errors: as ChosenHeads; numeric (a norm that is not finite or below 0).
  RandomChange(const model::Transformer& model, int layer, std::vector<double> norms, uint64_t seed,
               uint64_t stream = 0);
  bool wants(int layer) const override { return chosen_.has(layer); }
  // Error: usage, with the position, if there are more rows than norms.
  void edit_outputs(attention::OutputPanel& panel) override;

 private:
  ChosenHeads chosen_;
  std::vector<double> norms_;
  uint64_t seed_, stream_;
  std::vector<double> direction_;
};

}  // namespace unchain::analysis
