#include "base/check.h"
#include "cli/text_source.h"
#include "report/table.h"

namespace unchain::cli {
namespace {

void run(const Common& common, const TextSource& source) {
  prepare(common);
  const model::ModelFile file = model::ModelFile::open(common.model);
  const auto tokenizer = open_tokenizer(file, common, "tokenize needs one");
  const bool given = source.has_ids() && !source.has_text() && !source.has_file();
  const std::vector<int32_t> ids =
      given ? parse_ids(source.ids) : encode_text(*tokenizer, read_source_text(source), source.name(), common);
  nlohmann::json pieces = nlohmann::json::array();
  std::string text;
  for (const int32_t id : ids) {
    pieces.push_back(tokenizer->piece(id));
    text += fmt::format("{:>8}  {}\n", id, report::printable(tokenizer->piece(id)));
  }
  print_result(common, {{"ids", ids}, {"pieces", pieces}, {"tokenizer", tokenizer->kind}}, text);
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto* command =
      app.add_subcommand("tokenize", "the ids and pieces that a model sees of a text, BOS included where it adds one");
  auto common = std::make_shared<Common>();
  auto source = std::make_shared<TextSource>();
  add_model(*command, *common);
  add_text_source(*command, *source, true, true);
  add_text_reading(*command, *common);
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, source] { run(*common, *source); });
}

}  // namespace unchain::cli
