#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretokenizer.h"

#include <pcre2.h>

#include <algorithm>

#include "base/check.h"
#include "formats/text.h"

namespace unchain::tokenizer {
namespace {

constexpr std::string_view kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A new pre-tokenizer is a new line here: {names, patterns, whole words?, BOS by default?}.
const std::vector<KnownPretokenizer> kKnown = {
    {{"gpt2", "gpt-2"}, {kGpt2}},
    {{"smollm"}, {R"(\p{N})", kGpt2}},
    {{"llama-bpe", "llama3", "llama-v3"}, {kLlama3}, true, true},
    {{"qwen2"}, {kQwen2}},
};

}  // namespace

std::span<const KnownPretokenizer> known_pretokenizers() {
  return kKnown;
}

const KnownPretokenizer* find_pretokenizer(std::string_view name) {
  for (const KnownPretokenizer& known : kKnown) {
    if (std::find(known.names.begin(), known.names.end(), name) != known.names.end()) return &known;
  }
  return nullptr;
}

std::string pretokenizer_names() {
  std::string names;
  for (const KnownPretokenizer& known : kKnown) {
    names += (names.empty() ? "" : ", ") + std::string(known.names[0]);
  }
  return names;
}

std::string with_unicode_blanks(std::string_view pattern) {
  // White_Space is \p{Z} and six control characters; \s and \h of PCRE2 also take U+180E.
  const std::string blanks = R"(\p{Z}\t-\r\x{85})";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') {
        out += in_class ? blanks : "[" + blanks + "]";
      } else if (next == 'S' && !in_class) {
        out += "[^" + blanks + "]";
      } else {
        out += c;
        out += next;
      }
      continue;
    }
    if (c == '[' && !in_class)
      in_class = true;
    else if (c == ']')
      in_class = false;
    out += c;
  }
  return out;
}

struct Pretokenizer::Code {
  pcre2_code* code = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

struct Pretokenizer::Scratch {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr);
  Scratch() { pcre2_jit_stack_assign(context, nullptr, stack); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
};

Pretokenizer::Pretokenizer(const std::vector<std::string>& patterns, const std::string& where) : where_(where) {
  for (const std::string& pattern : patterns) {
    const std::string text = with_unicode_blanks(pattern);
    int error = 0;
    PCRE2_SIZE at = 0;
    auto code = std::make_shared<Code>();
    code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
    if (code->code == nullptr) {
      PCRE2_UCHAR message[160] = {};
      pcre2_get_error_message(error, message, sizeof message);
      fail(ErrorCode::unsupported, "{}: cannot use the pre-tokenizer pattern '{}': {}", where,
           formats::printable(pattern), reinterpret_cast<const char*>(message));
    }
    pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without JIT matching is slower, not different
    codes_.push_back(std::move(code));
  }
}

void Pretokenizer::split_level(size_t level, std::string_view text, Scratch& scratch,
                               const std::function<void(std::string_view)>& word) const {
  if (level == codes_.size()) return word(text);
  size_t done = 0;
  while (done < text.size()) {
    const int found = pcre2_match(codes_[level]->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), done,
                                  PCRE2_NOTEMPTY | PCRE2_NO_UTF_CHECK, scratch.match, scratch.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      fail(ErrorCode::unsupported, "{}: a pre-tokenizer pattern takes too long on this text (PCRE2 error {})", where_,
           found);
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.match);
    const size_t begin = ends[0], end = ends[1];
    // \K in a foreign pattern can move the start of a match anywhere.
    if (begin < done || end <= begin) {
      fail(ErrorCode::unsupported, "{}: a pre-tokenizer pattern moves backwards in the text", where_);
    }
    // The scratch is used again below, so the ends are copied first.
    if (begin > done) split_level(level + 1, text.substr(done, begin - done), scratch, word);
    split_level(level + 1, text.substr(begin, end - begin), scratch, word);
    done = end;
  }
  if (done < text.size()) split_level(level + 1, text.substr(done), scratch, word);
}

void Pretokenizer::split(std::string_view text, const std::function<void(std::string_view)>& word) const {
  Scratch scratch;
  size_t at = 0;
  while (at < text.size()) {
    size_t end = at;
    while (end < text.size()) {
      const size_t bytes = formats::character_bytes(text.substr(end));
      if (bytes == 0) break;
      end += bytes;
    }
    if (end > at) split_level(0, text.substr(at, end - at), scratch, word);
    at = end;
    while (end < text.size() && formats::character_bytes(text.substr(end)) == 0) ++end;
    if (end > at) word(text.substr(at, end - at));
    at = end;
  }
}

}  // namespace unchain::tokenizer
