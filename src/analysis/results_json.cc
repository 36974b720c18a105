#include "analysis/results_json.h"

#include <cmath>
#include <span>

#include "base/base64.h"
#include "base/check.h"

namespace unchain::analysis {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, kMapKinds> kPrefixes = {"", "a1_", "a2_"};

void write_measures(json& out, const std::array<Summaries, kMapKinds>& measures, const Selection& selection, bool parts,
                    const std::string& place) {
  for (size_t kind = 0; kind < (parts ? kMapKinds : 1); ++kind) {
    for (size_t m = 0; m < kMeasureCount; ++m) {
      const MeasureInfo& measure = info(static_cast<Measure>(m));
      if (!selection.measures[m] || (kind > 0 && !measure.of_parts)) continue;
      const std::string name = std::string(kPrefixes[kind]) + std::string(measure.name);
      out[name] = summary_json(measures[kind][m], fmt::format("{} {}", place, name));
    }
  }
}

template <class Results>
void write_layer_wide(json& out, const Results& results, const Selection& selection, const std::string& place) {
  out["lambda"] = summary_json(results.lambda, place + " lambda");
  if (!selection.redundancy) return;
  out["cosine_distance"] = summary_json(results.cosine_distance, place + " cosine_distance");
  out["cka"] = summary_json(results.cka, place + " cka");
}

json extremes(const std::array<std::optional<Extreme>, kMeasureCount>& values, const Selection& selection) {
  json out = json::object();
  for (size_t m = 0; m < kMeasureCount; ++m) {
    if (!selection.measures[m]) continue;
    json& entry = out[std::string(info(static_cast<Measure>(m)).name)];
    if (values[m]) entry = {{"layer", values[m]->layer}, {"head", values[m]->head}, {"value", values[m]->value}};
  }
  return out;
}

// [layer][head] of what `part` makes of a head.
template <class Part>
json per_head(const AnalysisResults& results, const Part& part) {
  json out = json::array();
  for (const LayerResults& layer : results.layers) {
    json& row = out.emplace_back(json::array());
    for (const HeadResults& head : layer.heads) row.push_back(part(head));
  }
  return out;
}

template <size_t Bins>
json edges(const std::array<uint64_t, Bins>&, double first, double last) {
  json out = json::array();
  for (size_t i = 0; i <= Bins; ++i) out.push_back(first + (last - first) * static_cast<double>(i) / Bins);
  return out;
}

}  // namespace

json summary_json(const std::optional<Summary>& summary, const std::string& place) {
  if (!summary) return nullptr;
  const auto finite = [&](double x) -> json {
    if (!std::isfinite(x)) fail(ErrorCode::numeric, "{}: the value is {}, expected a finite number", place, x);
    return x;
  };
  const auto& interval = summary->interval;
  return {{"mean", finite(summary->mean)},
          {"median", finite(summary->median)},
          {"low", interval ? finite(interval->low) : json()},
          {"high", interval ? finite(interval->high) : json()}};
}

nlohmann::json results_json(const AnalysisResults& results, const Selection& selection, const ResultsHeader& header) {
  json out = {{"schema", kResultsSchema},    {"command", header.command}, {"version", header.version},
              {"settings", header.settings}, {"model", header.model},     {"windows", results.windows},
              {"layers", json::array()}};
  bool parts = false;
  for (const LayerResults& layer : results.layers) parts |= layer.noise;
  for (const LayerResults& layer : results.layers) {
    const std::string place = fmt::format("layer {}", layer.layer);
    json layer_out = {
        {"layer", layer.layer}, {"window", layer.window}, {"head_numbers", json::array()}, {"heads", json::array()}};
    write_layer_wide(layer_out, layer, selection, place);
    for (const HeadResults& head : layer.heads) {
      layer_out["head_numbers"].push_back(head.head);
      json head_out = json::object();
      write_measures(head_out, head.measures, selection, parts, fmt::format("{} head {}", place, head.head));
      layer_out["heads"].push_back(std::move(head_out));
    }
    out["layers"].push_back(std::move(layer_out));
  }
  json& summary = out["summary"] = json::object();
  write_measures(summary, results.summary, selection, parts, "summary");
  write_layer_wide(summary, results, selection, "summary");
  summary["highest"] = extremes(results.highest, selection);
  summary["lowest"] = extremes(results.lowest, selection);
  return out;
}

nlohmann::json page_extras(const AnalysisResults& results) {
  json out = json::object();
  if (!results.pieces.empty()) out["tokens"] = results.pieces;
  if (results.excerpt_tokens > 0) {
    out["excerpt"] = {{"size", results.excerpt_tokens},
                      {"scale", "sqrt"},
                      {"maps", per_head(results, [](const HeadResults& h) {
                         return json(base64(std::as_bytes(std::span(h.excerpt))));
                       })}};
    bool negative = false;
    for (const LayerResults& layer : results.layers) {
      for (const HeadResults& head : layer.heads) negative |= !head.excerpt_signs.empty();
    }
    if (negative) {
      out["excerpt"]["signs"] = per_head(results, [](const HeadResults& h) {
        return h.excerpt_signs.empty() ? json() : json(base64(std::as_bytes(std::span(h.excerpt_signs))));
      });
    }
  }
  out["spectra"] = per_head(results, [](const HeadResults& h) {
    if (h.spectrum.empty()) return json();
    json values = json::array();
    for (const double s : h.spectrum) values.push_back(std::stod(fmt::format("{:.3g}", s)));  // three digits are drawn
    return values;
  });
  const Histograms none;
  out["histograms"] = {
      {"log10_weight",
       {{"edges", edges(none.log10_weight, -8, 0)},
        {"counts", per_head(results, [](const HeadResults& h) { return json(h.histograms.log10_weight); })}}},
      {"entropy_normalised",
       {{"edges", edges(none.entropy_normalised, 0, 1)},
        {"counts", per_head(results, [](const HeadResults& h) { return json(h.histograms.entropy_normalised); })}}}};
  return out;
}

}  // namespace unchain::analysis
