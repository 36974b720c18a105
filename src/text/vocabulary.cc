#include "text/vocabulary.h"

#include <sentencepiece_trainer.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "base/file.h"

namespace unchain::text {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kLargest = 1 << 20;

// The library learns from lines and skips those that hold one of its own marks: a tab and two letters that it uses
// inside. So a document is cut at these and at newlines, of which no piece may be part, and what lies between is
// learned from. A line without end would be one copy in memory more, no harm.
std::vector<std::string_view> stretches_of(const std::vector<std::string>& documents) {
  constexpr std::string_view kBlankMark = "\xe2\x96\x81", kUnknownMark = "\xe2\x96\x85";  // U+2581, U+2585
  std::vector<std::string_view> stretches;
  for (const std::string_view document : documents) {
    size_t begin = 0;
    for (size_t at = 0; at <= document.size();) {
      const std::string_view rest = document.substr(at);
      const bool mark = rest.starts_with(kBlankMark) || rest.starts_with(kUnknownMark);
      const bool cut = rest.empty() || rest[0] == '\n' || rest[0] == '\t' || mark;
      const size_t bytes = mark ? kBlankMark.size() : 1;
      if (cut) {
        if (at > begin) stretches.push_back(document.substr(begin, at - begin));
        begin = at + bytes;
      }
      at += bytes;
    }
  }
  return stretches;
}

class Stretches final : public sentencepiece::SentenceIterator {
 public:
  explicit Stretches(std::vector<std::string_view> stretches) : stretches_(std::move(stretches)) { take(); }
  bool done() const override { return next_ >= stretches_.size(); }
  void Next() override {
    ++next_;
    take();
  }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void take() {
    if (!done()) value_ = stretches_[next_];
  }
  std::vector<std::string_view> stretches_;
  size_t next_ = 0;
  std::string value_;
};

// The number that follows `words` in a message, −1 if there is none.
int32_t number_after(std::string_view message, std::string_view words) {
  const size_t at = message.find(words);
  int32_t number = -1;
  if (at == std::string_view::npos) return number;
  const std::string_view rest = message.substr(at + words.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return number;
}

[[noreturn]] void explain(std::string_view message, int32_t size) {
  if (const int32_t most = number_after(message, "Please set it to a value <= "); most >= 0)
    fail(ErrorCode::usage, "a vocabulary of {} pieces: the text fills only {}; give more text or a smaller size", size,
         most);
  if (const int32_t least = number_after(message, fmt::format("required_chars. {} vs ", size)); least >= 0) {
    fail(ErrorCode::usage,
         "a vocabulary of {} pieces: the fixed ones and the characters of the text take {}; give a larger size", size,
         least);
  }
  fail(ErrorCode::internal, "vocabulary: SentencePiece says: {}", message);
}

}  // namespace

std::string train_vocabulary(const std::vector<std::string>& documents, int32_t size) {
  if (size <= kFixedPieces || size > kLargest) {
    fail(ErrorCode::usage,
         "a vocabulary of {} pieces: expected {} to {}: {} are fixed (256 bytes, newline, unknown, BOS, EOS)", size,
         kFixedPieces + 1, kLargest, kFixedPieces);
  }
  std::vector<std::string_view> stretches = stretches_of(documents);
  const auto blank = [](std::string_view s) { return s.find_first_not_of(" \r") == std::string_view::npos; };
  if (std::all_of(stretches.begin(), stretches.end(), blank))
    fail(ErrorCode::format, "vocabulary: the files hold no text to learn from, blanks and line ends at most");
  Stretches lines(std::move(stretches));
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train({{"model_type", "bpe"},
                                                                  {"vocab_size", std::to_string(size)},
                                                                  {"unk_id", "0"},
                                                                  {"bos_id", "1"},
                                                                  {"eos_id", "2"},
                                                                  {"pad_id", "-1"},
                                                                  {"user_defined_symbols", "\n"},
                                                                  {"byte_fallback", "true"},
                                                                  {"split_digits", "true"},
                                                                  {"normalization_rule_name", "identity"},
                                                                  {"add_dummy_prefix", "false"},
                                                                  {"remove_extra_whitespaces", "false"},
                                                                  {"allow_whitespace_only_pieces", "true"},
                                                                  {"character_coverage", "0.9995"},
                                                                  {"max_sentence_length", "1073741824"},
                                                                  {"num_threads", "1"},
                                                                  {"minloglevel", "2"}},
                                                                 &lines, &model);
  if (!status.ok()) explain(status.ToString(), size);
  return model;
}

void check_vocabulary_folder(const fs::path& folder) {
  std::error_code unknown;
  if (fs::exists(folder, unknown) && !(fs::is_directory(folder, unknown) && fs::is_empty(folder, unknown)))
    fail(ErrorCode::io, "{}: exists and is not an empty folder; give another name", folder.string());
}

void write_vocabulary(const fs::path& folder, const std::string& model) {
  check_vocabulary_folder(folder);
  const nlohmann::ordered_json config = {{"tokenizer_class", "LlamaTokenizer"},
                                         {"bos_token", "<s>"},
                                         {"eos_token", "</s>"},
                                         {"unk_token", "<unk>"},
                                         {"add_bos_token", true},
                                         {"add_eos_token", false},
                                         {"add_prefix_space", false},
                                         {"clean_up_tokenization_spaces", false},
                                         {"legacy", false}};
  const fs::path building = make_unfinished_folder(folder);
  std::error_code error;
  try {
    write_text(building / "tokenizer.model", model);
    write_text(building / "tokenizer_config.json", config.dump(2) + "\n");
    fs::rename(building, folder, error);
    if (error) fail(ErrorCode::io, "{}: cannot be put in place: {}", folder.string(), error.message());
  } catch (...) {
    fs::remove_all(building, error);
    throw;
  }
}

}  // namespace unchain::text
