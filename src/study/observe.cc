#include "study/observe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "analysis/rank_correlation.h"
#include "study/measure_windows.h"

namespace unchain::study {
namespace {

using nlohmann::ordered_json;

// Of a run, without a value yet.
Observation observation(const ordered_json& result, const std::string& measure) {
  Observation of = {result["size"], result["track"], result["member"], result["seed"], measure, {}, {}, {}};
  if (const auto context = result.find("context"); context != result.end()) of.tokens = context->get<int64_t>();
  return of;
}

bool has_loss(const ordered_json& result) {
  return !result.contains("failed") && result["measures"].contains("loss_nats");
}

double loss_of(const ordered_json& result) {
  return result["measures"]["loss_nats"]["value"];
}

std::vector<std::optional<double>> profile(const ordered_json& result, const char* key) {
  std::vector<std::optional<double>> values;
  if (!result.contains("layers")) return values;
  for (const ordered_json& value : result["layers"][key])
    values.push_back(value.is_null() ? std::nullopt : std::optional(value.get<double>()));
  return values;
}

Windows windows_of(const ordered_json& texts) {
  Windows windows;
  for (const ordered_json& text : texts) {
    windows.emplace_back();
    for (const ordered_json& window : text)
      windows.back().push_back(window.is_number() ? Window{window.get<double>()} : window.get<Window>());
  }
  return windows;
}

// Of layer after layer, window by window; none where it was not kept.
std::vector<Windows> layer_windows(const ordered_json& result, const char* key) {
  std::vector<Windows> layers;
  if (!result.contains("layers")) return layers;
  for (const ordered_json& layer : result["layers"].value(key, ordered_json::array()))
    layers.push_back(windows_of(layer));
  return layers;
}

// Window by window, what each of some layers has of it; empty unless all have the same windows.
Windows side_by_side(const std::vector<Windows>& layers) {
  Windows all;
  for (const Windows& layer : layers) {
    if (&layer == &layers.front()) all = layer;
    if (layer.size() != all.size()) return {};
    for (size_t text = 0; text < all.size(); ++text) {
      if (layer[text].size() != all[text].size()) return {};
      for (size_t w = 0; w < all[text].size() && &layer != &layers.front(); ++w)
        all[text][w].insert(all[text][w].end(), layer[text][w].begin(), layer[text][w].end());
    }
  }
  return all;
}

// The mean of each window's numbers.
Windows means_of(Windows windows) {
  for (auto& text : windows)
    for (Window& window : text) window = {mean(window)};
  return windows;
}

// What layers gain by their noise term: the last third, rounded up, the others, and whether those gain most that the
// softmax of the same size and seed needs most.
void add_gains(std::vector<Observation>& to, const ordered_json& result, const std::vector<ordered_json>& results) {
  const auto gain = profile(result, "gain_nats");
  const std::vector<Windows> gain_windows = layer_windows(result, "gain_windows");
  std::vector<Windows> sensitivity_windows;
  bool twin_failed = false;
  std::vector<double> last, others, known, needed;
  std::vector<Windows> last_windows, other_windows, known_windows, needed_windows;
  const size_t first_of_last = gain.size() - (gain.size() + 2) / 3;
  std::vector<std::optional<double>> sensitivity;
  for (const ordered_json& twin : results) {
    const bool same =
        twin["track"] == result["track"] && twin["size"] == result["size"] && twin["seed"] == result["seed"];
    if (!same || twin["member"] != "softmax") continue;
    sensitivity = profile(twin, "sensitivity_nats");
    sensitivity_windows = layer_windows(twin, "sensitivity_windows");
    twin_failed = twin.contains("failed");
  }
  for (size_t layer = 0; layer < gain.size(); ++layer) {
    if (!gain[layer]) continue;
    const auto windows = [layer](const std::vector<Windows>& of) { return layer < of.size() ? of[layer] : Windows(); };
    const bool is_last = layer >= first_of_last;
    (is_last ? last : others).push_back(*gain[layer]);
    (is_last ? last_windows : other_windows).push_back(windows(gain_windows));
    if (layer >= sensitivity.size() || !sensitivity[layer]) continue;
    known.push_back(*gain[layer]);
    known_windows.push_back(windows(gain_windows));
    needed.push_back(*sensitivity[layer]);
    needed_windows.push_back(windows(sensitivity_windows));
  }
  const auto add = [&](const char* name, const std::optional<double>& value, Windows windows) {
    to.push_back(observation(result, name));
    to.back().value = value;
    to.back().windows = std::move(windows);
  };
  add("gain_last_third_nats", mean_of(last), means_of(side_by_side(last_windows)));
  add("gain_other_layers_nats", mean_of(others), means_of(side_by_side(other_windows)));
  known_windows.insert(known_windows.end(), needed_windows.begin(), needed_windows.end());
  if (twin_failed)
    add("gain_task_correlation", std::numeric_limits<double>::quiet_NaN(), {});
  else if (!sensitivity.empty())
    add("gain_task_correlation", analysis::rank_correlation(known, needed), side_by_side(known_windows));
}

// Parameters of a softmax of equal loss over the run's own, on the line through the losses of the softmax models of the
// same track and seed over the logarithm of their parameters, at the two sizes that enclose the loss, or the two
// nearest to it: only seeds in which a member wins would be left otherwise. Nothing where loss does not fall with size.
void add_equal_loss(std::vector<Observation>& to, const ordered_json& result,
                    const std::vector<ordered_json>& results) {
  std::vector<std::pair<double, double>> twins;  // ln(parameters), loss
  for (const ordered_json& twin : results) {
    const bool same = twin["track"] == result["track"] && twin["seed"] == result["seed"] && !twin["pilot"].get<bool>();
    if (same && twin["member"] == "softmax" && has_loss(twin))
      twins.emplace_back(std::log(twin["parameters"].get<double>()), loss_of(twin));
  }
  if (twins.size() < 2) return;
  std::sort(twins.begin(), twins.end());
  const double loss = loss_of(result);
  size_t upper = 1;
  while (upper + 1 < twins.size() && twins[upper].second > loss) ++upper;
  const auto [x0, y0] = twins[upper - 1];
  const auto [x1, y1] = twins[upper];
  std::optional<double> ratio;
  if (y1 < y0) {
    const double equal = x0 + (x1 - x0) * (y0 - loss) / (y0 - y1);
    ratio = std::exp(equal) / result["parameters"].get<double>();
  }
  to.push_back(observation(result, "equal_loss_parameters_ratio"));
  to.back().value = ratio;
}

// Fills value and windows from a run's result; false if the run does not have this measure.
bool read(Observation& to, const ordered_json& result) {
  if (result.contains("failed")) {
    to.value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  const std::string& name = to.measure;
  if (const auto found = result["measures"].find(name); found != result["measures"].end()) {
    if (!(*found)["value"].is_null()) to.value = (*found)["value"].get<double>();
    to.windows = windows_of((*found)["windows"]);
    return true;
  }
  // Runs that kept no answers by question.
  if (name == "needle_accuracy" || name == "needle_error") {
    if (result["needle"].empty()) return false;
    const double accuracy = result["needle"][0]["accuracy"];
    to.value = name == "needle_accuracy" ? accuracy : 1 - accuracy;
    return true;
  }
  const auto found = result.find(name);
  if (found == result.end() || !found->is_number()) return false;
  to.value = found->get<double>();
  return true;
}

}  // namespace

Observations observe(const Claims& claims, const std::vector<ordered_json>& results) {
  Observations observations;
  std::map<std::string, std::map<std::string, double>> fewest;  // parameters of a track's sizes
  for (const ordered_json& result : results) {
    if (result["pilot"].get<bool>()) continue;
    const double parameters = result.value("parameters", std::numeric_limits<double>::infinity());
    const auto [at, fresh] = fewest[result["track"]].try_emplace(result["size"], parameters);
    at->second = std::min(at->second, parameters);
    for (const auto& [name, info] : claims.measures) {
      Observation one = observation(result, name);
      if (read(one, result)) observations.all.push_back(std::move(one));
    }
    if (result.contains("layers")) add_gains(observations.all, result, results);
    if (has_loss(result)) add_equal_loss(observations.all, result, results);
  }
  for (const auto& [track, sizes] : fewest) {
    std::vector<std::pair<double, std::string>> ordered;
    for (const auto& [size, parameters] : sizes) ordered.emplace_back(parameters, size);
    std::sort(ordered.begin(), ordered.end());
    for (const auto& [parameters, size] : ordered) observations.sizes[track].push_back(size);
  }
  return observations;
}

}  // namespace unchain::study
