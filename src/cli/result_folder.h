// Folders of results: results.json and the page drawn from it.
#pragma once

#include "cli/options.h"

namespace unchain::cli {

// The option -o, --out.
void add_result_folder(CLI::App& command, std::string& path);

// The folder, made if need be, into which both files can be written. Error: io.
void make_result_folder(const std::string& path);

// Writes results.json and report.html; says on stderr if the page has to do without pictures. Returns two lines that
// name the files. `extras`: report/page.h. Errors: io; usage (a page that is too large).
std::string write_results(const std::string& folder, const nlohmann::json& results, const nlohmann::json& extras);

// The key "model" of results.json.
nlohmann::json describe_model(const Common& common, const model::Transformer& model);

}  // namespace unchain::cli
