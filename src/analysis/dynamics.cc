#include "analysis/dynamics.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/check.h"
#include "base/spikes.h"
#include "formats/json.h"

namespace unchain::analysis {
namespace {

using nlohmann::json;

constexpr size_t kLeastOfEnding = 10;  // steps; with fewer, twice the standard error holds less than 92 % of chance

// One value of all steps that have it.
struct Series {
  std::vector<double> steps, values;

  void add(double step, double value) {
    steps.push_back(step);
    values.push_back(value);
  }
};

double mean(std::span<const double> x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

Curve curve_of(const Series& series) {
  Curve out;
  const size_t count = series.steps.size();
  const size_t each = (count + kCurvePoints - 1) / kCurvePoints;
  for (size_t begin = 0; begin < count; begin += each) {
    const size_t length = std::min(each, count - begin);
    out.steps.push_back(mean(std::span(series.steps).subspan(begin, length)));
    out.values.push_back(mean(std::span(series.values).subspan(begin, length)));
  }
  return out;
}

std::map<std::string, Curve> curves_of(const std::map<std::string, Series>& series) {
  std::map<std::string, Curve> out;
  for (const auto& [name, values] : series) out[name] = curve_of(values);
  return out;
}

std::optional<Ending> ending_of(const Series& loss) {
  const double tenth = (loss.steps.back() - loss.steps.front() + 1) / 10;
  const auto first = static_cast<size_t>(
      std::upper_bound(loss.steps.begin(), loss.steps.end(), loss.steps.back() - tenth) - loss.steps.begin());
  const std::span<const double> x = std::span(loss.steps).subspan(first), y = std::span(loss.values).subspan(first);
  if (x.size() < kLeastOfEnding) return std::nullopt;
  const double middle = mean(x), level = mean(y);
  double xx = 0, xy = 0, rest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - middle) * (x[i] - middle);
    xy += (x[i] - middle) * (y[i] - level);
  }
  const double slope = xy / xx;
  for (size_t i = 0; i < x.size(); ++i) rest += std::pow(y[i] - level - slope * (x[i] - middle), 2);
  Ending out;
  out.slope_nats = slope * tenth;
  out.error_nats = std::sqrt(rest / static_cast<double>(x.size() - 2) / xx) * tenth;
  out.is_flat = std::abs(out.slope_nats) < std::max(2 * out.error_nats, kFlatNats);
  return out;
}

// A member of an object, null where it is missing.
const json& member(const json& object, const char* key) {
  static const json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

void expect(bool is_as_expected, const json& value, const std::string& name, const char* kind,
            const std::string& place) {
  if (!is_as_expected) fail(ErrorCode::format, "{}: {} is {}, expected {}", place, name, value.type_name(), kind);
}

// Adds the number, if it is not null.
void add(Series& series, const json& value, const std::string& name, double step, const std::string& place) {
  if (value.is_null()) return;
  expect(value.is_number(), value, name, "a number", place);
  series.add(step, value.get<double>());
}

double needed(const json& root, const char* key, const std::string& place) {
  const json& value = member(root, key);
  if (value.is_null())
    fail(ErrorCode::format, "{}: {} is missing; is it the metrics.jsonl of a training run?", place, key);
  expect(value.is_number(), value, key, "a number", place);
  return value.get<double>();
}

void add_groups(std::map<std::string, Series>& groups, const json& root, const char* key, double step,
                const std::string& place) {
  const json& values = member(root, key);
  if (values.is_null()) return;
  expect(values.is_object(), values, key, "an object", place);
  for (const auto& [group, value] : values.items())
    add(groups[group], value, fmt::format("{}.{}", key, group), step, place);
}

void add_layers(std::vector<Series>& layers, const json& values, double step, const std::string& place) {
  if (values.is_null()) return;
  expect(values.is_array(), values, "lambda", "an array", place);
  if (layers.empty()) layers.resize(values.size());
  if (layers.size() != values.size()) {
    fail(ErrorCode::format, "{}: lambda has {} layers, but {} before; the file is damaged, or of several runs", place,
         values.size(), layers.size());
  }
  for (size_t i = 0; i < layers.size(); ++i) add(layers[i], values[i], fmt::format("lambda[{}]", i), step, place);
}

// The lines of a file, read one after another.
class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  void read(std::string_view text) {
    ++line_;
    const std::string place = fmt::format("{}: line {}", where_, line_);
    const json root = formats::parse_json(text, place);
    if (!root.is_object()) fail(ErrorCode::format, "{}: is no JSON object; metrics.jsonl has one a line", place);
    const double step = needed(root, "step", place), loss = needed(root, "loss_nats", place);
    if (!(step >= 0 && step <= 0x1p53)) fail(ErrorCode::format, "{}: step is {}, expected 0 to 2^53", place, step);
    if (!loss_.steps.empty() && !(step > loss_.steps.back())) {
      fail(ErrorCode::format, "{}: step {} comes after step {}; the file is damaged, or of several runs", place, step,
           loss_.steps.back());
    }
    loss_.add(step, loss);
    if (spikes_.add(loss)) ++spike_count_;
    add(gradient_norm_, member(root, "gradient_norm"), "gradient_norm", step, place);
    add_groups(gradient_norms_, root, "gradient_norms", step, place);
    add_groups(update_ratios_, root, "update_ratios", step, place);
    add_layers(lambda_, member(root, "lambda"), step, place);
  }

  TrainingDynamics finish() const {
    if (loss_.steps.empty()) fail(ErrorCode::format, "{}: has no line; expected one JSON object a step", where_);
    TrainingDynamics out;
    out.first_step = static_cast<int64_t>(loss_.steps.front());
    out.last_step = static_cast<int64_t>(loss_.steps.back());
    out.loss_nats = curve_of(loss_);
    out.gradient_norm = curve_of(gradient_norm_);
    out.gradient_norms = curves_of(gradient_norms_);
    out.update_ratios = curves_of(update_ratios_);
    for (const Series& layer : lambda_) out.lambda.push_back(curve_of(layer));
    out.loss_spikes = spike_count_;
    out.ending = ending_of(loss_);
    return out;
  }

 private:
  const std::string& where_;
  int64_t line_ = 0;
  Series loss_, gradient_norm_;
  std::map<std::string, Series> gradient_norms_, update_ratios_;
  std::vector<Series> lambda_;
  SpikeDetector spikes_;
  int64_t spike_count_ = 0;
};

}  // namespace

TrainingDynamics training_dynamics(std::string_view metrics, const std::string& where) {
  Reader reader(where);
  while (!metrics.empty()) {
    const size_t end = std::min(metrics.find('\n'), metrics.size());
    reader.read(metrics.substr(0, end));
    metrics.remove_prefix(std::min(end + 1, metrics.size()));
  }
  return reader.finish();
}

}  // namespace unchain::analysis
