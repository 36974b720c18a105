#include "train/sample.h"

#include <algorithm>

#include "model/context.h"
#include "model/model_file.h"
#include "model/transformer.h"

namespace unchain::train {

std::vector<int32_t> continue_text(const std::filesystem::path& folder, DType dtype, std::span<const int32_t> prompt,
                                   int64_t count) {
  const auto model = model::load(model::ModelFile::open(folder), dtype);
  model::Context context(model, static_cast<int64_t>(prompt.size()) + count);
  std::vector<float> logits(static_cast<size_t>(model->config.vocabulary));
  std::vector<int32_t> result;
  for (std::span<const int32_t> next = prompt; static_cast<int64_t>(result.size()) < count;
       next = std::span(result).last(1)) {
    context.extend(next, 1);
    context.logits(Matrix(logits.data(), 1, model->config.vocabulary), 0, 1);
    result.push_back(static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin()));
  }
  return result;
}

}  // namespace unchain::train
