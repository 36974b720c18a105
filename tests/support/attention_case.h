// One attention problem in the types of the engine, and the same in double for the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/attention.h"
#include "ref/attention.h"
#include "support/random_values.h"

namespace unchain::test {

// Two groups of two heads; no width is a whole number of vectors.
inline ref::AttentionSizes grouped_attention(int64_t rows, int64_t first_row, int64_t window) {
  ref::AttentionSizes s;
  s.rows = rows;
  s.first_row = first_row;
  s.window = window;
  s.heads = 4;
  s.kv_heads = 2;
  s.head_dim = 12;
  s.value_dim = 7;
  s.scale = 0.5;
  return s;
}

// Looks at nothing: forces the path with taps.
struct IdleObserver : attention::Observer {
  void on_maps(const attention::MapPanel& /*panel*/) override {}
};

// Random queries, keys and values. The cache has room for more positions than are read, and gaps between its rows; both
// hold NaN, so that reading them shows.
class AttentionCase {
 public:
  AttentionCase(const ref::AttentionSizes& sizes, DType type, uint64_t seed = 1)
      : sizes_(sizes), type_(type), capacity_(sizes.keys() + 3) {
    q = random_floats(static_cast<size_t>(sizes.rows * sizes.heads * sizes.head_dim), seed);
    k = random_floats(static_cast<size_t>(sizes.kv_heads * sizes.keys() * sizes.head_dim), seed + 1);
    v = random_floats(static_cast<size_t>(sizes.kv_heads * sizes.keys() * sizes.value_dim), seed + 2);
    if (type == DType::bf16) {
      k = through_bf16(k);
      v = through_bf16(v);
    }
  }

  std::vector<float> q, k, v;  // [T, H, E], [G, S, E], [G, S, W]

  const ref::AttentionSizes& sizes() const { return sizes_; }
  attention::SignedConfig config() const {
    return {attention::softmax_layout(sizes_.heads, sizes_.kv_heads), static_cast<float>(sizes_.scale), sizes_.window,
            static_cast<float>(sizes_.soft_cap)};
  }

  // Views of this case's memory, filled anew.
  attention::SignedInputs inputs() {
    fill(keys_, keys16_, k, sizes_.head_dim);
    fill(values_, values16_, v, sizes_.value_dim);
    const bool narrow = type_ == DType::bf16;
    attention::SignedInputs in;
    in.q =
        attention::HeadRows::side_by_side(Matrix(q.data(), sizes_.rows, sizes_.heads * sizes_.head_dim), sizes_.heads);
    in.k = narrow ? view(keys16_, sizes_.head_dim) : view(keys_, sizes_.head_dim);
    in.v = narrow ? view(values16_, sizes_.value_dim) : view(values_, sizes_.value_dim);
    in.rows = sizes_.rows;
    in.first_row = sizes_.first_row;
    in.key_rows = capacity_;
    return in;
  }

  // out[T, H·W] in f32, whatever the type that attention writes.
  std::vector<float> run(DType out_type = DType::f32, const attention::TapContext& tap = {}) {
    const attention::SignedInputs in = inputs();
    const int64_t width = sizes_.heads * sizes_.value_dim;
    std::vector<float> out(static_cast<size_t>(sizes_.rows * width), -77);
    std::vector<bf16> out16(out.size());
    attention::attention_forward(
        out_type == DType::bf16 ? Matrix(out16.data(), sizes_.rows, width) : Matrix(out.data(), sizes_.rows, width), in,
        config(), workspace, tap);
    attention::show_outputs(
        out_type == DType::bf16 ? Matrix(out16.data(), sizes_.rows, width) : Matrix(out.data(), sizes_.rows, width),
        sizes_.heads, sizes_.first_row, tap);
    if (out_type == DType::bf16)
      std::transform(out16.begin(), out16.end(), out.begin(), [](bf16 x) { return to_f32(x); });
    return out;
  }

  // The reference. Panels of bf16 keys take the scaled query in bf16; a few rows do not (`rounded_query`).
  ref::AttentionResult reference(bool rounded_query) const {
    ref::AttentionSizes s = sizes_;
    std::vector<double> query = widen(q);
    if (rounded_query) {
      for (size_t i = 0; i < q.size(); ++i) query[i] = to_f32(to_bf16(q[i] * static_cast<float>(s.scale)));
      s.scale = 1;
    }
    return ref::attention_forward(s, query, widen(k), widen(v));
  }

