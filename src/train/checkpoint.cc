#include "train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace unchain::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVersion = 1;
constexpr std::string_view kPrefix = "step-";

Tensor view(const std::string& name, const Shape& shape, std::span<const float> values) {
  return {name, DType::f32, shape, std::as_bytes(values), nullptr};
}

// Removes a folder that is in place: never seen half removed under its name.
void remove_folder(const fs::path& folder) {
  const fs::path removed = unfinished(folder, "removed");
  std::error_code error;
  fs::rename(folder, removed, error);
  if (!error) fs::remove_all(removed, error);
  if (error) fail(ErrorCode::io, "{}: cannot be removed: {}", folder.string(), error.message());
}

// Lets `write` fill a folder beside `folder`, which takes the name when it is complete.
void write_folder(const fs::path& folder, const std::function<void(const fs::path&)>& write) {
  const fs::path building = make_unfinished_folder(folder);
  std::error_code error;
  try {
    write(building);
    if (fs::exists(folder)) remove_folder(folder);
    fs::rename(building, folder, error);
    if (error) fail(ErrorCode::io, "{}: cannot be put in place: {}", folder.string(), error.message());
  } catch (...) {
    fs::remove_all(building, error);
    throw;
  }
}

void write_model(const fs::path& folder, Learner& learner, const fs::path& vocabulary) {
  std::vector<Tensor> tensors;
  for (const model::Parameter& parameter : learner.parameters())
    tensors.push_back(view(parameter.name, parameter.shape, parameter.value));
  write_text(folder / "config.json", learner.config_json());
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    if (fs::is_regular_file(vocabulary / name)) write_text(folder / name, read_text(vocabulary / name));
  }
  formats::write_safetensors_folder(folder, tensors, {{"format", "pt"}});
}

void write_optimizer(const fs::path& path, Learner& learner, Optimizer& optimizer) {
  std::vector<Tensor> tensors;
  const auto parameters = learner.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    tensors.push_back(view("m." + parameters[i].name, parameters[i].shape, optimizer.m(i)));
    tensors.push_back(view("v." + parameters[i].name, parameters[i].shape, optimizer.v(i)));
  }
  formats::write_safetensors(path, tensors);
}

// The step of a complete checkpoint's name.
std::optional<int64_t> step_of(const std::string& name) {
  const std::string_view digits = std::string_view(name).substr(std::min(kPrefix.size(), name.size()));
  const bool fits = name.starts_with(kPrefix) && digits.size() >= 8 && digits.size() <= 12 &&
                    std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!fits) return {};
  return std::stoll(std::string(digits));
}

void copy_tensor(const formats::SafetensorsFile& file, const fs::path& path, const std::string& name,
                 const Shape& shape, std::span<float> out) {
  const Tensor* tensor = file.find(name);
  if (tensor == nullptr) {
    fail(ErrorCode::format, "{}: has no tensor {}; remove this checkpoint to go on from the one before", path.string(),
         name);
  }
  if (tensor->type != DType::f32 || tensor->shape != shape) {
    fail(ErrorCode::format, "{}: {} is {} {}, expected f32 {}", path.string(), name, info(tensor->type).name,
         to_string(tensor->shape), to_string(shape));
  }
  std::memcpy(out.data(), tensor->bytes.data(), tensor->bytes.size());
}

json state_json(const RunState& state, uint64_t weights) {
  return {{"version", kVersion},
          {"step", state.step},
          {"seed", state.seed},
          {"text_hash", state.text_hash},
          {"vocabulary_hash", state.vocabulary_hash},
          {"weights_hash", weights},
          {"text_loss_nats", state.text_loss_nats},
          {"losses", state.losses},
          {"gradient_norms", state.gradient_norms}};
}

