#include "cli/text_source.h"

#include "base/check.h"

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

std::vector<int32_t> source_ids(const TextSource& source, const model::ModelFile& file, const Common& common) {
  if (source.has_ids() && !source.has_text() && !source.has_file()) return parse_ids(source.ids);
  const std::string text = read_source_text(source);
  return open_tokenizer(file, common)->encode_with_bos(text, common.control());
}

}  // namespace unchain::cli
