#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>

#include "base/check.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "model/save.h"

namespace unchain::cli {
namespace {

bool is_gguf_name(const std::string& path) {
  std::string extension = std::filesystem::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return extension == ".gguf";
}

// "3 f32, 1 q4_k"
std::string describe(const std::map<std::string, int64_t>& types) {
  std::string text;
  for (const auto& [name, count] : types) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  return text;
}

void run(const Common& common, const std::string& out, const std::string& type) {
  prepare(common);
  remove_if_interrupted(out);
  const model::ModelFile file = model::ModelFile::open(common.model);
  model::SaveOptions options;
  if (!type.empty()) options.type = parse_dtype(type);
  const bool gguf = is_gguf_name(out);
  const model::SaveResult saved = gguf ? model::save_gguf(file, out, options) : model::save_folder(file, out, options);
  std::map<std::string, int64_t> other_types;
  for (const auto& [other, count] : saved.other_types) other_types[std::string(info(other).name)] = count;
  if (!other_types.empty()) {
    std::fprintf(stderr, "note: matrices that are not %s: %s%s\n", type.c_str(), describe(other_types).c_str(),
                 type == "q8_0" ? " (q8_0 takes rows of a multiple of 32 numbers)" : "");
  }
  const nlohmann::json result = {{"file", out},
                                 {"kind", gguf ? "gguf" : "hugging_face"},
                                 {"tensors", saved.tensors},
                                 {"unchanged", saved.unchanged},
                                 {"bytes", saved.bytes},
                                 {"other_types", other_types},
                                 {"type", type.empty() ? nlohmann::json() : nlohmann::json(type)}};
  print_result(common, result,
               fmt::format("{}: {} tensors, {} of them unchanged, {:.1f} MB\n", out, saved.tensors, saved.unchanged,
                           1e-6 * static_cast<double>(saved.bytes)));
}

}  // namespace

void add_export(CLI::App& app) {
  auto* command = app.add_subcommand(
      "export", "write a model as a GGUF file (OUT ends with .gguf, in any case) or as a Hugging Face folder");
  auto common = std::make_shared<Common>();
  auto out = std::make_shared<std::string>();
  auto type = std::make_shared<std::string>();
  add_model(*command, *common);
  command
      ->add_option(
          "-o,--out", *out,
          "file name that ends with .gguf, or a folder that does not exist yet; missing folders above it are made")
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
