#include "cli/text_source.h"

#include <cstdio>

#include "base/check.h"
#include "report/table.h"

namespace unchain::cli {

void add_text_source(CLI::App& command, TextSource& source, bool with_ids, bool with_file) {
  source.text_option = command.add_option("--text", source.text, "the text itself")->type_name("TEXT")->group("Text");
  if (with_ids)
    source.ids_option =
        command.add_option("--ids", source.ids, "token ids, taken as they are: no BOS is added, no tokenizer needed")
            ->type_name("1,2,3")
            ->group("Text");
  if (with_file) source.file_option = command.add_option("file", source.file, "text file")->type_name("FILE");
}

std::string read_source_text(const TextSource& source) {
  if (source.has_text() + source.has_ids() + source.has_file() != 1) {
    fail(ErrorCode::usage, "text: give exactly one of {}--text{}", source.file_option ? "FILE and " : "",
         source.ids_option ? " and --ids" : "");
  }
  if (source.has_file()) return read_text_file(source.file);
  if (source.text.empty()) fail(ErrorCode::usage, "--text: is empty");
  return source.text;
}

namespace {

// "00, c0 5 times, e4b8ad and 3 others"
std::string describe(const tokenizer::Missing& missing) {
  constexpr size_t kShown = 8;
  std::vector<std::string> parts;
  for (const auto& [bytes, count] : missing) {
    if (parts.size() == kShown) break;
    std::string hex;
    for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<uint8_t>(byte));
    parts.push_back(count == 1 ? hex : fmt::format("{} {} times", hex, count));
  }
  std::string text = fmt::format("{}", fmt::join(parts, ", "));
  if (missing.size() > kShown) text += fmt::format(" and {} others", missing.size() - kShown);
  return text;
}

void warn_missing(const tokenizer::Tokenizer& tokenizer, const tokenizer::Missing& missing, const std::string& where) {
  size_t bytes = 0, places = 0;
  for (const auto& [stretch, count] : missing) {
    bytes += stretch.size() * count;
    places += count;
  }
  if (bytes == 0) return;
  const std::string fate = tokenizer.unknown < 0
                               ? "are left out"
                               : fmt::format("become the unknown token {} ('{}'), {} in all", tokenizer.unknown,
                                             report::printable(tokenizer.piece(tokenizer.unknown)), places);
  const std::string message = fmt::format("{}: the vocabulary has no piece for {} of its bytes (hex {}); they {}",
                                          where, bytes, describe(missing), fate);
  std::fprintf(stderr, "warning: %s\n", message.c_str());
}

}  // namespace

std::vector<int32_t> encode_text(const tokenizer::Tokenizer& tokenizer, const std::string& text,
                                 const std::string& where, const Common& common, bool bos) {
  tokenizer::Missing missing;
  std::vector<int32_t> ids = bos ? tokenizer.encode_with_bos(text, common.control(), &missing)
                                 : tokenizer.encode(text, common.control(), &missing);
  warn_missing(tokenizer, missing, where);
  if (bos && ids.empty()) fail(text.empty() ? ErrorCode::usage : ErrorCode::format, "{}: gives no tokens", where);
  return ids;
}

SourceTokens read_tokens(const TextSource& source, const model::ModelFile& file, const Common& common) {
  if (source.has_ids() && !source.has_text() && !source.has_file()) return {parse_ids(source.ids), nullptr};
  const std::string text = read_source_text(source);
  auto tokenizer = open_tokenizer(file, common, "give the tokens as --ids 1,2,3");
  auto ids = encode_text(*tokenizer, text, source.name(), common);
  return {std::move(ids), std::move(tokenizer)};
}

}  // namespace unchain::cli
