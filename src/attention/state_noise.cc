#include "attention/state_noise.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/thread.h"
#include "ops/gemm.h"
#include "ops/rows.h"
#include "simd/kernels.h"
#include "simd/state_chunk.h"

namespace unchain::attention {
namespace {

constexpr auto kTokens = static_cast<int64_t>(simd::kChunk);

bool begins(const SignedInputs& in, int64_t sequence, int64_t row) {
  const int64_t position = in.first_row + row;
  return position == 0 || (in.starts && in.starts[sequence * in.rows + row] == position);
}

// Memory of one thread.
struct Lane {
  float *map, *past, *last, *left;  // as simd::state_chunk() writes them
  float *values, *write, *state;    // [kTokens, W], [kTokens, W], [R, W]
  float *later, *d_map, *past_dot, *next_dot, *dot, *reach, *tail;

  static int64_t size(int64_t rank, int64_t width) {
    return 2 * kTokens * kTokens + (6 * kTokens + kTokens + 2) * rank + 2 * kTokens * width + 2 * rank * width +
           16 * kTokens;
  }
  Lane(float* begin, int64_t rank, int64_t width) {
    const auto take = [&begin](int64_t count) { return std::exchange(begin, begin + count); };
    map = take(kTokens * kTokens);
    d_map = take(kTokens * kTokens);
    last = take(kTokens * rank);
    past = take(kTokens * rank);
    past_dot = take(kTokens * rank);
    next_dot = take(kTokens * rank);
    dot = take(kTokens * rank);
    reach = take(kTokens * rank);
    left = take(rank);
    tail = take(rank);
    values = take(kTokens * width);
    write = take(kTokens * width);
    state = take(rank * width);
    later = take(rank * width);
  }
};

struct Call {
  const StateNoise& noise;
  const SignedInputs& in;
  const Layout& layout;
  StateWorkspace& workspace;

