#include "text/corpus.h"

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "formats/json.h"
#include "formats/text.h"

namespace unchain::text {
namespace {

// Binary files are told by the first byte that is not UTF-8 or is NUL.
void check_text(std::string_view text, const std::string& where) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = formats::character_bytes(text.substr(at));
    if (bytes == 0 || text[at] == '\0') {
      fail(ErrorCode::format,
           "{}: byte {} (hex {:02x}) is not UTF-8 text; convert the file, or leave it out if it is no text", where, at,
           static_cast<uint8_t>(text[at]));
    }
    at += bytes;
  }
}

void add_lines(std::string_view text, const std::string& name, std::vector<std::string>& documents) {
  const size_t before = documents.size();
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}: line {}", name, number);
    nlohmann::json object = formats::parse_json(line, where);
    if (!object.is_object() || !object.contains("text") || !object["text"].is_string())
      fail(ErrorCode::format, "{}: is no object with a string \"text\"", where);
    auto& document = object["text"].get_ref<std::string&>();
    check_text(document, where);
    if (!document.empty()) documents.push_back(std::move(document));
  }
  if (documents.size() == before) fail(ErrorCode::format, "{}: has no line with text", name);
}

}  // namespace

std::vector<std::string> read_documents(const std::vector<std::filesystem::path>& files) {
  if (files.empty()) fail(ErrorCode::usage, "text: no file is given");
  std::vector<std::string> documents;
  for (const std::filesystem::path& file : files) {
    std::string text = read_text(file);
    if (text.empty()) fail(ErrorCode::format, "{}: is empty, expected text", file.string());
    if (file.extension() == ".jsonl") {
      add_lines(text, file.string(), documents);
    } else {
      check_text(text, file.string());
      documents.push_back(std::move(text));
    }
  }
  return documents;
}

size_t total_bytes(const std::vector<std::string>& documents) noexcept {
  size_t bytes = 0;
  for (const std::string& document : documents) bytes += document.size();
  return bytes;
}

}  // namespace unchain::text
