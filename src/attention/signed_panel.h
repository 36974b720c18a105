// What forward and backward of signed_softmax.h share: units of outputs, panels of rows, and the scores of a panel.
#pragma once

#include <vector>

#include "attention/signed_softmax.h"

namespace unchain::attention {

// One softmax map: a query head over a key head.
struct Map {
  int q = 0, k = 0;
  int output = 0;       // the first one that uses it, for row statistics
  bool second = false;  // A2
};

// Neighbouring outputs computed together, because they share values or a noise map: their rows are stacked, so that
// products are larger and each map is computed once.
struct Unit {
  int first = 0, count = 0;  // outputs first … first + count − 1
  std::vector<Map> maps;     // the A1 of each output, then the distinct A2
  std::vector<int> noise;    // of each output, index into maps; empty without second maps
};

// All outputs of a layout in units of at most `most`.
std::vector<Unit> make_units(const Layout& layout, int64_t most);
// How many outputs may be stacked so that the scores of their maps keep to a level-2 cache of 1 MB.
int64_t stackable(const SignedInputs& in, const Layout& layout);

struct SignedCall {
  const SignedInputs& in;
  const SignedConfig& config;
  SignedWorkspace& workspace;
  int64_t most_maps = 1, most_outputs = 1;  // of a unit

  SignedCall(const SignedInputs& inputs, const SignedConfig& what, SignedWorkspace& memory)
      : in(inputs), config(what), workspace(memory) {}
  bool narrow() const { return in.k.type == DType::bf16; }
  bool second() const { return config.layout.has_second_map(); }
  void measure(const std::vector<Unit>& units);
};

// Rows first … first + rows − 1 of one text (counted from its first query row), which see positions key0 … keys − 1 at
// most.
struct Panel {
  int64_t sequence = 0, first = 0, rows = 0;
  int64_t key0 = 0, keys = 0;

  int64_t width() const { return keys - key0; }
};
Panel make_panel(const SignedCall& call, int64_t sequence, int64_t first, int64_t rows);

// Columns begin … begin + count − 1 of a panel's scores that its row sees.
struct Visible {
  int64_t begin = 0, count = 0;
};
Visible visible(const SignedCall& call, const Panel& panel, int64_t row);

// Rows of a key or value head that a panel sees.
Matrix seen_rows(const SignedCall& call, const HeadRows& heads, int head, const Panel& panel);
// λ of a panel's row.
float lambda_of(const SignedCall& call, const Panel& panel, int64_t row, int output);
// Where the log-sum of a map's row is kept; nullptr if nothing is saved.
float* log_sum_of(const SignedCall& call, const SignedSaved& saved, const Panel& panel, const Map& map, int64_t row);

// scores[maps·rows, width] = scale · q kᵀ of each map, stacked; maps over one key head in one product. Returns the
// scaled queries [maps·rows, E], in the type of the keys, which live in the thread's part of the workspace.
Matrix score(const SignedCall& call, const Panel& panel, const std::vector<Map>& maps, const Matrix& scores);

// Moves k and v into `memory`, each head's rows one right behind the other, [heads][rows, width], without copying what
// they hold: with other heads between them every row lies on another page, and products take up to twice as long.
template <class T>
void lay_apart(HeadRows& k, HeadRows& v, int64_t rows, Buffer<T>& memory) {
  const int64_t keys = rows * k.heads * k.width;
  memory.reserve(static_cast<size_t>(keys + rows * v.heads * v.width));
  k = {memory.data(), k.type, k.heads, k.width, rows * k.width, k.width};
  v = {memory.data() + keys, v.type, v.heads, v.width, rows * v.width, v.width};
}
// Copies `rows` rows of all heads.
void copy_heads(const HeadRows& out, const HeadRows& heads, int64_t rows);
// The inputs with keys and values in such rows: copies, where they do not lie so already.
SignedInputs with_heads_apart(const SignedInputs& in, SignedWorkspace& workspace);

// Error: shape if inputs and layout do not fit, `out` (heads of outputs or their gradients) among them.
void check(const SignedInputs& in, const SignedConfig& config, const HeadRows* out);

// Runs of equal keys of 0 … count − 1: body(begin, end).
template <class KeyOf, class Body>
void for_runs(int count, const KeyOf& key, const Body& body) {
  for (int begin = 0; begin < count;) {
    int end = begin + 1;
    while (end < count && key(end) == key(begin)) ++end;
    body(begin, end);
    begin = end;
  }
}

// Stacked rows of outputs begin … of a unit: body(first stacked row, their number, value head), for each run of outputs
// that share values.
template <class Body>
void for_value_runs(const SignedCall& call, const Unit& unit, int64_t rows, const Body& body) {
  const auto v = [&](int i) {
    return call.config.layout.outputs[static_cast<size_t>(unit.first) + static_cast<size_t>(i)].v;
  };
  for_runs(unit.count, v, [&](int begin, int end) { body(begin * rows, (end - begin) * rows, v(begin)); });
}
// The same for maps that share keys.
template <class Body>
void for_key_runs(const std::vector<Map>& maps, int64_t rows, const Body& body) {
  const auto k = [&](int m) { return maps[static_cast<size_t>(m)].k; };
  for_runs(static_cast<int>(maps.size()), k,
           [&](int begin, int end) { body(begin * rows, (end - begin) * rows, k(begin)); });
}

}  // namespace unchain::attention
