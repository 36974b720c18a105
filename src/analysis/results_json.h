// The results of an analysis as JSON: results.json for readers and programs, and what only the page's pictures need.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "analysis/analyzer.h"
#include "analysis/summary.h"

namespace unchain::analysis {

// What the results were taken from and how.
struct ResultsHeader {
  std::string command;  // for example "analyze"
  std::string version;
  nlohmann::json settings;  // the resolved options
  nlohmann::json model;     // as `inspect` describes it
};

inline constexpr int kResultsSchema = 1;

// {"mean", "median", "low", "high"}, low and high null where fewer than two windows contribute; null for no summary.
// `place` begins the message. Error: numeric if a value is not finite.
nlohmann::json summary_json(const std::optional<Summary>& summary, const std::string& place);

// {"schema", "command", "version", "settings", "model", "windows": [tokens], "layers": [{"layer", "window", "lambda",
// "cosine_distance", "cka", "heads": [{"head", MEASURE…}]}], "summary": {MEASURE…, "highest", "lowest"}}; every measure
// is {"mean", "median", "low", "high"} or null where it does not apply; low and high are null where fewer than two
// windows contribute. `a1_…` and `a2_…` stand only in results in which a layer has a noise term. Measures that were not
// selected are absent. Error: numeric if a value is not finite.
nlohmann::json results_json(const AnalysisResults& results, const Selection& selection, const ResultsHeader& header);

// The page's "tokens", "excerpt", "spectra" and "histograms", as report/page.h describes them. Layers and heads stand
// in the order of results.json.
nlohmann::json page_extras(const AnalysisResults& results);

}  // namespace unchain::analysis
