// Causal attention of one layer on row panels: scores of a panel of rows, softmax, product with the values, fused so
// that memory stays O(keys · panel) per thread.
//   out_t = Σ_j A_tj v_j,  A_t = softmax_{j visible}(cap(scale · q_t·k_j)),  visible: t − window < j ≤ t.
#pragma once

#include "attention/maps.h"
#include "tensor/matrix.h"
#include "tensor/tensor.h"

namespace unchain::attention {

// What one layer's attention is. Query head h reads key and value head ⌊h · kv_heads / heads⌋.
struct AttentionConfig {
  int64_t heads = 0;      // H
  int64_t kv_heads = 0;   // G, divides H
  int64_t head_dim = 0;   // E
  int64_t value_dim = 0;  // W
  float scale = 1;        // of the scores, usually 1/√E
  int64_t window = 0;     // positions that a row sees, itself among them; 0: all
  float soft_cap = 0;     // scores ← cap·tanh(scores/cap); 0: none
};

// Keys and values of all positions so far, head-major: keys [G, capacity, E], values [G, capacity, W], both f32 or both
// bf16.
struct KvView {
  Matrix keys;    // [G·capacity, E]
  Matrix values;  // [G·capacity, W]
  int64_t capacity = 0;

  Matrix key_rows(int64_t group, int64_t first, int64_t count) const {
    return keys.row_range(group * capacity + first, count);
  }
  Matrix value_rows(int64_t group, int64_t first, int64_t count) const {
    return values.row_range(group * capacity + first, count);
  }
};

// Memory of one call that the next one uses again; grows to O(threads · panel · keys), with taps O(H · panel · keys).
struct AttentionWorkspace {
  Buffer<float> scores;
  Buffer<bf16> weights;
  Buffer<float> query_f32;
  Buffer<bf16> query_bf16;
  Buffer<float> output;
  Buffer<float> inverse_sums;
};

// Rows of a panel. 64 rows of 4096 scores are 1 MB, which stays in a level-2 cache; fewer rows make slower products.
inline constexpr int64_t kPanelRows = 64;

// What taps need to know about the layer besides the numbers.
struct TapContext {
  const Taps* taps = nullptr;  // nullptr or empty: the fast path
  int layer = 0;
  const float* value_norm = nullptr;  // [H, value_norm_stride], see MapPanel
  int64_t value_norm_stride = 0;
  bool active() const;
};

// out[T, H·W] (f32 or bf16) for queries q[T, H·E] f32 at positions first_row … first_row + T − 1, whose keys and
// values, rotated and normalised where the model does so, are already in kv. out aliases nothing. A row that sees no
// key gives 0. |error| ≤ c·(keys + E)·2⁻²⁴·max|v| in f32, c derived in tests/attention; bf16 adds the rounding of q, k,
// v and the weights. Errors: shape; whatever a tap throws.
void attention_forward(const Matrix& out, const Matrix& q, const KvView& kv, int64_t first_row,
                       const AttentionConfig& config, AttentionWorkspace& workspace, const TapContext& tap = {});

}  // namespace unchain::attention
