// Finds the names of tokens in a text: leftmost first, the longest of those that begin there.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace unchain::tokenizer {

class TokenNames {
 public:
  // Longer names would make a hostile text slow to search.
  static constexpr size_t kLongest = 1024;

  // The name must not be empty, nor longer than kLongest.
  void add(std::string_view name, int32_t id);

  // Calls on_text(stretch) and on_token(id) in the order of the text; stretches are not empty.
  template <class OnText, class OnToken>
  void cut(std::string_view text, const OnText& on_text, const OnToken& on_token) const {
    size_t start = 0;
    for (size_t at = 0; at < text.size();) {
      const Match match = longest(text.substr(at));
      if (match.id < 0) {
        ++at;
        continue;
      }
      if (at > start) on_text(text.substr(start, at - start));
      on_token(match.id);
      start = at += match.length;
    }
    if (start < text.size()) on_text(text.substr(start));
  }

 private:
  struct Match {
    int32_t id = -1;
    size_t length = 0;
  };
  Match longest(std::string_view text) const;

  std::array<bool, 256> first_{};                // bytes that begin a name
  std::unordered_map<uint64_t, int32_t> edges_;  // a trie: node · 256 + byte → node; node 0 is the root
  std::unordered_map<int32_t, int32_t> ends_;    // node → id
  int32_t nodes_ = 1;
};

}  // namespace unchain::tokenizer
