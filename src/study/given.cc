#include "study/given.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "base/check.h"
#include "model/model_file.h"
#include "model/trainable.h"
#include "study/measure_model.h"
#include "study/study.h"

namespace unchain::study {
namespace {

using nlohmann::ordered_json;

// Members that a part can be of or against.
std::set<std::string> known_members(const Claims& claims) {
  std::set<std::string> members;
  for (const auto& [role, member] : claims.roles) members.insert(member);
  for (const auto* beside : {&claims.beside_of, &claims.beside_against})
    for (const auto& [role, others] : *beside) members.insert(others.begin(), others.end());
  return members;
}

std::unique_ptr<model::Trainable> trainable(const model::ModelFile& file, const GivenModel& given,
                                            const GivenOptions& options) {
  try {
    return std::make_unique<model::Trainable>(file, DType::f32);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    if (options.on_note)
      options.on_note(fmt::format("{}: what needs gradients is left out: {}", given.path, error.what()));
    return nullptr;
  }
}

ordered_json header(const GivenModel& given, const char* track, const model::Config& config, int64_t context) {
  const int64_t parameters = model::parameter_count(config);
  const int64_t embeddings = config.vocabulary * config.width * (config.tied ? 1 : 2);
  return {{"version", kResultVersion},
          {"model", given.path},
          {"track", track},
          {"size", "given"},
          {"member", given.member},
          {"seed", given.seed},
          {"pilot", false},
          {"context", context},
          {"parameters", parameters},
          {"parameters_without_embeddings", parameters - embeddings}};
}

}  // namespace

std::vector<GivenModel> parse_given(const std::vector<std::string>& models, const Claims& claims) {
  const std::set<std::string> members = known_members(claims);
  std::set<std::string> seen;
  std::vector<GivenModel> given;
  for (const std::string& each : models) {
    const size_t equal = each.find('=');
    if (equal == std::string::npos || equal == 0)
      fail(ErrorCode::usage, "--models {}: expected MEMBER=PATH, as in softmax=DIR", each);
    std::string member = each.substr(0, equal);
    if (const auto role = claims.roles.find(member); role != claims.roles.end()) member = role->second;
    if (!members.contains(member)) {
      fail(ErrorCode::usage, "--models {}: no claim speaks of {}, expected one of {}", each, member,
           fmt::join(members, ", "));
    }
    if (!seen.insert(member).second)
      fail(ErrorCode::usage, "--models: {} stands twice; give its models in one, as in {}=A,B", member, member);
    int64_t seed = 0;
    for (size_t begin = equal + 1, end; begin <= each.size(); begin = end + 1) {
      end = std::min(each.find(',', begin), each.size());
      const std::string path = each.substr(begin, end - begin);
      if (path.empty()) fail(ErrorCode::usage, "--models {}: an empty path", each);
      given.push_back({member, path, seed++});
    }
  }
  return given;
}

std::vector<ordered_json> measure_given(const std::vector<GivenModel>& models, const GivenOptions& options) {
  std::vector<ordered_json> results;
  std::vector<int32_t> ids_of_first;
  for (const GivenModel& given : models) {
    if (options.on_note) options.on_note(fmt::format("{} = {}", given.member, given.path));
    const model::ModelFile file = model::ModelFile::open(given.path);
    const auto tokenizer = file.tokenizer();
    MeasureInputs in;
    in.model = model::load(file, options.dtype);
    in.bos = tokenizer->add_bos ? tokenizer->bos : -1;
    in.context = options.window;
    in.keys = options.keys;
    in.seed = options.seed;
    in.texts = {tokenizer->encode(options.text)};
    if (results.empty()) ids_of_first = in.texts[0];
    if (in.texts[0] != ids_of_first && options.on_note) {
      options.on_note(
          fmt::format("{}: reads the text as other tokens than {}: loss, perplexity and errors a token of the two "
                      "cannot be set side by side, bits a byte can",
                      given.path, models.front().path));
    }
    in.calibration = tokenizer->encode(options.calibration);
    const auto with_gradients = trainable(file, given, options);
    Measures of_text, of_needles;
    const ordered_json pictures = measure_model(in, with_gradients.get(), of_text);
    const double loss = *of_text.at("loss_nats").value;
    ordered_json language = header(given, "language", in.model->config, in.context);
    language.update({{"loss_nats", loss},
                     {"perplexity", std::exp(loss)},
                     {"bits_per_byte", loss / std::numbers::ln2 * static_cast<double>(in.texts[0].size()) /
                                           static_cast<double>(options.text.size())},
                     {"needle", ordered_json::array()},
                     {"measures", to_json(of_text)},
                     {"layers", pictures["layers"]},
                     {"curves", pictures["curves"]}});
    results.push_back(std::move(language));
    ordered_json retrieval = header(given, "retrieval", in.model->config, in.context);
    retrieval["needle"] = ask_rungs(in, *tokenizer, with_gradients.get(), {options.needle}, of_needles);
    retrieval["measures"] = to_json(of_needles);
    results.push_back(std::move(retrieval));
  }
  return results;
}

}  // namespace unchain::study
