// Which query, key and value heads make each output head: a layout is a list of five indices per output
// (docs/math/diff_v1.md, "Layouts"). Files of different programs order the two maps of a difference differently; a
// further order is a further function here.
#pragma once

#include <cstdint>
#include <vector>

namespace unchain::attention {

// Output head = map of query head q1 over key head k1, less λ times that of q2 over k2, on value head v.
// q2 = −1: no second softmax map.
struct HeadPair {
  int q1 = 0, k1 = 0, q2 = -1, k2 = -1, v = 0;
};

struct Layout {
  int query_heads = 0, key_heads = 0, value_heads = 0;
  std::vector<HeadPair> outputs;

  int64_t output_heads() const { return static_cast<int64_t>(outputs.size()); }
  bool has_second_map() const { return !outputs.empty() && outputs.front().q2 >= 0; }
};

// All of them: `heads` and `kv_heads` are those of the softmax baseline, kv_heads divides heads; query head a reads key
// head ⌊a · key heads/query heads⌋. Errors: shape, with the counts.

// softmax, and every member whose noise is no second softmax map: one output a query head.
Layout softmax_layout(int64_t heads, int64_t kv_heads);
// diff_v1, the same numbers of heads in all ("halved"), pairs i and i + heads/2, as Hugging Face's diffllama: value
// head j of an output is the file's value heads j and j + kv_heads/2 side by side, twice as wide. heads and kv_heads
// even.
Layout halves_layout(int64_t heads, int64_t kv_heads);
// diff_v1 "halved", pairs 2i and 2i + 1, wide value head ⌊i·kv_heads/heads⌋, as Microsoft's reference.
Layout neighbours_layout(int64_t heads, int64_t kv_heads);
// diff_v1 "added": second queries and keys beside the first, 2i and 2i + 1, values as in the baseline.
Layout added_layout(int64_t heads, int64_t kv_heads);
// diff_v2: query heads 2i and 2i + 1 over one key head and one value head.
Layout shared_key_layout(int64_t heads, int64_t kv_heads);
// grouped_diff: `heads` signal heads, then heads/ratio noise heads, each for `ratio` neighbouring outputs; noise keys,
// ⌈kv_heads/ratio⌉ of them, behind the signal keys. ratio divides heads.
Layout grouped_layout(int64_t heads, int64_t kv_heads, int64_t ratio);

}  // namespace unchain::attention
