// A small model of a member of the family, ready to run, with the weights that it was made of; and ways to run it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/context.h"
#include "support/family_model.h"
#include "support/temporary_folder.h"

namespace unchain::test {

// The members that analyses of the difference are held against.
inline const std::vector<std::string>& analysed_members() {
  static const std::vector<std::string> all = {"softmax",      "diff_v1",      "diff_v2",   "shared_diff",
                                               "grouped_diff", "lowrank_diff", "fixed_diff"};
  return all;
}

struct LoadedFamily {
  TemporaryFolder folder;
  std::map<std::string, std::vector<double>> weights;  // by name, as in a checkpoint
  std::shared_ptr<const model::Transformer> model;

  // `change` may alter each tensor before the model is saved.
  explicit LoadedFamily(const model::Config& config,
                        const std::function<void(const std::string&, std::span<float>)>& change = {},
                        DType type = DType::f32) {
    model::Trainable trainable(config, DType::f32, 1);
    stir(trainable);
    for (const model::Parameter& p : trainable.parameters()) {
      if (change) change(p.name, p.value);
      weights[p.name] = {p.value.begin(), p.value.end()};
    }
    write_folder(folder.path() / "m", trainable);
    model = model::load(folder.path() / "m", type);
  }
};

// Below 50, with repetitions, so that there are induction targets.
inline std::vector<int32_t> token_ids(size_t count, uint64_t seed = 11, uint64_t vocabulary = 50) {
  Rng rng(seed);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(rng.below(vocabulary)));
  return ids;
}

// Logits [T, V] of all positions.
inline std::vector<float> logits_with(const LoadedFamily& family, const std::vector<int32_t>& ids,
                                      std::vector<attention::Editor*> editors = {},
                                      std::vector<attention::Observer*> observers = {}) {
  const int64_t rows = static_cast<int64_t>(ids.size()), vocabulary = family.model->config.vocabulary;
  model::Context context(family.model, rows);
  const attention::Taps taps{std::move(observers), std::move(editors)};
  context.extend(ids, -1, &taps);
  std::vector<float> logits(static_cast<size_t>(rows * vocabulary));
  context.logits(Matrix(logits.data(), rows, vocabulary), 0, rows);
  return logits;
}

// NLL of token i + 1 from row i of the logits, by plain sums in double.
inline double nll_from_logits(const std::vector<float>& logits, const std::vector<int32_t>& ids, size_t row) {
  const size_t vocabulary = logits.size() / ids.size();
  double sum = 0;
  for (size_t v = 0; v < vocabulary; ++v) sum += std::exp(static_cast<double>(logits[row * vocabulary + v]));
  return std::log(sum) - static_cast<double>(logits[row * vocabulary + static_cast<size_t>(ids[row + 1])]);
}

}  // namespace unchain::test
