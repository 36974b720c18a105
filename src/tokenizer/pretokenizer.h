// Cuts a text into words before byte-level merges, by regular expressions. Known sets of patterns are a table of data.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unchain::tokenizer {

struct KnownPretokenizer {
  std::vector<std::string_view> names;     // as in tokenizer.ggml.pre; the first is the one that is shown
  std::vector<std::string_view> patterns;  // applied one after the other
  bool whole_words = false;                // a word that is a piece is taken whole
  bool add_bos = false;                    // where the file does not say
};

std::span<const KnownPretokenizer> known_pretokenizers();
const KnownPretokenizer* find_pretokenizer(std::string_view name);  // nullptr: unknown
std::string pretokenizer_names();                                   // "gpt2, smollm, …" for messages

// The same pattern with blanks in the sense of Unicode (White_Space), which PCRE2's own \s and \S are not quite.
std::string with_unicode_blanks(std::string_view pattern);

// Immutable, so safe to share between threads.
class Pretokenizer {
 public:
  // Errors: unsupported (PCRE2 cannot compile a pattern), naming `where`.
  Pretokenizer(const std::vector<std::string>& patterns, const std::string& where);
  // Calls `word` for the words in order; together they are the text. Bytes that are not UTF-8 are words of their own.
  // Error: unsupported (a pattern takes too long on this text).
  void split(std::string_view text, const std::function<void(std::string_view)>& word) const;

 private:
  struct Code;
  struct Scratch;
  void split_level(size_t level, std::string_view text, Scratch& scratch,
                   const std::function<void(std::string_view)>& word) const;
  std::vector<std::shared_ptr<const Code>> codes_;
  std::string where_;
};

}  // namespace unchain::tokenizer
