// Text files as documents.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace unchain::text {

// The documents of these files, in their order: a file is one document, byte for byte; of a file whose name ends with
// .jsonl each line {"text": "…"} is one (other keys are left alone, empty lines skipped). Errors: usage (no files); io;
// format (an empty file, bytes that are not UTF-8 text with their place, a line without "text" with its number).
std::vector<std::string> read_documents(const std::vector<std::filesystem::path>& files);

// The sum of their sizes.
size_t total_bytes(const std::vector<std::string>& documents) noexcept;

}  // namespace unchain::text
