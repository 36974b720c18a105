#include "study/observe.h"

#include <algorithm>
#include <limits>
#include <map>

namespace unchain::study {
namespace {

using nlohmann::ordered_json;

// Fills value and windows from a run's result; false if the run does not have this measure.
bool read(Observation& to, const ordered_json& result) {
  if (result.contains("failed")) {
    to.value = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  const std::string& name = to.measure;
  if (const auto found = result["measures"].find(name); found != result["measures"].end()) {
    if (!(*found)["value"].is_null()) to.value = (*found)["value"].get<double>();
    to.windows = (*found)["windows"].get<std::vector<std::vector<double>>>();
    return true;
  }
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
  std::map<std::string, double> fewest;  // parameters of a size
  for (const ordered_json& result : results) {
    if (result["pilot"].get<bool>()) continue;
    const double parameters = result.value("parameters", std::numeric_limits<double>::infinity());
    const auto [at, fresh] = fewest.try_emplace(result["size"].get<std::string>(), parameters);
    at->second = std::min(at->second, parameters);
    for (const auto& [name, info] : claims.measures) {
      Observation one = {result["size"], result["track"], result["member"], result["seed"], name, {}, {}};
      if (read(one, result)) observations.all.push_back(std::move(one));
    }
  }
  for (const auto& [size, parameters] : fewest) observations.sizes.push_back(size);
  std::sort(observations.sizes.begin(), observations.sizes.end(), [&](const std::string& a, const std::string& b) {
    return std::pair(fewest[a], a) < std::pair(fewest[b], b);
  });
  return observations;
}

}  // namespace unchain::study
