// Backward of signed_softmax.h, which numbers the passes: with dP = dO vᵀ, D1 = Σ_j A1 ⊙ dP and D2 = Σ_j A2 ⊙ dP,
//   dv = Pᵀ dO,  dλ = −D2,  dS1 = A1 ⊙ (dP − D1),  dS2 = −λ A2 ⊙ (dP − D2),  dq = scale · dS k,  dk = scale · dSᵀ q,
// and dx = −Σ_i (1 − Σ_j A1_ij)·D1_i. Scores are computed again; A = e^(S − saved log-sum). docs/math/diff_v1.md.
#include <algorithm>
#include <cstring>

#include "attention/signed_panel.h"
#include "base/check.h"
#include "base/thread.h"
#include "ops/gemm.h"
#include "ops/rows.h"
#include "simd/gradients.h"
#include "simd/kernels.h"

namespace unchain::attention {
namespace {

// Outputs that share a query, key or value head, directly or through others: one thread adds up their gradients, in
// one order, so that the result does not depend on the number of threads.
using Cluster = std::vector<Unit>;

std::vector<Cluster> make_clusters(const Layout& layout, std::vector<Unit> units) {
  const auto shares = [](const HeadPair& a, const HeadPair& b) {
    const auto any_key = [&](int k) { return k >= 0 && (k == b.k1 || k == b.k2); };
    return a.v == b.v || any_key(a.k1) || any_key(a.k2) || a.q1 == b.q1 || (a.q2 >= 0 && a.q2 == b.q2);
  };
  std::vector<size_t> cluster_of(layout.outputs.size());
  for (size_t o = 0; o < cluster_of.size(); ++o) {
    cluster_of[o] = o;
    for (size_t p = 0; p < o; ++p) {
      if (!shares(layout.outputs[o], layout.outputs[p]) || cluster_of[o] == cluster_of[p]) continue;
      const size_t from = std::max(cluster_of[o], cluster_of[p]), to = std::min(cluster_of[o], cluster_of[p]);
      std::replace(cluster_of.begin(), cluster_of.begin() + static_cast<std::ptrdiff_t>(o) + 1, from, to);
    }
  }
  std::vector<Cluster> clusters(layout.outputs.size());
  for (Unit& unit : units) clusters[cluster_of[static_cast<size_t>(unit.first)]].push_back(std::move(unit));
  clusters.erase(std::remove_if(clusters.begin(), clusters.end(), [](const Cluster& c) { return c.empty(); }),
                 clusters.end());
  return clusters;
}

// What one thread works with: rows stacked by map or by output, `width` columns or a head's.
struct Lane {
  Matrix maps, d_maps, weights, d_scores;  // A [maps], dP [outputs], P [outputs], dS [maps]
  Matrix d_out, product;                   // [outputs, W], [maps, E]
  float* scratch = nullptr;                // one row of `keys`
};

struct Backward {
  SignedCall& call;
  const SignedGradients& gradients;
  const HeadRows& d_out;
  const SignedSaved& saved;

