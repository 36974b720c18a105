#include "analysis/token_texts.h"

namespace unchain::analysis {

std::vector<std::string> token_texts(const tokenizer::Tokenizer* tokenizer, std::span<const int32_t> ids) {
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (const int32_t id : ids)
    texts.push_back(tokenizer && id < tokenizer->size() ? tokenizer->decode({id}) : std::to_string(id));
  return texts;
}

}  // namespace unchain::analysis
