// A vocabulary written out again, for files of the other kind.
#pragma once

#include <filesystem>
#include <vector>

#include "formats/gguf.h"
#include "tokenizer/vocabulary.h"

namespace unchain::tokenizer {

// The keys tokenizer.ggml.*. Error: unsupported (patterns without a name that GGUF knows).
std::vector<formats::GgufEntry> gguf_entries(const Vocabulary& vocabulary);

// tokenizer.json and tokenizer_config.json into the folder; `chat_template` goes into the latter unless it is empty. A
// vocabulary that merges by score is written with the merges that those scores mean. Errors: io.
void write_folder(const Vocabulary& vocabulary, const std::filesystem::path& folder,
                  const std::string& chat_template = "");

}  // namespace unchain::tokenizer
