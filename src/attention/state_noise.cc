#include "attention/state_noise.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
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

// Tokens of a row's document before it.
int64_t place_in_document(const SignedInputs& in, int64_t row) {
  return in.first_row + row % in.rows - (in.starts ? in.starts[row] : 0);
}

// Memory of one thread. A chunk is one matrix T, see simd::state_chunk(), that takes [values; means before] to [noise;
// means after].
struct Lane {
  int64_t rank, width, side = kTokens + rank;
  float *t, *d_t, *in, *out, *up;  // [side, side] twice, [side, W] three times
  float *dot, *reach, *tail;       // [kTokens, R] twice, [R]

  static int64_t size(int64_t rank, int64_t width) {
    const int64_t side = kTokens + rank;
    return 2 * side * side + 3 * side * width + (2 * kTokens + 1) * rank;
  }
  Lane(float* begin, int64_t means, int64_t value_width) : rank(means), width(value_width) {
    const auto take = [&begin](int64_t count) { return std::exchange(begin, begin + count); };
    t = take(side * side);
    d_t = take(side * side);
    in = take(side * width);
    out = take(side * width);
    up = take(side * width);
    dot = take(kTokens * rank);
    reach = take(kTokens * rank);
    tail = take(rank);
  }
  Matrix square(float* data) const { return {data, side, side}; }
  Matrix rows(float* data) const { return {data, side, width}; }
  // The means' rows, which are one block.
  float* means(float* data) const { return data + kTokens * width; }
};

// Asks for rows that are needed soon: heads lie 1 to 2 KB apart, on which the processor's own prefetching fails.
void prefetch_rows(const Matrix& x) {
  const int64_t bytes = info(x.type).bytes;
  for (int64_t t = 0; t < x.rows; ++t) {
    const char* row = static_cast<const char*>(x.data) + t * x.stride * bytes;
    for (int64_t i = 0; i < x.cols * bytes; i += 64) __builtin_prefetch(row + i);
  }
}

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
  // The chunk's values as f32 into the first rows of lane.in, zeros behind the n of a last chunk.
  void read_values(const Lane& lane, int64_t sequence, int64_t head, int64_t first, int64_t n) const {
    const Matrix rows = lane.rows(lane.in);
    ops::copy_rows(rows.row_range(0, n), in.v.rows(head, sequence * in.key_rows + in.first_row + first, n));
    ops::fill_zero(rows.row_range(n, kTokens - n));
  }
};

void forward_head(const Call& call, const HeadRows& out, float* states, float* saved, int64_t sequence, int64_t head) {
  const Lane lane = call.lane();
  const int64_t outputs = call.layout.output_heads(), width = call.width();
  float *means = lane.means(lane.in),
        *kept = states ? states + (sequence * outputs + head) * call.state_size() : nullptr;
  kept ? std::copy_n(kept, call.state_size(), means) : std::fill_n(means, call.state_size(), 0.0f);
  const int value_head = call.layout.outputs[static_cast<size_t>(head)].v;
  for (int64_t chunk = 0; chunk < call.chunks(); ++chunk) {
    const int64_t first = chunk * kTokens, n = std::min(kTokens, call.in.rows - first);
    const int64_t row = sequence * call.in.rows + first;
    if (saved) {
      std::copy_n(means, call.state_size(),
                  saved + ((sequence * call.chunks() + chunk) * outputs + head) * call.state_size());
    }
    prefetch_rows(call.in.v.rows(value_head, sequence * call.in.key_rows + call.in.first_row + first, n));
    prefetch_rows(out.rows(head, row, n));
    simd::state_chunk(lane.t, static_cast<size_t>(lane.side), call.gates(row, head), static_cast<size_t>(n));
    call.read_values(lane, sequence, value_head, first, n);
    ops::gemm(lane.rows(lane.out), lane.square(lane.t), lane.rows(lane.in), ops::Transpose::no);
    for (int64_t i = 0; i < n; ++i) {
      simd::axpy(out.rows(head, row + i, 1).f32(), -call.in.lambda[(row + i) * outputs + head], lane.out + i * width,
                 static_cast<size_t>(width));
    }
    std::copy_n(lane.means(lane.out), call.state_size(), means);
  }
  if (kept) std::copy_n(means, call.state_size(), kept);
}

