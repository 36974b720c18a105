// Planted maps for the analysis tests: random softmax and differential maps, and their way through an observer in
// panels.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "analysis/replacement.h"
#include "attention/maps.h"
#include "base/rng.h"
#include "ref/analysis_ref.h"

namespace unchain::analysis {

// One layer: maps of all heads in f32 values held as double, so that references see exactly what the library sees.
struct PlantedLayer {
  int layer = 0;
  int64_t tokens = 0;
  int64_t window = 0;
  std::vector<ref::Matrix> positive, noise;  // noise: empty without a noise term
  std::vector<std::vector<double>> lambda;   // [heads][tokens]
  std::vector<std::vector<double>> norms;    // [heads][tokens], empty: unknown
  std::vector<float> outputs;                // [tokens, heads, width], empty: none
  int64_t width = 0;

  // P of a head, rounded as f32 arithmetic rounds it.
  ref::Matrix map(size_t head) const {
    ref::Matrix p = positive[head];
    for (size_t i = 0; i < p.size() && !noise.empty(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        p[i][j] = static_cast<float>(positive[head][i][j]) -
                  static_cast<float>(lambda[head][i]) * static_cast<float>(noise[head][i][j]);
      }
    }
    return p;
  }
};

inline ref::Matrix random_softmax(int64_t tokens, int64_t window, Rng& rng, double sharpness = 2) {
  const auto n = static_cast<size_t>(tokens);
  ref::Matrix p = ref::zeros(n, n);
  for (size_t i = 0; i < n; ++i) {
    const size_t first = window > 0 && i >= static_cast<size_t>(window) ? i - static_cast<size_t>(window) + 1 : 0;
    double sum = 0;
    for (size_t j = first; j <= i; ++j) sum += p[i][j] = std::exp(sharpness * rng.normal());
    for (size_t j = first; j <= i; ++j) p[i][j] = static_cast<float>(p[i][j] / sum);
  }
  return p;
}

inline PlantedLayer plant(int layer, int heads, int64_t tokens, uint64_t seed, bool noise, int64_t window = 0) {
  Rng rng(seed, static_cast<uint64_t>(layer));
  PlantedLayer out;
  out.layer = layer;
  out.tokens = tokens;
  out.window = window;
  out.width = 3;
  const auto n = static_cast<size_t>(tokens);
  for (int h = 0; h < heads; ++h) {
    out.positive.push_back(random_softmax(tokens, window, rng));
    out.lambda.emplace_back(n);
    out.norms.emplace_back(n);
    for (double& x : out.norms.back()) x = static_cast<float>(0.1 + rng.uniform());
    if (!noise) continue;
    out.noise.push_back(random_softmax(tokens, window, rng));
    for (double& x : out.lambda.back()) x = static_cast<float>(rng.uniform());
  }
  out.outputs.resize(n * static_cast<size_t>(heads) * 3);
  for (float& x : out.outputs) x = static_cast<float>(rng.normal());
  return out;
}

// Shows the layer in panels of `rows` rows, strides wider than needed and filled with NaN.
inline void show(const PlantedLayer& layer, attention::Observer& observer, int64_t rows) {
  const auto heads = static_cast<int64_t>(layer.positive.size());
  for (int64_t first = 0; first < layer.tokens; first += rows) {
    attention::MapPanel panel;
    panel.layer = layer.layer;
    panel.heads = panel.kv_heads = static_cast<int>(heads);
    panel.first_row = first;
    panel.rows = std::min(rows, layer.tokens - first);
    panel.keys = first + panel.rows;
    panel.window = layer.window;
    panel.row_stride = panel.keys + 5;
    panel.head_stride = panel.rows * panel.row_stride + 7;
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> positive(static_cast<size_t>(heads * panel.head_stride), nan), noise = positive, lambda, norms;
    panel.positive = positive.data();
    panel.noise = layer.noise.empty() ? nullptr : noise.data();
    for (int h = 0; h < static_cast<int>(heads); ++h) {
      for (int64_t r = 0; r < panel.rows; ++r) {
        const auto row = static_cast<size_t>(first + r), head = static_cast<size_t>(h);
        for (int64_t j = 0; j < panel.keys; ++j) {
          panel.positive_row(h, r)[j] = static_cast<float>(layer.positive[head][row][static_cast<size_t>(j)]);
          if (panel.noise)
            panel.noise_row(h, r)[j] = static_cast<float>(layer.noise[head][row][static_cast<size_t>(j)]);
        }
        lambda.push_back(static_cast<float>(layer.lambda[head][row]));
      }
      for (int64_t j = 0; j < panel.keys && !layer.norms.empty(); ++j)
        norms.push_back(static_cast<float>(layer.norms[static_cast<size_t>(h)][static_cast<size_t>(j)]));
    }
    if (panel.noise) panel.lambda = lambda.data();
    if (!norms.empty()) panel.value_norm = norms.data();
    panel.value_norm_stride = panel.keys;
    observer.on_maps(panel);
    if (layer.outputs.empty()) continue;
    std::vector<float> copy = layer.outputs;
    attention::OutputPanel outputs;
    outputs.layer = layer.layer;
    outputs.heads = panel.heads;
    outputs.first_row = first;
    outputs.rows = panel.rows;
    outputs.value_width = layer.width;
    outputs.row_stride = heads * layer.width;
    outputs.output = copy.data() + first * outputs.row_stride;
    observer.on_outputs(outputs);
  }
  observer.end_layer(layer.layer);
}

// Rows first … of a planted layer over buffers of its own.
struct PlantedPanel {
  attention::MapPanel panel;
  std::vector<float> positive, noise, lambda;

  PlantedPanel(const PlantedLayer& layer, int64_t first, int64_t rows, bool state)
      : positive(layer.positive.size() * static_cast<size_t>(rows * (first + rows))),
        noise(positive),
        lambda(layer.positive.size() * static_cast<size_t>(rows)) {
    panel.layer = layer.layer;
    panel.heads = panel.kv_heads = static_cast<int>(layer.positive.size());
    panel.first_row = first;
    panel.rows = rows;
    panel.keys = panel.row_stride = first + rows;
    panel.head_stride = rows * panel.keys;
    panel.window = layer.window;
    panel.noise_is_state = state;
    panel.positive = positive.data();
    panel.noise = noise.data();
    panel.lambda = lambda.data();
    for (int h = 0; h < panel.heads; ++h) {
      for (int64_t r = 0; r < rows; ++r) {
        const auto head = static_cast<size_t>(h), i = static_cast<size_t>(first + r);
        for (int64_t j = 0; j < panel.keys; ++j) {
          panel.positive_row(h, r)[j] = static_cast<float>(layer.positive[head][i][static_cast<size_t>(j)]);
          panel.noise_row(h, r)[j] = static_cast<float>(layer.noise[head][i][static_cast<size_t>(j)]);
        }
      }
    }
  }
  float at(MapPart part, int head, int64_t r, int64_t j) const {
    return (part == MapPart::noise ? panel.noise_row(head, r) : panel.positive_row(head, r))[j];
  }
};

}  // namespace unchain::analysis
