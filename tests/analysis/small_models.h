// Models of a few kilobytes that share what tensors they have in common, and what they say of a text.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "attention/maps.h"
#include "model/context.h"
#include "model/model_file.h"
#include "support/family_model.h"
#include "support/temporary_folder.h"

namespace unchain::analysis {

// The model of this configuration, its numbers stirred, those of `like` (a model of another configuration) where names
// and sizes agree; `change` is called for every parameter at the end.
inline std::shared_ptr<const model::Transformer> small_model(
    const model::Config& config, const model::Config* like = nullptr,
    const std::function<void(model::Parameter& p)>& change = {}) {
  model::Trainable m(config, DType::f32, 1);
  test::stir(m);
  if (like) {
    model::Trainable other(*like, DType::f32, 1);
    test::stir(other);
    for (model::Parameter& p : m.parameters()) {
      for (const model::Parameter& q : other.parameters()) {
        if (p.name == q.name && p.shape == q.shape) std::copy(q.value.begin(), q.value.end(), p.value.begin());
      }
    }
  }
  for (model::Parameter& p : m.parameters()) {
    if (change) change(p);
  }
  const test::TemporaryFolder folder;
  test::write_folder(folder.path() / "m", m);
  return model::load(folder.path() / "m", DType::f32);
}

inline std::vector<int32_t> small_text(size_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(rng.below(50)));
  return ids;
}

// NLL of each token but the first. `ids` but the last are read with these taps.
inline std::vector<double> nll_of(const std::shared_ptr<const model::Transformer>& model,
                                  const std::vector<int32_t>& ids, const std::vector<attention::Editor*>& editors = {},
                                  const std::vector<attention::Observer*>& observers = {}) {
  model::Context context(model, static_cast<int64_t>(ids.size()));
  const attention::Taps taps{observers, editors};
  const std::span<const int32_t> all(ids);
  context.extend(all.first(ids.size() - 1), -1, &taps);
  std::vector<double> nll(ids.size() - 1);
  context.nll(nll, all.last(ids.size() - 1));
  return nll;
}

inline double mean_of(const std::vector<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

// Kernels and order of sums are the same, maps differ by a rounding or two: NLL of about 5, as in tests/model.
inline constexpr double kNllTolerance = 2e-5;

}  // namespace unchain::analysis
