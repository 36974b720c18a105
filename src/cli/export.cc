#include "base/check.h"
#include "base/thread.h"
#include "cli/options.h"
#include "model/save.h"

namespace unchain::cli {
namespace {

void run(const Common& common, const std::string& out, const std::string& type) {
  set_threads(common.threads);
  const model::ModelFile file = model::ModelFile::open(common.model);
  model::SaveOptions options;
  if (!type.empty()) options.type = parse_dtype(type);
  const bool gguf = out.ends_with(".gguf");
  const model::SaveResult saved = gguf ? model::save_gguf(file, out, options) : model::save_folder(file, out, options);
  const nlohmann::json result = {{"file", out},
                                 {"kind", gguf ? "gguf" : "hugging_face"},
                                 {"tensors", saved.tensors},
                                 {"unchanged", saved.unchanged},
                                 {"bytes", saved.bytes},
                                 {"type", type.empty() ? nlohmann::json() : nlohmann::json(type)}};
  print_result(common, result,
               fmt::format("{}: {} tensors, {} of them unchanged, {:.1f} MB\n", out, saved.tensors, saved.unchanged,
                           1e-6 * static_cast<double>(saved.bytes)));
}

}  // namespace

void add_export(CLI::App& app) {
  auto* command =
      app.add_subcommand("export", "write a model as a GGUF file (OUT ends with .gguf) or as a Hugging Face folder");
  auto common = std::make_shared<Common>();
  auto out = std::make_shared<std::string>();
  auto type = std::make_shared<std::string>();
  add_model(*command, *common);
  command->add_option("-o,--out", *out, "file name that ends with .gguf, or a folder that does not exist yet")
      ->required()
      ->type_name("OUT")
      ->group("Output");
  command->add_option("--type", *type, "type of the matrices; default: kept (in a folder, quantised ones become f32)")
      ->type_name("f32|f16|bf16|q8_0")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0"}))
      ->group("Output");
  add_compute(*command, *common);
  add_output(*command, *common);
  command->callback([common, out, type] { run(*common, *out, *type); });
}

}  // namespace unchain::cli
