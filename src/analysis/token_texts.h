// What a reader sees of single tokens, for pages.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace unchain::analysis {

// [ids] the text of each id by itself; its number where the tokenizer has no such id, or without a tokenizer (null).
std::vector<std::string> token_texts(const tokenizer::Tokenizer* tokenizer, std::span<const int32_t> ids);

}  // namespace unchain::analysis
