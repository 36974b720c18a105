// A model ready to run: one transformer, composed from parts as its configuration says.
//
//   h = embedding[token] · embedding_scale
//   in each layer:  h += post_norm(W_O attention(rope(q_norm(W_Q n)), rope(k_norm(W_K n)), W_V n)),  n = norm(h)
//                   h += post_norm(W_down (activation(W_gate m) ⊙ W_up m)),                           m = norm(h)
//   logits = cap(W_out norm(h))
// Parts that an architecture lacks (post norms, query/key norms, biases, cap) are left out.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/member.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace unchain::model {

class ModelFile;

// Norm weights and biases are f32 vectors; an empty one is absent.
using Vector = std::vector<float>;

struct Layer {
  Vector attention_norm, query_norm, key_norm, attention_post_norm, feed_forward_norm, feed_forward_post_norm;
  Member attention;
  ops::Linear output, gate, up, down;
};

// Immutable after loading, so threads may share it.
struct Transformer {
  Config config;
  DType dtype = DType::f32;  // of the weights and of products: f32 or bf16
  Matrix embedding;          // [V, D]
  ops::Linear head;          // [V, D]; the embedding where they are tied
  Vector output_norm;
  std::vector<Layer> layers;
  std::deque<Vector> vectors;                        // what biases and vectors of attention members point into
  std::vector<std::shared_ptr<const void>> storage;  // what the matrices point into: file maps and converted weights

  int64_t parameters() const;  // numbers in the file that this model uses, the tied embedding counted once
};

// The element type that is fastest in hardware here: bf16 where products run in it, else f32.
DType default_dtype();

// Loads all weights as `dtype` (f32 or bf16). Tensors that the file holds in that type are used where they are mapped;
// others are converted once. Errors: as ModelFile::open(); format (a tensor is missing); shape (with the config's
// sizes).
std::shared_ptr<const Transformer> load(const ModelFile& file, DType dtype);
std::shared_ptr<const Transformer> load(const std::filesystem::path& path, DType dtype);

}  // namespace unchain::model
