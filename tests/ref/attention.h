// Causal softmax attention of one layer in double, whole maps, plain loops: forward and backward. docs/math/softmax.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace unchain::ref {

// Query rows are at positions first_row … first_row + rows − 1; keys and values at 0 … first_row + rows − 1.
struct AttentionSizes {
  int64_t rows = 1, first_row = 0, heads = 1, kv_heads = 1, head_dim = 1, value_dim = 1;
  double scale = 1;
  int64_t window = 0;
  double soft_cap = 0;

  int64_t keys() const { return first_row + rows; }
  int64_t group(int64_t head) const { return head / (heads / kv_heads); }
  bool sees(int64_t row, int64_t key) const {
    const int64_t position = first_row + row;
    return key <= position && (window <= 0 || key > position - window);
  }
  // Offsets into q[T, H, E], k[G, S, E], v[G, S, W], out[T, H, W], maps[H, T, S].
  size_t q_at(int64_t row, int64_t head, int64_t e) const {
    return static_cast<size_t>((row * heads + head) * head_dim + e);
  }
  size_t k_at(int64_t group_index, int64_t key, int64_t e) const {
    return static_cast<size_t>((group_index * keys() + key) * head_dim + e);
  }
  size_t v_at(int64_t group_index, int64_t key, int64_t w) const {
    return static_cast<size_t>((group_index * keys() + key) * value_dim + w);
  }
  size_t out_at(int64_t row, int64_t head, int64_t w) const {
    return static_cast<size_t>((row * heads + head) * value_dim + w);
  }
  size_t map_at(int64_t head, int64_t row, int64_t key) const {
    return static_cast<size_t>((head * rows + row) * keys() + key);
  }
};

struct AttentionResult {
  std::vector<double> out;     // [T, H, W]
  std::vector<double> maps;    // [H, T, S], 0 where a row does not see the key
  std::vector<double> scores;  // [H, T, S], after the cap
};

// out = maps · v for given maps.
inline std::vector<double> attention_mix(const AttentionSizes& s, const std::vector<double>& maps,
                                         const std::vector<double>& v) {
  std::vector<double> out(static_cast<size_t>(s.rows * s.heads * s.value_dim));
  for (int64_t h = 0; h < s.heads; ++h) {
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t j = 0; j < s.keys(); ++j) {
        for (int64_t w = 0; w < s.value_dim; ++w) {
          out[s.out_at(t, h, w)] += maps[s.map_at(h, t, j)] * v[s.v_at(s.group(h), j, w)];
        }
      }
    }
  }
  return out;
}

inline AttentionResult attention_forward(const AttentionSizes& s, const std::vector<double>& q,
                                         const std::vector<double>& k, const std::vector<double>& v) {
  AttentionResult result;
  result.maps.resize(static_cast<size_t>(s.heads * s.rows * s.keys()));
  result.scores.resize(result.maps.size());
  for (int64_t h = 0; h < s.heads; ++h) {
    for (int64_t t = 0; t < s.rows; ++t) {
      double largest = -INFINITY, sum = 0;
      for (int64_t j = 0; j < s.keys(); ++j) {
        if (!s.sees(t, j)) continue;
        double score = 0;
        for (int64_t e = 0; e < s.head_dim; ++e) score += q[s.q_at(t, h, e)] * k[s.k_at(s.group(h), j, e)];
        score *= s.scale;
        if (s.soft_cap > 0) score = s.soft_cap * std::tanh(score / s.soft_cap);
        result.scores[s.map_at(h, t, j)] = score;
        if (score > largest) largest = score;
      }
      for (int64_t j = 0; j < s.keys(); ++j) {
        if (!s.sees(t, j)) continue;
        result.maps[s.map_at(h, t, j)] = std::exp(result.scores[s.map_at(h, t, j)] - largest);
        sum += result.maps[s.map_at(h, t, j)];
      }
      for (int64_t j = 0; j < s.keys(); ++j) result.maps[s.map_at(h, t, j)] /= sum;
    }
  }
  result.out = attention_mix(s, result.maps, v);
  return result;
}

struct AttentionGradients {
  std::vector<double> d_q, d_k, d_v;
};

inline AttentionGradients attention_backward(const AttentionSizes& s, const std::vector<double>& d_out,
                                             const AttentionResult& saved, const std::vector<double>& q,
                                             const std::vector<double>& k, const std::vector<double>& v) {
  AttentionGradients g{std::vector<double>(q.size()), std::vector<double>(k.size()), std::vector<double>(v.size())};
  std::vector<double> d_map(static_cast<size_t>(s.keys()));
  for (int64_t h = 0; h < s.heads; ++h) {
    const int64_t group = s.group(h);
    for (int64_t t = 0; t < s.rows; ++t) {
      // Pass 3 was out = Σ_j map_j v_j: gradients of v and of the map.
      double inner = 0;
      for (int64_t j = 0; j < s.keys(); ++j) {
        const double map = saved.maps[s.map_at(h, t, j)];
        d_map[static_cast<size_t>(j)] = 0;
        for (int64_t w = 0; w < s.value_dim; ++w) {
          d_map[static_cast<size_t>(j)] += d_out[s.out_at(t, h, w)] * v[s.v_at(group, j, w)];
          g.d_v[s.v_at(group, j, w)] += map * d_out[s.out_at(t, h, w)];
        }
        inner += map * d_map[static_cast<size_t>(j)];
      }
      for (int64_t j = 0; j < s.keys(); ++j) {
        if (!s.sees(t, j)) continue;
        // Pass 2 was map = softmax(cap(score)).
        double d_score = saved.maps[s.map_at(h, t, j)] * (d_map[static_cast<size_t>(j)] - inner);
        const double capped = s.soft_cap > 0 ? saved.scores[s.map_at(h, t, j)] / s.soft_cap : 0;
        d_score *= 1 - capped * capped;
        // Pass 1 was score = scale · q·k.
        for (int64_t e = 0; e < s.head_dim; ++e) {
          g.d_q[s.q_at(t, h, e)] += s.scale * d_score * k[s.k_at(group, j, e)];
          g.d_k[s.k_at(group, j, e)] += s.scale * d_score * q[s.q_at(t, h, e)];
        }
      }
    }
  }
  return g;
}

}  // namespace unchain::ref
