// Where a command's tokens come from: --text, --ids, or a file.
#pragma once

#include <optional>

#include "cli/options.h"

namespace unchain::cli {

struct TextSource {
  std::string text;  // --text
  std::string ids;   // --ids 1,2,3
  std::string file;  // positional
  CLI::Option* text_option = nullptr;
  CLI::Option* ids_option = nullptr;
  CLI::Option* file_option = nullptr;

  bool has_text() const { return text_option != nullptr && text_option->count() > 0; }
  bool has_ids() const { return ids_option != nullptr && ids_option->count() > 0; }
  bool has_file() const { return file_option != nullptr && file_option->count() > 0; }
  std::string name() const { return has_file() ? file : "--text"; }  // of the text, for messages
};

// --text T, --ids LIST, and (if `with_file`) a positional FILE; a command that takes several takes exactly one of them.
void add_text_source(CLI::App& command, TextSource& source, bool with_ids, bool with_file);

// The text of --text or of the file. Errors: usage if neither or several were given; io, format.
std::string read_source_text(const TextSource& source);

// The text's tokens, with BOS where `bos` allows and the model adds one. What the vocabulary has no piece for is told
// on stderr; `where` names the text there. Errors with `bos`: usage, format (no tokens).
std::vector<int32_t> encode_text(const tokenizer::Tokenizer& tokenizer, const std::string& text,
                                 const std::string& where, const Common& common, bool bos = true);

// Tokens as the model sees them.
struct SourceTokens {
  std::vector<int32_t> ids;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null with --ids, which need none
};

// --ids as they are; else the text's tokens, with BOS where the model adds one.
SourceTokens read_tokens(const TextSource& source, const model::ModelFile& file, const Common& common);

}  // namespace unchain::cli
