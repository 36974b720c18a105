// Models of a few kilobytes with a tokenizer, made on the spot, for tests of whole programs.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace unchain::test {

struct TinyModel {
  std::string architecture = "llama";    // or "gemma3"
  std::string tokenizer = "byte_level";  // a name of tests/golden/tokenizer: byte_level has 900 pieces and no BOS,
                                         // gemma_like and llama_like 700 and BOS 1; empty: none
  // The likeliest token after t is t + 1, far above all others: text that can be foretold. Else random.
  bool chain = false;
  // Called for each tensor with its f32 numbers before they are written.
  std::function<void(const std::string& name, std::vector<float>& values)> change;
  // Or another member of the family with q, k, v and o as softmax has them, such as "lowrank_diff"; gemma3 only.
  std::string attention = "softmax";
};

// Writes a Hugging Face folder: 3 layers, width 32, 4 heads of width 8 on 2 key/value heads, f32. Gemma3: a window of
// 6, the second layer full.
void write_tiny_model(const std::filesystem::path& folder, const TinyModel& options = {});

}  // namespace unchain::test