RunState read_state(const fs::path& path, uint64_t& weights) {
  const json root = formats::parse_json(read_text(path, size_t{1} << 20), path.string());
  try {
    if (root.at("version") != kVersion) {
      fail(ErrorCode::format, "{}: is of version {}, this program reads version {}; go on with the one that wrote it",
           path.string(), root.at("version").dump(), kVersion);
    }
    RunState state;
    state.step = root.at("step");
    state.seed = root.at("seed");
    state.text_hash = root.at("text_hash");
    state.vocabulary_hash = root.at("vocabulary_hash");
    weights = root.at("weights_hash");
    state.text_loss_nats = root.at("text_loss_nats");
    state.losses = root.at("losses").get<std::deque<double>>();
    state.gradient_norms = root.at("gradient_norms").get<std::deque<double>>();
    if (state.step < 0) fail(ErrorCode::format, "{}: step {} makes no sense", path.string(), state.step);
    return state;
  } catch (const json::exception&) {
    fail(ErrorCode::format, "{}: a key is missing or of the wrong type; the file is damaged", path.string());
  }
}

}  // namespace

uint64_t hash_weights(std::span<const model::Parameter> parameters) {
  uint64_t hash = hash_bytes("weights");
  for (const model::Parameter& parameter : parameters) {
    const auto bytes = std::as_bytes(parameter.value);
    hash = hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, hash);
  }
  return hash;
}

void save_model(const fs::path& folder, Learner& learner, const fs::path& vocabulary) {
  write_folder(folder, [&](const fs::path& building) { write_model(building, learner, vocabulary); });
}

fs::path save_checkpoint(const fs::path& out, Learner& learner, Optimizer& optimizer, const RunState& state,
                         const fs::path& vocabulary, int64_t keep) {
  fs::path folder = out / "checkpoints" / fmt::format("{}{:08}", kPrefix, state.step);
  write_folder(folder, [&](const fs::path& building) {
    write_model(building, learner, vocabulary);
    write_optimizer(building / "optimizer.safetensors", learner, optimizer);
    write_text(building / "state.json", state_json(state, hash_weights(learner.parameters())).dump(1) + "\n");
  });
  const auto all = checkpoints(out);
  for (size_t i = 0; i + static_cast<size_t>(keep) < all.size(); ++i) remove_folder(all[i].second);
  return folder;
}

std::vector<std::pair<int64_t, fs::path>> checkpoints(const fs::path& out) {
  std::vector<std::pair<int64_t, fs::path>> result;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(out / "checkpoints", error)) {
    if (const auto step = step_of(entry.path().filename().string())) result.emplace_back(*step, entry.path());
  }
  std::ranges::sort(result);
  return result;
}

std::optional<fs::path> newest_checkpoint(const fs::path& out) {
  const auto all = checkpoints(out);
  if (all.empty()) return {};
  return all.back().second;
}

RunState load_checkpoint(const fs::path& folder, Learner& learner, Optimizer& optimizer) {
  uint64_t weights = 0;
  RunState state = read_state(folder / "state.json", weights);
  const auto model = formats::SafetensorsFile::open_folder(folder);
  const fs::path path = folder / "optimizer.safetensors";
  const auto moments = formats::SafetensorsFile::open(path);
  const auto parameters = learner.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const model::Parameter& parameter = parameters[i];
    copy_tensor(model, folder / "model.safetensors", parameter.name, parameter.shape, parameter.value);
    copy_tensor(moments, path, "m." + parameter.name, parameter.shape, optimizer.m(i));
    copy_tensor(moments, path, "v." + parameter.name, parameter.shape, optimizer.v(i));
    std::ranges::transform(parameter.value.first(parameter.narrow.size()), parameter.narrow.begin(), to_bf16);
  }
  if (hash_weights(parameters) != weights) {
    fail(ErrorCode::format,
         "{}: the weights are not those that state.json speaks of; remove this checkpoint to go on from the one before",
         folder.string());
  }
  return state;
}

void remove_leftovers(const fs::path& out) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const fs::path& folder : {out, out / "checkpoints", out / "tokens"}) {
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const std::string extension = entry.path().extension().string();
      if (extension == ".incomplete" || extension == ".removed" || extension == ".tmp") found.push_back(entry.path());
    }
  }
  for (const fs::path& path : found) fs::remove_all(path, error);
}

}  // namespace unchain::train
