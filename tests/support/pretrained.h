// The real models and the numbers that other implementations get from them.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/temporary_folder.h"

namespace unchain::test {

// A suite derived from this is skipped without UNCHAIN_MODELS, a folder with the two GGUF files; with CI=true it fails.
class Pretrained : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = ::getenv("UNCHAIN_MODELS");
    const char* ci = ::getenv("CI");
    if (!folder && ci && std::string(ci) == "true") FAIL() << "UNCHAIN_MODELS is not set";
    if (!folder) GTEST_SKIP() << "UNCHAIN_MODELS is not set: a folder with the two GGUF files";
    models_ = folder;
    const char* shared = ::getenv("UNCHAIN_SHARED");
    shared_ = shared ? std::filesystem::path(shared) : std::filesystem::path(UNCHAIN_SOURCE_DIR) / ".." / "shared";
  }
  std::filesystem::path smollm2() const { return models_ / "SmolLM2-135M-Instruct.Q4_1.gguf"; }
  std::filesystem::path gemma3() const { return models_ / "gemma-3-270m-q4_k_m.gguf"; }
  // UNCHAIN_SHARED/goldens/MODEL/NAME.json.
  nlohmann::json golden(const std::string& model, const std::string& name) const {
    const auto path = shared_ / "goldens" / model / (name + ".json");
    const std::string text = read_file(path);
    if (text.empty())
      throw std::runtime_error(path.string() + " is not there; UNCHAIN_SHARED names the folder that holds goldens/");
    return nlohmann::json::parse(text);
  }
  std::filesystem::path models_, shared_;
};

}  // namespace unchain::test
