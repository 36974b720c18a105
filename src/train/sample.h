// What a model writes: for the eye, while it learns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace unchain::train {

// The `count` tokens that the model in this folder puts after the prompt, each the likeliest. Errors: those of loading;
// numeric.
std::vector<int32_t> continue_text(const std::filesystem::path& folder, DType dtype, std::span<const int32_t> prompt,
                                   int64_t count);

}  // namespace unchain::train
