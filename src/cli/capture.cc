#include <set>

#include "analysis/maps_file.h"
#include "base/check.h"
#include "base/file.h"
#include "cli/interrupt.h"
#include "cli/text_source.h"
#include "model/context.h"

namespace unchain::cli {
namespace {

struct Options {
  std::vector<int> layers, heads;
  std::string out;
};

std::set<int> chosen(const std::vector<int>& numbers, int64_t count, const char* option) {
  for (const int number : numbers) {
    if (number < 0 || number >= count)
      fail(ErrorCode::usage, "{} {}: the model has 0 to {}", option, number, count - 1);
  }
  return {numbers.begin(), numbers.end()};
}

void run(const Common& common, const TextSource& source, const Options& options) {
  prepare(common);
  claim_output(options.out);
  const model::ModelFile file = model::ModelFile::open(common.model);
  const std::set<int> layers = chosen(options.layers, file.config().layer_count(), "--layers");
  const std::set<int> heads = chosen(options.heads, file.config().heads, "--heads");
  const auto [ids, tokenizer] = read_tokens(source, file, common);
  const auto count = static_cast<int64_t>(ids.size());
  if (count > 8192)
    fail(ErrorCode::usage, "capture: {} tokens make maps of {:.1f} GB a head; give at most 8192", count,
         4e-9 * static_cast<double>(count * count));
  warn_beyond_context(file, count, fmt::format("{} tokens", count));
  std::vector<std::string> pieces;
  if (tokenizer) {
    pieces.reserve(ids.size());
    for (const int32_t id : ids) pieces.push_back(tokenizer->piece(id));
  }
  const auto model = model::load(file, common.type());
  model::Context context(model, count);
  analysis::MapsWriter writer(options.out, count, layers, heads);
  attention::Taps taps{{&writer}, {}};
  context.extend(ids, -1, &taps);
  const auto written = writer.finish(ids, pieces, common.model);
  nlohmann::json result = describe_run(common, model->dtype);
  result.update({{"layers", written.layers},
                 {"heads", written.heads},
                 {"tokens", written.tokens},
                 {"bytes", written.bytes},
                 {"file", options.out}});
  print_result(common, result,
               fmt::format("{}: {} layers x {} heads, {} tokens, {:.1f} MB\n", options.out, written.layers.size(),
                           written.heads.size(), written.tokens, 1e-6 * static_cast<double>(written.bytes)));
}

}  // namespace

void add_capture(CLI::App& app) {
  auto* command = app.add_subcommand(
      "capture", "write the attention maps of a text to a safetensors file (read back by analyze --maps)");
  auto common = std::make_shared<Common>();
  auto source = std::make_shared<TextSource>();
  auto options = std::make_shared<Options>();
  add_model(*command, *common);
  add_text_source(*command, *source, true, false);
  add_text_reading(*command, *common);
  command->add_option("--layers", options->layers, "layers to write, from 0; default: all")
      ->delimiter(',')
      ->type_name("0,1,…")
      ->group("Choice");
  command->add_option("--heads", options->heads, "heads to write, from 0; default: all")
      ->delimiter(',')
      ->type_name("0,1,…")
      ->group("Choice");
  command->add_option("-o,--out", options->out, "file to write")
      ->required()
      ->type_name("FILE.safetensors")
      ->group("Output");
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, source, options] { run(*common, *source, *options); });
}

}  // namespace unchain::cli
