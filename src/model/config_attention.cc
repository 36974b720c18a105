#include "model/config_attention.h"

#include <array>

#include "base/check.h"

namespace unchain::model {
namespace {

using attention::AttentionConfig;
using nlohmann::json;

[[noreturn]] void wrong(const std::string& where, const std::string& key, const json& found, const char* expected) {
  fail(ErrorCode::format, "{}: attention: '{}' is {}, expected {}", where, key, found.dump().substr(0, 60), expected);
}

int64_t whole(const std::string& where, const std::string& key, const json& value) {
  if (!value.is_number_integer()) wrong(where, key, value, "a whole number");
  return value.get<int64_t>();
}

bool boolean(const std::string& where, const std::string& key, const json& value) {
  if (!value.is_boolean()) wrong(where, key, value, "true or false");
  return value.get<bool>();
}

template <class Enum, size_t count>
struct Names {
  std::array<std::pair<const char*, Enum>, count> rows;
  const char* expected;

  Enum parse(const std::string& where, const std::string& key, const json& value) const {
    for (const auto& [name, result] : rows) {
      if (value.is_string() && value.get<std::string>() == name) return result;
    }
    wrong(where, key, value, expected);
  }
  const char* of(Enum value) const {
    for (const auto& [name, result] : rows) {
      if (result == value) return name;
    }
    return "";
  }
};

constexpr Names<attention::Pairs, 2> kPairs{
    {{{"halves", attention::Pairs::halves}, {"neighbours", attention::Pairs::neighbours}}}, "halves or neighbours"};
constexpr Names<attention::Accounting, 2> kAccounting{
    {{{"halved", attention::Accounting::halved}, {"added", attention::Accounting::added}}}, "halved or added"};
constexpr Names<attention::LambdaRule, 3> kLambda{{{{"depth", attention::LambdaRule::depth},
                                                    {"token", attention::LambdaRule::token},
                                                    {"head", attention::LambdaRule::head}}},
                                                  "depth, token, head or a number"};
constexpr Names<attention::Gate, 2> kGate{{{{"head", attention::Gate::head}, {"element", attention::Gate::element}}},
                                          "head or element"};

void set(AttentionConfig& config, const std::string& key, const json& value, const std::string& where) {
  const auto is = [&](const char* name) { return key == name; };
  if (is("preset")) return;
  if (is("pairs")) {
    config.pairs = kPairs.parse(where, key, value);
  } else if (is("accounting")) {
    config.accounting = kAccounting.parse(where, key, value);
  } else if (is("lambda")) {
    if (value.is_number()) {
      config.lambda = attention::LambdaRule::held;
      config.held_lambda = value.get<float>();
    } else {
      config.lambda = kLambda.parse(where, key, value);
    }
  } else if (is("lambda_gain")) {
    config.lambda_gain = boolean(where, key, value);
  } else if (is("layers")) {
    if (!value.is_array() || value.size() != 2) wrong(where, key, value, "[first, last], counted from 0");
    config.first_layer = whole(where, key, value[0]);
    config.last_layer = whole(where, key, value[1]);
    if (config.first_layer < 0 || config.last_layer < config.first_layer)
      wrong(where, key, value, "[first, last] with 0 ≤ first ≤ last");
  } else if (is("head_norm")) {
    config.head_norm = !value.is_null();
    config.head_norm_affine = false;
    config.head_norm_eps = 0;
    if (value.is_null()) return;
    if (!value.is_object()) wrong(where, key, value, "null or {\"affine\", \"eps\"}");
    for (const auto& [inner, setting] : value.items()) {
      if (inner == "affine") {
        config.head_norm_affine = boolean(where, "head_norm.affine", setting);
      } else if (inner == "eps" && setting.is_number()) {
        config.head_norm_eps = setting.get<float>();
      } else {
        wrong(where, key, value, "null or {\"affine\": true or false, \"eps\": number}");
      }
    }
  } else if (is("rank")) {
    config.rank = whole(where, key, value);
  } else if (is("ratio")) {
    config.ratio = whole(where, key, value);
  } else if (is("decays")) {
    if (!value.is_array()) wrong(where, key, value, "a list of numbers between 0 and 1");
    config.decays.clear();
    for (const json& decay : value) {
      if (!decay.is_number()) wrong(where, key, value, "a list of numbers between 0 and 1");
      config.decays.push_back(decay.get<float>());
    }
  } else if (is("gate")) {
    config.gate = kGate.parse(where, key, value);
  } else if (is("calibrated")) {
    config.calibrated = boolean(where, key, value);
  } else {
    fail(ErrorCode::format,
         "{}: attention: the key '{}' is not known; known are preset, pairs, accounting, lambda, lambda_gain, layers, "
         "head_norm, rank, ratio, decays, gate, calibrated",
         where, key);
  }
}

}  // namespace

double shortest(float x) {
  return std::stod(fmt::format("{}", x));
}

AttentionConfig attention_from_json(const json& object, const std::string& where) {
  if (!object.is_object()) fail(ErrorCode::format, "{}: 'attention' is no object", where);
  const auto name = object.find("preset");
  if (name == object.end() || !name->is_string()) {
    fail(ErrorCode::format, "{}: attention: the key 'preset' is missing; presets are {}", where,
         attention::preset_names());
  }
  AttentionConfig config;
  try {
    config = attention::preset(name->get<std::string>());
  } catch (const Error& error) {
    fail(ErrorCode::format, "{}: {}", where, error.what());
  }
  for (const auto& [key, value] : object.items()) set(config, key, value, where);
  return config;
}

json attention_to_json(const AttentionConfig& config) {
  json object = {{"preset", config.preset}};
  const AttentionConfig base = attention::preset(config.preset);
  if (config.pairs != base.pairs) object["pairs"] = kPairs.of(config.pairs);
  if (config.accounting != base.accounting) object["accounting"] = kAccounting.of(config.accounting);
  if (config.lambda == attention::LambdaRule::held) {
    object["lambda"] = shortest(config.held_lambda);
  } else if (config.lambda != base.lambda) {
    object["lambda"] = kLambda.of(config.lambda);
  }
  if (config.lambda_gain) object["lambda_gain"] = true;
  if (config.first_layer != 0 || config.last_layer >= 0) object["layers"] = {config.first_layer, config.last_layer};
  if (config.head_norm != base.head_norm || config.head_norm_affine || config.head_norm_eps > 0) {
    object["head_norm"] = nullptr;
    if (config.head_norm) object["head_norm"] = {{"affine", config.head_norm_affine}};
    if (config.head_norm_eps > 0) object["head_norm"]["eps"] = shortest(config.head_norm_eps);
  }
  if (config.rank != base.rank) object["rank"] = config.rank;
  if (config.ratio != base.ratio) object["ratio"] = config.ratio;
  if (config.decays != base.decays) {
    object["decays"] = json::array();
    for (const float decay : config.decays) object["decays"].push_back(shortest(decay));
  }
  if (config.gate != base.gate) object["gate"] = kGate.of(config.gate);
  if (config.calibrated) object["calibrated"] = true;
  return object;
}

bool is_diffllama(const AttentionConfig& config) {
  return config.noise == attention::NoiseMap::own_keys && config.lambda == attention::LambdaRule::depth &&
         !config.lambda_gain && config.pairs == attention::Pairs::halves &&
         config.accounting == attention::Accounting::halved && config.head_norm && !config.head_norm_affine &&
         config.head_norm_eps == 0 && !config.low_rank_queries && config.gate == attention::Gate::none &&
         config.positive == attention::PositiveMap::softmax && config.first_layer == 0 && config.last_layer < 0;
}

}  // namespace unchain::model
