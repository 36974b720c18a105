// A pretrained language model: text in, likelihoods and attention maps out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "unchain/error.h"

namespace unchain {

// What weights and matrix products are computed in; accumulation, softmax and norms are always f32.
enum class Precision {
  fastest,  // bf16 where the processor multiplies it in hardware, else f32
  f32,
  bf16,
};

// The attention weights of one head: row i holds how query position i weighs the keys 0 … tokens − 1; those after i are
// 0. Of a differential head, P = A1 − λ·A2, also the parts.
struct AttentionMap {
  int64_t tokens = 0;           // N: rows and columns of the maps
  std::vector<float> weights;   // P [tokens, tokens], row-major: what the values are multiplied by
  std::vector<float> positive;  // A1, likewise; empty without a noise term
  std::vector<float> noise;     // A2, likewise
  std::vector<float> lambda;    // [tokens], one a query; empty without a noise term

  // P of one pair of positions, which must be within 0 … tokens − 1.
  float at(int64_t query, int64_t key) const { return weights[static_cast<size_t>(query * tokens + key)]; }
};

// A loaded model with its tokenizer. Immutable: copies share the weights, and threads may use one object together.
// All functions throw unchain::Error.
class LanguageModel {
 public:
  // A GGUF file, or a folder with config.json and safetensors. Errors: io, format, shape, unsupported.
  static LanguageModel load(const std::string& path, Precision precision = Precision::fastest);

  int64_t layers() const;  // how many, counted from 0 in what follows
  int64_t heads() const;   // query heads a layer
  // Heads of a layer that have a map: heads(), or half of them where a pair makes one map. Error: usage for a layer
  // that the model has not.
  int64_t maps(int64_t layer) const;
  int64_t vocabulary() const;  // how many token ids there are: 0 … vocabulary() − 1

  // Token ids of a text, with the beginning-of-sequence token where the model adds one. Any bytes are accepted; those
  // for which the vocabulary has no piece become its unknown token or, where it has none, are left out.
  std::vector<int32_t> tokenize(std::string_view text) const;
  // How many bytes of the text the vocabulary has no piece for: 0 if detokenize() gives the text back.
  size_t bytes_without_piece(std::string_view text) const;
  // The bytes that these ids stand for. Error: usage for an id outside the vocabulary.
  std::string detokenize(const std::vector<int32_t>& ids) const;

  // Negative log-likelihood, in nats, of each token after the first: ids.size() − 1 numbers. Errors: usage (no ids, an
  // id outside the vocabulary); numeric.
  std::vector<double> score(const std::vector<int32_t>& ids) const;
  // Logits [vocabulary] of the token after these. Errors as score().
  std::vector<float> next_logits(const std::vector<int32_t>& ids) const;
  // The map of one head, both counted from 0, when the model reads these ids. Errors as score(); usage for a layer or
  // head that the model has not.
  AttentionMap capture(const std::vector<int32_t>& ids, int64_t layer, int64_t head) const;
  // The maps of all heads of a layer, from one reading.
  std::vector<AttentionMap> capture(const std::vector<int32_t>& ids, int64_t layer) const;

 private:
  struct State;
  explicit LanguageModel(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

// Sets the threads that all models of this process use; 0: one a processor. Error: usage if negative.
void set_threads(int threads);

}  // namespace unchain
