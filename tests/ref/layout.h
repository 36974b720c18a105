// Which heads an output reads, layout by layout (docs/math/diff_v1.md, "Layouts"). h and g count the query and key
// heads that the arrays hold; in all layouts query head a reads key head ⌊a · key heads / query heads⌋.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ref/family_shape.h"

namespace unchain::ref {

// Plain softmax: h outputs, g value heads.
inline std::vector<HeadPair> plain_layout(int64_t h, int64_t g) {
  std::vector<HeadPair> pairs;
  for (int64_t i = 0; i < h; ++i) pairs.push_back({i, i * g / h, -1, -1, i * g / h});
  return pairs;
}

// Hugging Face diffllama: heads i and i + h/2 are a pair; h/2 outputs, g/2 wide value heads (see join_halves).
inline std::vector<HeadPair> halves_layout(int64_t h, int64_t g) {
  std::vector<HeadPair> pairs;
  for (int64_t i = 0; i < h / 2; ++i) {
    const int64_t second = i + h / 2;
    pairs.push_back({i, i * g / h, second, second * g / h, i * g / h});
  }
  return pairs;
}

// Microsoft's first version: heads 2i and 2i + 1 are a pair; h/2 outputs, g/2 value heads of twice the width.
inline std::vector<HeadPair> neighbours_layout(int64_t h, int64_t g) {
  std::vector<HeadPair> pairs;
  for (int64_t i = 0; i < h / 2; ++i) {
    pairs.push_back({2 * i, 2 * i * g / h, 2 * i + 1, (2 * i + 1) * g / h, i * g / h});
  }
  return pairs;
}

// The accounting `added`: 2·outputs query heads and 2·g key heads in neighbour pairs, so that each map has keys of its
// own also where heads share them; g value heads of plain width.
inline std::vector<HeadPair> added_layout(int64_t outputs, int64_t g) {
  std::vector<HeadPair> pairs;
  for (int64_t i = 0; i < outputs; ++i) {
    const int64_t group = i * g / outputs;
    pairs.push_back({2 * i, 2 * group, 2 * i + 1, 2 * group + 1, group});
  }
  return pairs;
}

// Microsoft's second version: 2·outputs query heads, pairs 2i and 2i + 1 on the same key and value head of g.
inline std::vector<HeadPair> shared_keys_layout(int64_t outputs, int64_t g) {
  std::vector<HeadPair> pairs;
  for (int64_t i = 0; i < outputs; ++i) {
    const int64_t group = i * g / outputs;
    pairs.push_back({2 * i, group, 2 * i + 1, group, group});
  }
  return pairs;
}

// grouped_diff: h signal heads, then h/ratio noise heads; g key heads, then ⌈g/ratio⌉ of the noise. Noise head m serves
// the outputs m·ratio … m·ratio + ratio − 1.
inline std::vector<HeadPair> grouped_layout(int64_t h, int64_t g, int64_t ratio) {
  const int64_t noise_heads = h / ratio, noise_keys = (g + ratio - 1) / ratio;
  std::vector<HeadPair> pairs;
  for (int64_t i = 0; i < h; ++i) {
    const int64_t m = i / ratio;
    pairs.push_back({i, i * g / h, h + m, g + m * noise_keys / noise_heads, i * g / h});
  }
  return pairs;
}

// Wide value heads of the halves layout: v[S, g, W] to [S, g/2, 2W], heads j and j + g/2 side by side. The gradient is
// the way back, split_halves.
inline std::vector<double> join_halves(const std::vector<double>& v, int64_t positions, int64_t g, int64_t width) {
  std::vector<double> wide(v.size());
  for (int64_t s = 0; s < positions; ++s) {
    for (int64_t j = 0; j < g; ++j) {
      for (int64_t w = 0; w < width; ++w) {
        const int64_t column = (j % (g / 2)) * 2 * width + (j / (g / 2)) * width + w;
        wide[static_cast<size_t>(s * g * width + column)] = v[static_cast<size_t>((s * g + j) * width + w)];
      }
    }
  }
  return wide;
}

inline std::vector<double> split_halves(const std::vector<double>& wide, int64_t positions, int64_t g, int64_t width) {
  std::vector<double> v(wide.size());
  for (int64_t s = 0; s < positions; ++s) {
    for (int64_t j = 0; j < g; ++j) {
      for (int64_t w = 0; w < width; ++w) {
        const int64_t column = (j % (g / 2)) * 2 * width + (j / (g / 2)) * width + w;
        v[static_cast<size_t>((s * g + j) * width + w)] = wide[static_cast<size_t>(s * g * width + column)];
      }
    }
  }
  return v;
}

}  // namespace unchain::ref