// Backward of one head of one text, chunks from the last: lane.up is [G; gradient of the means behind the chunk], with
// G = −d_out, later λG; `tail` [R] is keep·c of the token behind the chunk (docs/math/lowrank_diff.md).
void backward_head(const Call& call, const StateGradients& gradients, const HeadRows& d_out, const float* saved,
                   int64_t sequence, int64_t head) {
  const Lane lane = call.lane();
  const int64_t outputs = call.layout.output_heads(), width = call.width(), rank = call.noise.rank;
  const auto side = static_cast<size_t>(lane.side);
  std::fill_n(lane.means(lane.up), call.state_size(), 0.0f);
  std::fill(lane.tail, lane.tail + rank, 0.0f);
  const int value_head = call.layout.outputs[static_cast<size_t>(head)].v;
  for (int64_t chunk = call.chunks() - 1; chunk >= 0; --chunk) {
    const int64_t first = chunk * kTokens, n = std::min(kTokens, call.in.rows - first);
    const int64_t row = sequence * call.in.rows + first;
    const float* lambda = call.in.lambda + row * outputs + head;
    const simd::ChunkGates gates = call.gates(row, head);
    simd::state_chunk(lane.t, side, gates, static_cast<size_t>(n));
    call.read_values(lane, sequence, value_head, first, n);
    std::copy_n(saved + ((sequence * call.chunks() + chunk) * outputs + head) * call.state_size(), call.state_size(),
                lane.means(lane.in));
    for (int64_t i = 0; i < n; ++i) {
      simd::scaled(d_out.rows(head, row + i, 1).f32(), -1.0f, lane.up + i * width, static_cast<size_t>(width));
    }
    ops::fill_zero(lane.rows(lane.up).row_range(n, kTokens - n));
    ops::gemm(lane.square(lane.d_t), lane.rows(lane.up), lane.rows(lane.in), ops::Transpose::yes);
    simd::state_chunk_backward(lane.dot, lane.reach, lane.d_t, side, lambda, static_cast<size_t>(outputs), gates,
                               static_cast<size_t>(n));
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
    // [dv; gradient of the means before] = Tᵀ [λG; gradient of the means behind].
    for (int64_t i = 0; i < n; ++i) simd::scale(lane.up + i * width, lambda[i * outputs], static_cast<size_t>(width));
    ops::gemm_transposed(lane.rows(lane.out), lane.square(lane.t), lane.rows(lane.up));
    ops::add_rows(gradients.d_v.rows(value_head, sequence * call.in.key_rows + call.in.first_row + first, n),
                  lane.rows(lane.out).row_range(0, n));
    std::copy_n(lane.means(lane.out), call.state_size(), lane.means(lane.up));
  }
}

}  // namespace

void prototype_gates(const NoiseRows& take, const NoiseRows& keep, const NoiseRows& scores, double* log_sums,
                     const SignedInputs& in, int64_t outputs, int64_t rank) {
  // Heads whose numbers lie side by side go together, in whole vectors.
  constexpr int64_t kNumbers = 16;
  const bool side_by_side = take.head_stride == rank && keep.head_stride == rank && scores.head_stride == rank;
  const int64_t most = side_by_side ? std::clamp<int64_t>(kNumbers / rank, 1, outputs) : 1;
  const int64_t groups = (outputs + most - 1) / most;
  parallel_for(in.sequences * groups, [&](int64_t task) {
    const int64_t sequence = task / groups, head = task % groups * most;
    const int64_t count = std::min(most, outputs - head) * rank;
    // L = largest + log(total), where total ≥ 1 counts in units of e^largest: nothing leaves the range of doubles.
    std::vector<double> largest(static_cast<size_t>(count)), total(static_cast<size_t>(count), 1.0);
    double* carried = log_sums ? log_sums + (sequence * outputs + head) * rank : nullptr;
    if (carried) std::copy_n(carried, count, largest.data());
    for (int64_t t = 0; t < in.rows; ++t) {
      const int64_t row = sequence * in.rows + t;
      const float* score = scores.at(row, head);
      float *takes = take.at(row, head), *keeps = keep.at(row, head);
      if (begins(in, sequence, t) || (t == 0 && !carried)) {
        for (int64_t i = 0; i < count; ++i) {
          largest[static_cast<size_t>(i)] = static_cast<double>(score[i]);
          keeps[i] = std::isfinite(score[i]) ? 0.0f : score[i] - score[i];
          takes[i] = 1;
        }
        std::fill(total.begin(), total.end(), 1.0);
      } else {
        simd::running_softmax(takes, keeps, largest.data(), total.data(), score, largest.size());
      }
    }
    for (int64_t i = 0; carried && i < count; ++i) {
      const auto m = static_cast<size_t>(i);
      carried[i] = largest[m] + std::log(total[m]);
    }
  });
}

void fixed_gates(const NoiseRows& take, const NoiseRows& keep, std::span<const float> decays, const SignedInputs& in) {
  for (int64_t row = 0; row < in.sequences * in.rows; ++row) {
    const auto i = static_cast<double>(place_in_document(in, row));
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

void calibrated_gates(const NoiseRows& take, const NoiseRows& keep, const NoiseRows& alpha, const CalibratedMap& map,
                      const SignedInputs& in, int64_t outputs) {
  constexpr double kFloor = 0.1;
  const int64_t rows = in.sequences * in.rows, rank = map.rank;
  int64_t last = 0;
  for (int64_t row = 0; row < rows; ++row) last = std::max(last, place_in_document(in, row));
  if (last >= map.length) {
    fail(ErrorCode::shape, "attention: a text of {} tokens, but the calibrated map has {} rows", last + 1, map.length);
  }
  parallel_for(outputs, [&](int64_t head) {
    const float *u = map.u + head * map.length * rank, *v = map.v + head * map.length * rank;
    // A row's sum depends on its place alone.
    std::vector<double> inverse(static_cast<size_t>(last + 1)), below(static_cast<size_t>(rank));
    for (int64_t i = 0; i <= last; ++i) {
      double sum = 0;
      for (int64_t m = 0; m < rank; ++m) {
        double& z = below[static_cast<size_t>(m)];
        z += static_cast<double>(v[i * rank + m]);
        sum += static_cast<double>(u[i * rank + m]) * z;
      }
      inverse[static_cast<size_t>(i)] = 1 / (sum > kFloor ? sum : kFloor);
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t i = std::max<int64_t>(place_in_document(in, row), 0);
      std::copy_n(v + i * rank, rank, take.at(row, head));
      std::fill_n(keep.at(row, head), rank, i == 0 ? 0.0f : 1.0f);
      for (int64_t m = 0; m < rank; ++m) {
        alpha.at(row, head)[m] =
            static_cast<float>(static_cast<double>(u[i * rank + m]) * inverse[static_cast<size_t>(i)]);
      }
    }
  });
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
