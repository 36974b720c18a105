// What ./test fetches: the real models, with the numbers that other implementations get from them.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "support/temporary_folder.h"

namespace unchain::test {

// For SetUp(): the folder that an environment variable names, of what ./test fetches. Where the variable is not set,
// the test is skipped; with CI=true it fails.
inline void find_fetched(std::filesystem::path& folder, const char* variable, const char* holds) {
  const char* value = ::getenv(variable);
  const char* ci = ::getenv("CI");
  if (!value && ci && std::string(ci) == "true") FAIL() << variable << " is not set";
  if (!value) GTEST_SKIP() << variable << " is not set: a folder with " << holds;
  folder = value;
}

// A suite derived from this needs the two GGUF files.
class Pretrained : public testing::Test {
 protected:
  void SetUp() override {
    find_fetched(models_, "UNCHAIN_MODELS", "the two GGUF files");
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
