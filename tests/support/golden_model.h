// The tiny golden models of tests/golden/tiny, and what a context computes of a sequence of ids.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/context.h"
#include "model/model_file.h"
#include "support/temporary_folder.h"

namespace unchain::test {

struct Golden {
  std::string name;
  std::filesystem::path folder;
  std::vector<int32_t> ids;
  std::vector<std::pair<int64_t, std::vector<double>>> logits;  // by position
  double mean_nll = 0, largest_logit = 0;
};

inline Golden read_golden(const std::filesystem::path& folder) {
  const auto json = nlohmann::json::parse(read_file(folder / "golden.json"));
  Golden golden;
  golden.name = folder.filename().string();
  golden.folder = folder;
  golden.ids = json.at("ids").get<std::vector<int32_t>>();
  for (const auto& [position, values] : json.at("logits").items()) {
    golden.logits.emplace_back(std::stoll(position), values.get<std::vector<double>>());
  }
  golden.mean_nll = json.at("mean_nll").get<double>();
  golden.largest_logit = json.at("largest_logit").get<double>();
  return golden;
}

// All folders with a golden.json, sorted.
inline std::vector<Golden> all_goldens() {
  std::vector<std::filesystem::path> folders;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(UNCHAIN_TEST_DATA) / "tiny")) {
    if (std::filesystem::exists(entry.path() / "golden.json")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  std::vector<Golden> goldens;
  for (const auto& folder : folders) goldens.push_back(read_golden(folder));
  return goldens;
}

inline std::filesystem::path tiny(const std::string& name) {
  return std::filesystem::path(UNCHAIN_TEST_DATA) / "tiny" / name;
}

// logits[kept, V] of the rows kept by the last extend().
inline std::vector<float> kept_logits(model::Context& context) {
  const int64_t vocabulary = context.model().config.vocabulary;
  std::vector<float> logits(static_cast<size_t>(context.kept() * vocabulary));
  context.logits(Matrix(logits.data(), context.kept(), vocabulary), 0, context.kept());
  return logits;
}

// logits[ids, V] of a fresh context that reads all ids at once.
inline std::vector<float> logits_of(const std::shared_ptr<const model::Transformer>& model,
                                    const std::vector<int32_t>& ids, const attention::Taps* taps = nullptr) {
  model::Context context(model, static_cast<int64_t>(ids.size()));
  context.extend(ids, -1, taps);
  return kept_logits(context);
}

// NLL of token i + 1 after tokens 0 … i.
inline std::vector<double> nll_of(const std::shared_ptr<const model::Transformer>& model,
                                  const std::vector<int32_t>& ids) {
  model::Context context(model, static_cast<int64_t>(ids.size()));
  context.extend(std::span(ids).first(ids.size() - 1));
  std::vector<double> nll(ids.size() - 1);
  context.nll(nll, std::span(ids).subspan(1));
  return nll;
}

inline double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum / static_cast<double>(values.size());
}

}  // namespace unchain::test
