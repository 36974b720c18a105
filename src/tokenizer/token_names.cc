#include "tokenizer/token_names.h"

namespace unchain::tokenizer {
namespace {

uint64_t edge(int32_t node, char byte) {
  return static_cast<uint64_t>(node) * 256 + static_cast<uint8_t>(byte);
}

}  // namespace

void TokenNames::add(std::string_view name, int32_t id) {
  first_[static_cast<uint8_t>(name[0])] = true;
  int32_t node = 0;
  for (const char byte : name) {
    const auto [place, added] = edges_.try_emplace(edge(node, byte), nodes_);
    if (added) ++nodes_;
    node = place->second;
  }
  ends_.try_emplace(node, id);
}

TokenNames::Match TokenNames::longest(std::string_view text) const {
  Match match;
  if (!first_[static_cast<uint8_t>(text[0])]) return match;
  int32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto next = edges_.find(edge(node, text[i]));
    if (next == edges_.end()) break;
    node = next->second;
    const auto end = ends_.find(node);
    if (end != ends_.end()) match = {end->second, i + 1};
  }
  return match;
}

}  // namespace unchain::tokenizer
