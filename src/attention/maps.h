// Taps: what a layer's attention shows to observers, and lets editors change, while a panel of query rows is computed.
// The kernel goes panel by panel, in it head by head; a panel holds the rows of all heads, so that heads can be
// compared with heads · rows · keys numbers in memory. Nothing is computed or stored for taps that are absent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace unchain::attention {

// Query rows first_row … first_row + rows − 1 of all heads of one layer, before the product with the values.
// Row r of head h holds `keys` weights, for keys 0 … keys − 1; those that the row may not see are exactly 0.
struct MapPanel {
  int layer = 0;
  int heads = 0;
  int kv_heads = 0;
  int64_t first_row = 0;  // absolute position of the first row: row r is query position first_row + r
  int64_t rows = 0;
  int64_t keys = 0;             // first_row + rows: every position that a row of this panel may see
  int64_t window = 0;           // a row sees its last `window` positions, itself among them; 0: all
  bool noise_is_state = false;  // then the window limits A1 alone
  float* positive = nullptr;    // A1 [heads, rows, keys] by the strides below
  float* noise = nullptr;       // A2, same layout; nullptr for a map without a noise term
  float* lambda = nullptr;      // [heads, rows]; nullptr without a noise term
  int64_t row_stride = 0;       // elements from one row to the next (>= keys)
  int64_t head_stride = 0;
  const float* value_norm = nullptr;  // [heads, keys], ‖v_j W_O‖₂ of each key for each head; nullptr where unknown
  int64_t value_norm_stride = 0;

  float* positive_row(int head, int64_t row) const { return positive + head * head_stride + row * row_stride; }
  float* noise_row(int head, int64_t row) const { return noise + head * head_stride + row * row_stride; }
  // The first key that row r sees; the last is first_row + r.
  int64_t first_key(int64_t row) const {
    const int64_t position = first_row + row;
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  // The same of the noise map.
  int64_t first_noise_key(int64_t row) const { return noise_is_state ? 0 : first_key(row); }
  // p[keys] = row r of P = A1 − λ·A2.
  void signed_row(int head, int64_t row, float* p) const {
    const float* a1 = positive_row(head, row);
    const float* a2 = noise ? noise_row(head, row) : a1;
    const float l = noise ? lambda[head * rows + row] : 0;
    for (int64_t j = 0; j < keys; ++j) p[j] = a1[j] - l * a2[j];
  }
};

// The heads' outputs of a panel of rows, after the product with the values (and head norm), before W_O.
struct OutputPanel {
  int layer = 0;
  int heads = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t value_width = 0;
  float* output = nullptr;  // [rows, heads, value_width], rows `row_stride` elements apart
  int64_t row_stride = 0;
};

// The residual stream before a layer, and what the two parts of its attention add to it: [rows, width] each, rows one
// right behind the other.
struct ResidualPanel {
  int layer = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t width = 0;                // D
  const float* x = nullptr;         // the residual stream
  const float* positive = nullptr;  // A1 V through W_O, × the factors of head norm, gate and post norm at its row;
                                    // nullptr unless an observer wants_writes()
  const float* noise = nullptr;     // −λ A2 V likewise; nullptr also without a noise term
};

// Sees panels in order of layer, then row; calls never overlap. An observer must not change what it sees.
class Observer {
 public:
  virtual ~Observer() = default;
  // A layer that no tap wants is computed as if there were no taps.
  virtual bool wants(int layer) const { return layer >= 0; }
  // Whether MapPanel::value_norm is to be filled (costs a product of values and W_O a head and layer).
  virtual bool wants_value_norm() const { return false; }
  // Whether ResidualPanel's writes are to be computed (costs a product with the values and one with W_O for each part).
  virtual bool wants_writes() const { return false; }
  virtual void on_maps(const MapPanel& panel) = 0;
  // All rows of the step at once, after the maps and before editors of outputs act. positive + noise is what attention
  // writes, less W_O's bias.
  virtual void on_residual(const ResidualPanel& /*panel*/) {}
  virtual void on_outputs(const OutputPanel& /*panel*/) {}
  virtual void end_layer(int /*layer*/) {}
};

// Changes maps or outputs in place, before any observer sees them.
class Editor {
 public:
  virtual ~Editor() = default;
  virtual bool wants(int layer) const { return layer >= 0; }
  // Whether edit_maps() needs all rows of a call at once: one panel with heads · rows · keys numbers of each map, which
  // observers of the layer then see too.
  virtual bool wants_whole_maps() const { return false; }
  virtual void edit_maps(MapPanel& /*panel*/) {}
  virtual void edit_outputs(OutputPanel& /*panel*/) {}
};

// The maps of a panel of rows once more, in backward, and what a change of each weight would do to the loss.
struct GradientPanel {
  MapPanel maps;
  // ∂loss/∂P [heads, rows, keys] by the strides of maps; 0 for the keys behind a row's own position. Those in front of
  // its window have one too: a noise map that is a state reaches them.
  const float* d_map = nullptr;

  const float* d_row(int head, int64_t row) const { return d_map + head * maps.head_stride + row * maps.row_stride; }
};

// Sees gradients: layers from the last to the first, of each its gates, then its panels in order of rows. Calls never
// overlap. An observer must not change what it sees.
class GradientObserver {
 public:
  virtual ~GradientObserver() = default;
  // Whether the maps and their gradients are to be formed for this layer: about heads · N²·(2E + W) multiply-adds.
  virtual bool wants_maps(int layer) const { return layer >= 0; }
  virtual void on_maps(const GradientPanel& /*panel*/) {}
  // d_gate[heads] = ∂loss/∂gate_h at gate 1, gate_h a factor of the head's output before W_O (after head norm and
  // gates): Σ over rows of ⟨gradient of that output, output⟩.
  virtual void on_gates(int /*layer*/, std::span<const double> /*d_gate*/) {}
};

// Not owned. Editors act in order, then observers look.
struct Taps {
  std::vector<Observer*> observers;
  std::vector<Editor*> editors;
};

}  // namespace unchain::attention