  int64_t lane_rows(int64_t stacked) const { return threads() * kPanelRows * stacked; }
  void reserve() const;
  Lane lane(const Panel& panel, const Unit& unit) const;
  void maps(const Panel& panel, const Unit& unit, const Lane& lane) const;
  void values(const Panel& panel, const Unit& unit, const Lane& lane) const;
  void scores(const Panel& panel, const Unit& unit, const Lane& lane) const;
  void queries_and_keys(const Panel& panel, const Unit& unit, const Lane& lane, const Matrix& query) const;
  void one_cluster(int64_t sequence, const Cluster& cluster) const;
  int64_t row_of(const Panel& panel, int64_t r) const { return panel.sequence * call.in.rows + panel.first + r; }
};

void Backward::reserve() const {
  SignedWorkspace& w = call.workspace;
  const int64_t keys = call.in.keys();
  const auto count = [&](int64_t stacked, int64_t width) { return static_cast<size_t>(lane_rows(stacked) * width); };
  w.scores.reserve(count(call.most_maps, keys));
  w.d_maps.reserve(count(call.most_outputs, keys) + static_cast<size_t>(threads() * keys));
  w.output.reserve(count(call.most_maps, call.in.q.width));
  if (call.narrow()) {
    w.weights.reserve(count(call.most_outputs, keys));
    w.d_scores_bf16.reserve(count(call.most_maps, keys));
    w.d_out_bf16.reserve(count(call.most_outputs, call.in.v.width));
    w.query_bf16.reserve(count(call.most_maps, call.in.q.width));
  } else {
    if (call.second()) w.weights_f32.reserve(count(call.most_outputs, keys));
    w.d_out_f32.reserve(count(call.most_outputs, call.in.v.width));
    w.query_f32.reserve(count(call.most_maps, call.in.q.width));
  }
}

Lane Backward::lane(const Panel& panel, const Unit& unit) const {
  SignedWorkspace& w = call.workspace;
  const int64_t slot = thread_index() * kPanelRows, keys = call.in.keys(), width = panel.width();
  const int64_t maps = static_cast<int64_t>(unit.maps.size()) * panel.rows, outputs = unit.count * panel.rows;
  const int64_t map_slot = slot * call.most_maps * keys, output_slot = slot * call.most_outputs * keys;
  const int64_t value_slot = slot * call.most_outputs * call.in.v.width;
  Lane lane;
  lane.maps = Matrix(w.scores.data() + map_slot, maps, width);
  lane.d_maps = Matrix(w.d_maps.data() + output_slot, outputs, width);
  lane.scratch = w.d_maps.data() + lane_rows(call.most_outputs) * keys + thread_index() * keys;
  lane.product = Matrix(w.output.data() + slot * call.most_maps * call.in.q.width, maps, call.in.q.width);
  if (call.narrow()) {
    lane.weights = Matrix(w.weights.data() + output_slot, outputs, width);
    lane.d_scores = Matrix(w.d_scores_bf16.data() + map_slot, maps, width);
    lane.d_out = Matrix(w.d_out_bf16.data() + value_slot, outputs, call.in.v.width);
  } else {
    // A1 alone is P; gradients take the place of maps that are no longer needed.
    lane.weights = call.second() ? Matrix(w.weights_f32.data() + output_slot, outputs, width) : lane.maps;
    lane.d_scores = lane.maps;
    lane.d_out = Matrix(w.d_out_f32.data() + value_slot, outputs, call.in.v.width);
  }
  return lane;
}

// Pass 2 again: A = e^(S − log Σ), 0 where a row does not see.
void Backward::maps(const Panel& panel, const Unit& unit, const Lane& lane) const {
  for (int64_t i = 0; i < lane.maps.rows; ++i) {
    const Map& map = unit.maps[static_cast<size_t>(i / panel.rows)];
    const Visible seen = visible(call, panel, i % panel.rows);
    float* row = lane.maps.f32(i);
    const float log_sum = *log_sum_of(call, saved, panel, map, i % panel.rows);
    const auto count = static_cast<size_t>(seen.count);
    call.narrow() ? simd::exp_sum_quick(row + seen.begin, log_sum, row + seen.begin, count)
                  : simd::exp_sum(row + seen.begin, log_sum, row + seen.begin, count);
    std::fill(row, row + seen.begin, 0.0f);
    std::fill(row + seen.begin + seen.count, row + panel.width(), 0.0f);
  }
}

// Passes 3 and 4 back: P from the maps, dv += Pᵀ dO, dP = dO vᵀ.
void Backward::values(const Panel& panel, const Unit& unit, const Lane& lane) const {
  const auto width = static_cast<size_t>(panel.width());
  for (int i = 0; i < unit.count; ++i) {
    ops::copy_rows(lane.d_out.row_range(i * panel.rows, panel.rows),
                   d_out.rows(unit.first + i, row_of(panel, 0), panel.rows));
  }
  if (!call.second() && call.narrow()) ops::copy_rows(lane.weights, lane.maps);
  for (int64_t a = 0; call.second() && a < lane.weights.rows; ++a) {
    const int64_t i = a / panel.rows, r = a % panel.rows;
    const int output = unit.first + static_cast<int>(i);
    const float* noise = lane.maps.f32(unit.noise[static_cast<size_t>(i)] * panel.rows + r);
    const float minus = -lambda_of(call, panel, r, output);
    call.narrow() ? simd::combination(1, lane.maps.f32(a), minus, noise, lane.weights.bf16s(a), width)
                  : simd::combination(1, lane.maps.f32(a), minus, noise, lane.weights.f32(a), width);
  }
  for_value_runs(call, unit, panel.rows, [&](int64_t first, int64_t count, int head) {
    ops::gemm_transposed(seen_rows(call, gradients.d_v, head, panel), lane.weights.row_range(first, count),
                         lane.d_out.row_range(first, count), ops::Store::accumulate);
    ops::gemm(lane.d_maps.row_range(first, count), lane.d_out.row_range(first, count),
              seen_rows(call, call.in.v, head, panel), ops::Transpose::yes);
  });
}

// Pass 2 back: dλ, and dS of every map.
void Backward::scores(const Panel& panel, const Unit& unit, const Lane& lane) const {
  const auto width = static_cast<size_t>(panel.width());
  const int64_t outputs = call.config.layout.output_heads();
  const auto write = [&](int64_t row, const float* map, const float* gradient, float inner) {
    call.narrow() ? simd::softmax_backward_row(lane.d_scores.bf16s(row), map, gradient, inner, width)
                  : simd::softmax_backward_row(lane.d_scores.f32(row), map, gradient, inner, width);
  };
  // The noise first, while A2 is still whole in both types: a map's gradient is −Σ λ dP over the outputs that use it.
  for (int64_t m = unit.count; m < static_cast<int64_t>(unit.maps.size()); ++m) {
    for (int64_t r = 0; r < panel.rows; ++r) {
      const float* map = lane.maps.f32(m * panel.rows + r);
      std::fill(lane.scratch, lane.scratch + width, 0.0f);
      for (int64_t i = 0; i < unit.count; ++i) {
        if (unit.noise[static_cast<size_t>(i)] != m) continue;
        const float* d_map = lane.d_maps.f32(i * panel.rows + r);
        gradients.d_lambda[row_of(panel, r) * outputs + unit.first + i] = -simd::dot(map, d_map, width);
        simd::axpy(lane.scratch, -lambda_of(call, panel, r, unit.first + static_cast<int>(i)), d_map, width);
      }
      write(m * panel.rows + r, map, lane.scratch, simd::dot(map, lane.scratch, width));
    }
  }
  for (int64_t a = 0; a < unit.count * panel.rows; ++a) {
    const float* map = lane.maps.f32(a);
    const float inner = simd::dot(map, lane.d_maps.f32(a), width);
    if (gradients.d_extra) {
      const int64_t t = row_of(panel, a % panel.rows), all = call.in.sequences * call.in.rows;
      const float rest = 1 - simd::sum(map, width);
      call.workspace.d_extra[static_cast<size_t>((unit.first + a / panel.rows) * all + t)] = -rest * inner;
    }
    write(a, map, lane.d_maps.f32(a), inner);
  }
}

// Pass 1 back: dq += scale · dS k, dk += dSᵀ (scale · q).
void Backward::queries_and_keys(const Panel& panel, const Unit& unit, const Lane& lane, const Matrix& query) const {
  for_key_runs(unit.maps, panel.rows, [&](int64_t first, int64_t count, int head) {
    ops::gemm(lane.product.row_range(first, count), lane.d_scores.row_range(first, count),
              seen_rows(call, call.in.k, head, panel), ops::Transpose::no);
    ops::gemm_transposed(seen_rows(call, gradients.d_k, head, panel), lane.d_scores.row_range(first, count),
                         query.row_range(first, count), ops::Store::accumulate);
  });
  for (int64_t i = 0; i < lane.product.rows; ++i) {
    const int head = unit.maps[static_cast<size_t>(i / panel.rows)].q;
    simd::axpy(gradients.d_q.rows(head, row_of(panel, i % panel.rows), 1).f32(), call.config.scale, lane.product.f32(i),
               static_cast<size_t>(lane.product.cols));
  }
}

void Backward::one_cluster(int64_t sequence, const Cluster& cluster) const {
  const SignedInputs& in = call.in;
  for (const Unit& unit : cluster) {
    for (const Map& map : unit.maps) {
      ops::fill_zero(gradients.d_q.rows(map.q, sequence * in.rows, in.rows));
      ops::fill_zero(gradients.d_k.rows(map.k, sequence * in.key_rows, in.key_rows));
      const HeadPair& pair = call.config.layout.outputs[static_cast<size_t>(map.output)];
      ops::fill_zero(gradients.d_v.rows(pair.v, sequence * in.key_rows, in.key_rows));
    }
  }
  for (int64_t first = 0; first < in.rows; first += kPanelRows) {
    const Panel panel = make_panel(call, sequence, first, kPanelRows);
    for (const Unit& unit : cluster) {
      const Lane work = lane(panel, unit);
      const Matrix query = score(call, panel, unit.maps, work.maps);
      maps(panel, unit, work);
      values(panel, unit, work);
      scores(panel, unit, work);
      queries_and_keys(panel, unit, work, query);
    }
  }
}

}  // namespace

void signed_softmax_backward(const SignedGradients& wanted, const HeadRows& d_out, const SignedSaved& saved,
                             const SignedInputs& inputs, const SignedConfig& config, SignedWorkspace& workspace) {
  check(inputs, config, &d_out);
  if (config.soft_cap != 0) fail(ErrorCode::unsupported, "attention: no gradient of scores with a soft cap yet");
  if (inputs.rows == 0) return;
  const SignedInputs in = with_heads_apart(inputs, workspace);
  const int64_t key_rows = in.sequences * in.key_rows;
  SignedGradients gradients = wanted;
  lay_apart(gradients.d_k, gradients.d_v, key_rows, workspace.d_heads);
  SignedCall call(in, config, workspace);
  const auto units = make_units(config.layout, stackable(in, config.layout));
  call.measure(units);
  const auto clusters = make_clusters(config.layout, units);
  const Backward backward{call, gradients, d_out, saved};
  backward.reserve();
  const int64_t all = in.sequences * in.rows, outputs = config.layout.output_heads();
  if (gradients.d_extra) workspace.d_extra.reserve(static_cast<size_t>(outputs * all));
  const auto count = static_cast<int64_t>(clusters.size());
  parallel_for(in.sequences * count,
               [&](int64_t task) { backward.one_cluster(task / count, clusters[static_cast<size_t>(task % count)]); });
  copy_heads(wanted.d_k, gradients.d_k, key_rows);
  copy_heads(wanted.d_v, gradients.d_v, key_rows);
  for (int64_t o = 0; gradients.d_extra && o < outputs; ++o) {
    gradients.d_extra[o] += simd::sum(workspace.d_extra.data() + o * all, static_cast<size_t>(all));
  }
}

}  // namespace unchain::attention
