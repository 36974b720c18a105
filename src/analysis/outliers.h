// Activation outliers: the largest magnitude among activations against a typical one. Sources: Sun et al., "Massive
// activations in large language models", arXiv 2402.17762; arXiv 2410.05258 claims fewer of them with differential
// attention. docs/analyses/residual-stream.md.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/context.h"

namespace unchain::analysis {

struct Outlier {
  double largest = 0;                                 // max |a|
  double typical = 0;                                 // the median over positions of each position's median of |a|
  int64_t position = 0;                               // where the largest is: token,
  int64_t channel = 0;                                // and number of the vector, or token id
  double ratio() const { return largest / typical; }  // infinite where most numbers are 0
};

// max and medians of a[rows, cols], cols ≥ 1 numbers a position; rows may come in blocks, positions count on. Not
// thread-safe.
class OutlierSearch {
 public:
  // Error: numeric if a number is not finite, naming position and channel.
  void add(const Matrix& a);
  // Error: usage without rows.
  Outlier result() const;

 private:
  Outlier found_;
  int64_t rows_ = 0;
  std::vector<double> medians_;
  std::vector<float> magnitudes_;
};

struct Outliers {
  std::vector<Outlier> hidden;  // [L + 1]: the residual stream before each layer, and behind the last
  Outlier logits;               // of the vocabulary
};

// Of one pass over `ids`, from position 0 on. What the context has read is forgotten. Errors: as
// model::Context::extend(); usage without ids.
Outliers activation_outliers(model::Context& context, std::span<const int32_t> ids);

}  // namespace unchain::analysis
