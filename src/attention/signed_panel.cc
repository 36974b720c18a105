#include "attention/signed_panel.h"

#include <algorithm>

#include "base/check.h"
#include "base/thread.h"
#include "ops/gemm.h"
#include "ops/rows.h"
#include "simd/kernels.h"

namespace unchain::attention {
namespace {

int64_t first_visible(const SignedCall& call, int64_t sequence, int64_t row) {
  const int64_t position = call.in.first_row + row, window = call.config.window;
  const int64_t begin = window > 0 && position >= window ? position - window + 1 : 0;
  return call.in.starts ? std::max<int64_t>(begin, call.in.starts[sequence * call.in.rows + row]) : begin;
}

}  // namespace

std::vector<Unit> make_units(const Layout& layout, int64_t most) {
  std::vector<Unit> units;
  const auto& outputs = layout.outputs;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const bool joins = o > 0 && units.back().count < most &&
                       (outputs[o].v == outputs[o - 1].v || (outputs[o].q2 >= 0 && outputs[o].q2 == outputs[o - 1].q2));
    if (!joins) units.push_back({static_cast<int>(o), 0, {}, {}});
    ++units.back().count;
  }
  for (Unit& unit : units) {
    for (int o = unit.first; o < unit.first + unit.count; ++o) {
      const HeadPair& pair = outputs[static_cast<size_t>(o)];
      unit.maps.push_back({pair.q1, pair.k1, o, false});
    }
    for (int o = unit.first; o < unit.first + unit.count && layout.has_second_map(); ++o) {
      const HeadPair& pair = outputs[static_cast<size_t>(o)];
      if (!unit.maps.back().second || unit.maps.back().q != pair.q2) unit.maps.push_back({pair.q2, pair.k2, o, true});
      unit.noise.push_back(static_cast<int>(unit.maps.size()) - 1);
    }
  }
  return units;
}

int64_t stackable(const SignedInputs& in, const Layout& layout) {
  const int64_t bytes =
      kPanelRows * in.keys() * static_cast<int64_t>(sizeof(float)) * (layout.has_second_map() ? 2 : 1);
  return std::clamp<int64_t>((int64_t{1} << 20) / bytes, 1, 4);
}

void SignedCall::measure(const std::vector<Unit>& units) {
  for (const Unit& unit : units) {
    most_maps = std::max(most_maps, static_cast<int64_t>(unit.maps.size()));
    most_outputs = std::max<int64_t>(most_outputs, unit.count);
  }
}

Panel make_panel(const SignedCall& call, int64_t sequence, int64_t first, int64_t rows) {
  Panel panel{sequence, first, std::min(rows, call.in.rows - first), 0, 0};
  panel.keys = call.in.first_row + panel.first + panel.rows;
  panel.key0 = first_visible(call, sequence, first);
  return panel;
}

Visible visible(const SignedCall& call, const Panel& panel, int64_t row) {
  const int64_t begin = std::max(first_visible(call, panel.sequence, panel.first + row), panel.key0) - panel.key0;
  return {begin, std::max<int64_t>(call.in.first_row + panel.first + row + 1 - panel.key0 - begin, 0)};
}

Matrix seen_rows(const SignedCall& call, const HeadRows& heads, int head, const Panel& panel) {
  return heads.rows(head, panel.sequence * call.in.key_rows + panel.key0, panel.width());
}

float lambda_of(const SignedCall& call, const Panel& panel, int64_t row, int output) {
  return call.in
      .lambda[(panel.sequence * call.in.rows + panel.first + row) * call.config.layout.output_heads() + output];
}

float* log_sum_of(const SignedCall& call, const SignedSaved& saved, const Panel& panel, const Map& map, int64_t row) {
  if (!saved.log_sums) return nullptr;
  const int64_t all = call.in.sequences * call.in.rows, t = panel.sequence * call.in.rows + panel.first + row;
  return saved.log_sums + ((map.second ? all : 0) + t) * call.config.layout.output_heads() + map.output;
}

