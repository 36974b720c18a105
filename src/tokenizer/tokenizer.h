// Text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace unchain::formats {
class GgufFile;
}

namespace unchain::tokenizer {

enum class Control {
  literal,  // control tokens' names in the text are text (the default everywhere)
  parse,    // control tokens' names in the text become those tokens (--special)
};

// What of a text the vocabulary has no piece for: single bytes (byte-level), or whole characters and stray bytes
// (SentencePiece without byte pieces). Each became the unknown token or, where there is none, was left out.
using Missing = std::map<std::string, size_t>;  // the bytes → how often they occur

// Immutable, so safe to share between threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Ids of the text alone, without BOS. Any bytes are accepted; those without a piece are added to `missing` where it
  // is given. Error: unsupported for more than 512 MiB.
  virtual std::vector<int32_t> encode(std::string_view text, Control control = Control::literal,
                                      Missing* missing = nullptr) const = 0;
  // The bytes that the ids stand for: decode(encode(x)) == x for any x of which nothing is missing. Control tokens and
  // the unknown token give their names. Error: usage for an id outside the vocabulary.
  virtual std::string decode(const std::vector<int32_t>& ids) const = 0;
  virtual int32_t size() const = 0;                 // ids are 0 … size − 1
  virtual std::string piece(int32_t id) const = 0;  // as stored in the vocabulary
  virtual bool is_control(int32_t id) const = 0;

  // encode(), with BOS in front where the file says so and the ids do not begin with it already.
  std::vector<int32_t> encode_with_bos(std::string_view text, Control control = Control::literal,
                                       Missing* missing = nullptr) const;

  int32_t bos = -1;  // −1: none
  int32_t eos = -1;
  int32_t unknown = -1;            // what no piece stands for becomes this token; −1: it is left out
  bool add_bos = false;            // exactly as the file says
  std::vector<int32_t> stops;      // ids that end a generation: eos and, where the file names them, end-of-turn tokens
  std::string kind;                // for `inspect`, for example "gpt2 bpe (smollm)", "sentencepiece"
  std::vector<std::string> notes;  // what `inspect` tells besides, for example bytes that no piece stands for
  std::vector<std::string> warnings;  // for the user's eyes, for example an unknown pre-tokenizer
};

// From the metadata of a GGUF file. `pretokenizer`: name of a known pattern to use in place of the file's; empty: the
// file's. Errors: format (missing or inconsistent keys); unsupported (tokenizer model); usage (unknown `pretokenizer`).
std::unique_ptr<Tokenizer> from_gguf(const formats::GgufFile& file, const std::string& pretokenizer = "");

// From a Hugging Face folder: tokenizer.json, else tokenizer.model; with tokenizer_config.json where there is one.
// Errors: io (neither file), format, unsupported, usage.
std::unique_ptr<Tokenizer> from_folder(const std::filesystem::path& folder, const std::string& pretokenizer = "");

}  // namespace unchain::tokenizer