  int64_t chunks() const { return (in.rows + kTokens - 1) / kTokens; }
  int64_t width() const { return in.v.width; }
  int64_t state_size() const { return noise.rank * width(); }
  void reserve() const { workspace.lanes.reserve(static_cast<size_t>(threads() * Lane::size(noise.rank, width()))); }
  Lane lane() const {
    return {workspace.lanes.data() + thread_index() * Lane::size(noise.rank, width()), noise.rank, width()};
  }
  simd::ChunkGates gates(int64_t row, int64_t head) const {
    return {noise.take.at(row, head),
            noise.keep.at(row, head),
            noise.alpha.at(row, head),
            static_cast<size_t>(noise.take.row_stride),
            static_cast<size_t>(noise.alpha.row_stride),
            static_cast<size_t>(noise.rank)};
  }
  // Values of the chunk's tokens as f32, [n, W].
  Matrix values(const Lane& lane, int64_t sequence, int64_t head, int64_t first, int64_t n) const {
    const Matrix copy(lane.values, n, width());
    ops::copy_rows(copy, in.v.rows(head, sequence * in.key_rows + in.first_row + first, n));
    return copy;
  }
};

// u after the chunk: u ← left ⊙ u + last · v.
void advance(const Lane& lane, const Matrix& state, const Matrix& values, int64_t n) {
  for (int64_t m = 0; m < state.rows; ++m) simd::scale(state.f32(m), lane.left[m], static_cast<size_t>(state.cols));
  ops::gemm(state, Matrix(lane.last, state.rows, n, kTokens), values, ops::Transpose::no, ops::Store::accumulate);
}

void forward_head(const Call& call, const HeadRows& out, float* states, float* saved, int64_t sequence, int64_t head) {
  const Lane lane = call.lane();
  const int64_t outputs = call.layout.output_heads(), width = call.width(), rank = call.noise.rank;
  float* kept = states ? states + (sequence * outputs + head) * call.state_size() : lane.state;
  const Matrix state(kept, rank, width);
  if (!states) ops::fill_zero(state);
  const int value_head = call.layout.outputs[static_cast<size_t>(head)].v;
  for (int64_t chunk = 0; chunk < call.chunks(); ++chunk) {
    const int64_t first = chunk * kTokens, n = std::min(kTokens, call.in.rows - first);
    const int64_t row = sequence * call.in.rows + first;
    if (saved) {
      std::copy_n(kept, call.state_size(),
                  saved + ((sequence * call.chunks() + chunk) * outputs + head) * call.state_size());
    }
    simd::state_chunk(lane.map, lane.past, lane.last, lane.left, call.gates(row, head), static_cast<size_t>(n));
    const Matrix values = call.values(lane, sequence, value_head, first, n), noise(lane.write, n, width);
    ops::gemm(noise, Matrix(lane.map, n, n, kTokens), values, ops::Transpose::no);
    ops::gemm(noise, Matrix(lane.past, n, rank), state, ops::Transpose::no, ops::Store::accumulate);
    for (int64_t i = 0; i < n; ++i) {
      simd::axpy(out.rows(head, row + i, 1).f32(), -call.in.lambda[(row + i) * outputs + head], noise.f32(i),
                 static_cast<size_t>(width));
    }
    advance(lane, state, values, n);
  }
}

// Backward of one head of one text, chunks from the last: `later` [R, W] is keep·R of the token behind the chunk,
// `tail` [R] keep·c of it (docs/math/lowrank_diff.md).
void backward_head(const Call& call, const StateGradients& gradients, const HeadRows& d_out, const float* saved,
                   int64_t sequence, int64_t head) {
  const Lane lane = call.lane();
  const int64_t outputs = call.layout.output_heads(), width = call.width(), rank = call.noise.rank;
  const Matrix later(lane.later, rank, width);
  ops::fill_zero(later);
  std::fill(lane.tail, lane.tail + rank, 0.0f);
  const int value_head = call.layout.outputs[static_cast<size_t>(head)].v;
  for (int64_t chunk = call.chunks() - 1; chunk >= 0; --chunk) {
    const int64_t first = chunk * kTokens, n = std::min(kTokens, call.in.rows - first);
    const int64_t row = sequence * call.in.rows + first;
    const auto* before = saved + ((sequence * call.chunks() + chunk) * outputs + head) * call.state_size();
    const Matrix state(const_cast<float*>(before), rank, width);
    const float* lambda = call.in.lambda + row * outputs + head;
    const simd::ChunkGates gates = call.gates(row, head);
    simd::state_chunk(lane.map, lane.past, lane.last, lane.left, gates, static_cast<size_t>(n));
    const Matrix values = call.values(lane, sequence, value_head, first, n), g(lane.write, n, width);
    for (int64_t i = 0; i < n; ++i) {
      simd::scaled(d_out.rows(head, row + i, 1).f32(), -1.0f, g.f32(i), static_cast<size_t>(width));
    }
    ops::gemm(Matrix(lane.d_map, n, n, kTokens), g, values, ops::Transpose::yes);
    for (int64_t i = 0; i < n; ++i) std::fill(lane.d_map + i * kTokens + n, lane.d_map + (i + 1) * kTokens, 0.0f);
    ops::gemm(Matrix(lane.past_dot, n, rank), g, state, ops::Transpose::yes);
    ops::gemm(Matrix(lane.next_dot, n, rank), values, later, ops::Transpose::yes);
    simd::state_chunk_backward(lane.dot, lane.reach, lane.d_map, lane.past_dot, lane.next_dot, lambda,
                               static_cast<size_t>(outputs), gates, static_cast<size_t>(n));
    for (int64_t i = n - 1; i >= 0; --i) {
      const float *alpha = gates.alpha + static_cast<size_t>(i) * gates.alpha_stride,
                  *take = gates.take + static_cast<size_t>(i) * gates.gate_stride,
                  *keep = gates.keep + static_cast<size_t>(i) * gates.gate_stride;
      float d_lambda = 0;
      for (int64_t m = 0; m < rank; ++m) {
        const float dot = lane.dot[i * rank + m], weight = lambda[i * outputs];
        d_lambda += alpha[m] * dot;
        gradients.d_alpha.at(row + i, head)[m] = weight * dot;
        const float c = alpha[m] * weight * dot + lane.tail[m];
        gradients.d_scores.at(row + i, head)[m] = lane.reach[i * rank + m] - take[m] * c;
        lane.tail[m] = keep[m] * c;
      }
      gradients.d_lambda[(row + i) * outputs + head] = d_lambda;
    }
    // dv += mapᵀ λG + lastᵀ later;  later ← left ⊙ later + pastᵀ λG.
    for (int64_t i = 0; i < n; ++i) simd::scale(g.f32(i), lambda[i * outputs], static_cast<size_t>(width));
    const Matrix d_v = gradients.d_v.rows(value_head, sequence * call.in.key_rows + call.in.first_row + first, n);
    ops::gemm_transposed(d_v, Matrix(lane.map, n, n, kTokens), g, ops::Store::accumulate);
    ops::gemm_transposed(d_v, Matrix(lane.last, rank, n, kTokens), later, ops::Store::accumulate);
    for (int64_t m = 0; m < rank; ++m) simd::scale(later.f32(m), lane.left[m], static_cast<size_t>(width));
    ops::gemm_transposed(later, Matrix(lane.past, n, rank), g, ops::Store::accumulate);
  }
}

}  // namespace

void prototype_gates(const NoiseRows& take, const NoiseRows& keep, const NoiseRows& scores, double* log_sums,
                     const double* before, const SignedInputs& in, int64_t outputs, int64_t rank) {
  parallel_for(in.sequences * outputs, [&](int64_t task) {
    const int64_t sequence = task / outputs, head = task % outputs;
    std::vector<double> sums(static_cast<size_t>(rank));
    if (before) std::copy_n(before + task * rank, rank, sums.data());
    for (int64_t t = 0; t < in.rows; ++t) {
      const int64_t row = sequence * in.rows + t;
      const bool anew = begins(in, sequence, t) || (t == 0 && !before);
      for (int64_t m = 0; m < rank; ++m) {
        const double score = static_cast<double>(scores.at(row, head)[m]);
        double& sum = sums[static_cast<size_t>(m)];
        if (anew) {
          sum = score;
          keep.at(row, head)[m] = std::isfinite(score) ? 0.0f : static_cast<float>(score - score);
          take.at(row, head)[m] = 1;
          continue;
        }
        const double x = score - sum, small = std::exp(-std::abs(x));
        const auto less = static_cast<float>(small / (1 + small)), more = static_cast<float>(1 / (1 + small));
        sum = std::max(score, sum) + std::log1p(small);
        keep.at(row, head)[m] = x >= 0 ? less : more;
        take.at(row, head)[m] = x >= 0 ? more : less;
      }
      if (log_sums) std::copy_n(sums.data(), rank, log_sums + (row * outputs + head) * rank);
    }
  });
}

void fixed_gates(const NoiseRows& take, const NoiseRows& keep, std::span<const float> decays, const SignedInputs& in) {
  for (int64_t row = 0; row < in.sequences * in.rows; ++row) {
    const int64_t begin = in.starts ? in.starts[row] : 0;
    const auto i = static_cast<double>(in.first_row + row % in.rows - begin);
    float *takes = take.at(row, 0), *keeps = keep.at(row, 0);
    const auto put = [&](size_t m, double value) {
      takes[m] = static_cast<float>(value);
      keeps[m] = static_cast<float>(1 - value);
    };
    put(0, i == 0 ? 1 : 0);
    put(1, 1 / (i + 1));
    for (size_t m = 0; m < decays.size(); ++m) {
      const auto decay = static_cast<double>(decays[m]);
      put(2 + m, (1 - decay) / (1 - std::pow(decay, i + 1)));
    }
  }
}

void state_noise_forward(const HeadRows& out, float* states, float* saved, const StateNoise& noise,
                         const SignedInputs& in, const Layout& layout, StateWorkspace& workspace) {
  const Call call{noise, in, layout, workspace};
  call.reserve();
  const int64_t outputs = layout.output_heads();
  parallel_for(in.sequences * outputs,
               [&](int64_t task) { forward_head(call, out, states, saved, task / outputs, task % outputs); });
}

void state_noise_backward(const StateGradients& gradients, const HeadRows& d_out, const float* saved,
                          const StateNoise& noise, const SignedInputs& in, const Layout& layout,
                          StateWorkspace& workspace) {
  const Call call{noise, in, layout, workspace};
  call.reserve();
  // Heads that share values add to one gradient: one thread takes them in order.
  parallel_for(in.sequences * layout.value_heads, [&](int64_t task) {
    for (int64_t head = 0; head < layout.output_heads(); ++head) {
      if (layout.outputs[static_cast<size_t>(head)].v != task % layout.value_heads) continue;
      backward_head(call, gradients, d_out, saved, task / layout.value_heads, head);
    }
  });
}

void state_noise_maps(const MapPanel& panel, const StateNoise& noise, int64_t alpha_first) {
  parallel_for(panel.heads, [&](int64_t head) {
    std::vector<float> weights(static_cast<size_t>(panel.keys));
    for (int64_t r = 0; r < panel.rows; ++r) {
      std::fill_n(panel.noise_row(static_cast<int>(head), r), panel.keys, 0.0f);
    }
    for (int64_t m = 0; m < noise.rank; ++m) {
      for (int64_t t = 0; t < panel.first_row + panel.rows; ++t) {
        const auto seen = static_cast<size_t>(t);
        simd::scale(weights.data(), noise.keep.at(t, head)[m], seen);
        weights[seen] = noise.take.at(t, head)[m];
        if (t < panel.first_row) continue;
        simd::axpy(panel.noise_row(static_cast<int>(head), t - panel.first_row),
                   noise.alpha.at(t - alpha_first, head)[m], weights.data(), seen + 1);
      }
    }
  });
}

}  // namespace unchain::attention
