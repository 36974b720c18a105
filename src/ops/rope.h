// Rotary position embedding (Su et al., arXiv 2104.09864): pair i of a head at position p turns by p·frequency_i.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/matrix.h"

namespace unchain::ops {

enum class RopePairs {
  halves,      // dimension i with i + E/2: Hugging Face files
  neighbours,  // dimension 2i with 2i + 1: GGUF files of Llama type
};

// Cosines and sines of the turning angles, [positions, E/2] each.
struct RopeTable {
  int64_t half = 0;
  std::vector<float> cosine, sine;

  const float* cosine_row(int64_t position) const { return cosine.data() + position * half; }
  const float* sine_row(int64_t position) const { return sine.data() + position * half; }
  int64_t positions() const { return half ? static_cast<int64_t>(cosine.size()) / half : 0; }
  // Computes rows up to `count` positions; angles in double, since p·frequency in f32 loses 1e-3 at p = 8192.
  void extend(int64_t count, const std::vector<double>& frequencies, double magnitude);
};

// Turns one head's vector x[2·half] at a position; out may be x.
void rope_forward(float* out, const float* x, const RopeTable& table, int64_t position, RopePairs pairs);

// The gradient: a rotation's transpose turns back by the same angle. d_x may be d_out.
void rope_backward(float* d_x, const float* d_out, const RopeTable& table, int64_t position, RopePairs pairs);

}  // namespace unchain::ops