Matrix score(const SignedCall& call, const Panel& panel, const std::vector<Map>& maps, const Matrix& scores) {
  const int64_t width = call.in.q.width, rows = panel.rows, stacked = static_cast<int64_t>(maps.size()) * rows;
  const int64_t slot = thread_index() * call.most_maps * kPanelRows * width;
  const Matrix query = call.narrow() ? Matrix(call.workspace.query_bf16.data() + slot, stacked, width)
                                     : Matrix(call.workspace.query_f32.data() + slot, stacked, width);
  for (size_t m = 0; m < maps.size(); ++m) {
    const Matrix from = call.in.q.rows(maps[m].q, panel.sequence * call.in.rows + panel.first, rows);
    const Matrix to = query.row_range(static_cast<int64_t>(m) * rows, rows);
    for (int64_t r = 0; r < rows; ++r) {
      call.narrow() ? simd::scaled(from.f32(r), call.config.scale, to.bf16s(r), static_cast<size_t>(width))
                    : simd::scaled(from.f32(r), call.config.scale, to.f32(r), static_cast<size_t>(width));
    }
  }
  for_key_runs(maps, rows, [&](int64_t first, int64_t count, int head) {
    ops::gemm(scores.row_range(first, count), query.row_range(first, count), seen_rows(call, call.in.k, head, panel),
              ops::Transpose::yes);
  });
  return query;
}

void copy_heads(const HeadRows& out, const HeadRows& heads, int64_t rows) {
  constexpr int64_t kRows = 256;
  const int64_t blocks = (rows + kRows - 1) / kRows;
  parallel_for(heads.heads * blocks, [&](int64_t task) {
    const int64_t head = task / blocks, first = task % blocks * kRows, count = std::min(kRows, rows - first);
    ops::copy_rows(out.rows(head, first, count), heads.rows(head, first, count));
  });
}

SignedInputs with_heads_apart(const SignedInputs& in, SignedWorkspace& workspace) {
  if (in.k.row_stride == in.k.width && in.v.row_stride == in.v.width) return in;
  const int64_t rows = in.sequences * in.key_rows;
  SignedInputs result = in;
  in.k.type == DType::bf16 ? lay_apart(result.k, result.v, rows, workspace.heads_bf16)
                           : lay_apart(result.k, result.v, rows, workspace.heads_f32);
  copy_heads(result.k, in.k, rows);
  copy_heads(result.v, in.v, rows);
  return result;
}

void check(const SignedInputs& in, const SignedConfig& config, const HeadRows* out) {
  const Layout& l = config.layout;
  const auto fits = [](const HeadRows& heads, int count) { return heads.heads == count && heads.width > 0; };
  if (!fits(in.q, l.query_heads) || !fits(in.k, l.key_heads) || !fits(in.v, l.value_heads) ||
      in.q.width != in.k.width || in.k.type != in.v.type || in.q.type != DType::f32 || in.first_row < 0 ||
      in.rows < 0 || in.sequences < 1 || in.key_rows < in.keys() || (l.has_second_map() && !in.lambda) ||
      (out && (out->heads != l.output_heads() || out->width != in.v.width))) {
    fail(ErrorCode::shape,
         "attention: queries {}x{}, keys {}x{}, values {}x{}, outputs {}x{}, {} rows at row {} of {} do not fit a "
         "layout of {} query, {} key, {} value heads and {} outputs",
         in.q.heads, in.q.width, in.k.heads, in.k.width, in.v.heads, in.v.width, out ? out->heads : l.output_heads(),
         out ? out->width : in.v.width, in.rows, in.first_row, in.key_rows, l.query_heads, l.key_heads, l.value_heads,
         l.output_heads());
  }
}

Matrix HeadRows::rows(int64_t head, int64_t first, int64_t count) const {
  Matrix m;
  m.data = static_cast<char*>(data) + (head * head_stride + first * row_stride) * info(type).bytes;
  m.type = type;
  m.rows = count;
  m.cols = width;
  m.stride = row_stride;
  return m;
}

}  // namespace unchain::attention