  // How far an output may be off, for each entry of out[T, H, W]; and, in `maps`, for each entry of the maps.
  //   A score is a sum of E products: |δ| ≤ (E + 3)·ε·A, A = scale·Σ|q k| at most; the cap adds 4ε of its value and
  //   nowhere enlarges an error. A weight e^s/Σ is off by a factor of at most 1 + 2δ, two exponentials of 4e-7 and a
  //   sum of S numbers, (S/8 + 5)·ε. An output sums S weights that sum to 1, times |v| ≤ V: (S + 3)·ε·V more. bf16
  //   rounds each weight, and divides by the sum of the rounded ones or rounds the quotient: 2·ε₈. A bf16 result rounds
  //   once more.
  std::vector<double> tolerance(const ref::AttentionResult& expected, DType out_type,
                                std::vector<double>* maps = nullptr) const {
    const ref::AttentionSizes& s = sizes_;
    std::vector<double> result(expected.out.size());
    if (maps) maps->assign(expected.maps.size(), 0);
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t t = 0; t < s.rows; ++t) {
        double score = 0, value = 0;
        for (int64_t j = 0; j < s.keys(); ++j) {
          if (!s.sees(t, j)) continue;
          double sum = 0;
          for (int64_t e = 0; e < s.head_dim; ++e) {
            sum += std::abs(static_cast<double>(q[s.q_at(t, h, e)]) * static_cast<double>(k[s.k_at(s.group(h), j, e)]));
          }
          score = std::max(score, sum * s.scale);
          for (int64_t w = 0; w < s.value_dim; ++w) {
            value = std::max(value, std::abs(static_cast<double>(v[s.v_at(s.group(h), j, w)])));
          }
        }
        const double keys = static_cast<double>(s.keys());
        const double delta = (static_cast<double>(s.head_dim) + 3) * kEpsF32 * score + 4 * kEpsF32 * s.soft_cap;
        const double weight = 2 * delta + 8e-7 + (keys / 8 + 5) * kEpsF32 + (type_ == DType::bf16 ? 2 * kEpsBf16 : 0);
        for (int64_t w = 0; w < s.value_dim; ++w) {
          const size_t at = s.out_at(t, h, w);
          result[at] = value * (weight + (keys + 3) * kEpsF32);
          if (out_type == DType::bf16) result[at] += kEpsBf16 * (std::abs(expected.out[at]) + result[at]);
        }
        if (!maps) continue;
        for (int64_t j = 0; j < s.keys(); ++j) (*maps)[s.map_at(h, t, j)] = weight * expected.maps[s.map_at(h, t, j)];
      }
    }
    return result;
  }

  attention::AttentionWorkspace workspace;

 private:
  static constexpr int64_t kGap = 3;

  void fill(std::vector<float>& wide, std::vector<bf16>& narrow, const std::vector<float>& from, int64_t width) const {
    wide.assign(static_cast<size_t>(sizes_.kv_heads * capacity_ * (width + kGap)),
                std::numeric_limits<float>::quiet_NaN());
    for (int64_t g = 0; g < sizes_.kv_heads; ++g) {
      for (int64_t j = 0; j < sizes_.keys(); ++j) {
        std::copy_n(from.begin() + (g * sizes_.keys() + j) * width, width,
                    wide.begin() + (g * capacity_ + j) * (width + kGap));
      }
    }
    narrow = to_bf16s(wide);
  }
  template <class T>
  attention::HeadRows view(std::vector<T>& data, int64_t width) const {
    return {data.data(),
            std::is_same_v<T, bf16> ? DType::bf16 : DType::f32,
            sizes_.kv_heads,
            width,
            capacity_ * (width + kGap),
            width + kGap};
  }

  ref::AttentionSizes sizes_;
  DType type_;
  int64_t capacity_;
  std::vector<float> keys_, values_;
  std::vector<bf16> keys16_, values16_;
};

}  // namespace unchain::test
