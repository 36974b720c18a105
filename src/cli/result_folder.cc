#include "cli/result_folder.h"

#include <cstdio>

#include "base/check.h"
#include "base/file.h"
#include "cli/interrupt.h"
#include "cli/program.h"
#include "report/page.h"

namespace unchain::cli {

void add_result_folder(CLI::App& command, std::string& path) {
  command.add_option("-o,--out", path, "folder for results.json and report.html")
      ->required()
      ->type_name("DIR")
      ->group("Output");
}

void make_result_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path))
    fail(ErrorCode::io, "{}: cannot make the folder: {}", path, error ? error.message() : "a file has that name");
  for (const char* name : {"results.json", "report.html"}) {
    claim_output(std::filesystem::path(path) / name);
  }
}

std::string write_results(const std::string& folder, const nlohmann::json& results, const nlohmann::json& extras) {
  const std::filesystem::path figures = std::filesystem::path(folder) / "results.json",
                              html = std::filesystem::path(folder) / "report.html";
  const auto hold = hold_interrupts();
  write_text(figures, results.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  report::PageOptions page;
  page.plotly = report::find_plotly(program_folder());
  report::write_page(html, results, extras, page);
  if (page.plotly.empty())
    std::fprintf(stderr, "warning: plotly.min.js was not found, so the page has tables only; run tools/setup plotly\n");
  return fmt::format("figures  {}\npage     {}\n", figures.string(), html.string());
}

nlohmann::json describe_model(const Common& common, const model::Transformer& model) {
  const model::Config& c = model.config;
  return {{"name", std::filesystem::path(common.model).filename().string()},
          {"architecture", c.architecture->name},
          {"attention", c.attention.preset},
          {"parameters", model.parameters()},
          {"layers", c.layer_count()},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"vocabulary", c.vocabulary}};
}

}  // namespace unchain::cli
