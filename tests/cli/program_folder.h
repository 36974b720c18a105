// A folder with tiny models, made once for all tests of this program.
#pragma once

#include <fmt/format.h>

#include "support/golden_model.h"
#include "support/mpirun.h"
#include "support/program.h"
#include "support/tiny_model.h"

namespace unchain::test {

class Cli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<TemporaryFolder>();
    write_tiny_model(*shared_ / "llama", {});
    write_tiny_model(*shared_ / "gemma3", {"gemma3", "gemma_like", false, {}});
    write_file(*shared_ / "text.txt", text());
  }
  static void TearDownTestSuite() { shared_.reset(); }
  static std::string text() {
    std::string text;
    for (int i = 0; i < 12; ++i) text.append("The river meets the sea ").append(std::to_string(i)).append(" times.\n");
    return text;
  }
  static std::string path(const std::string& name) { return (*shared_ / name).string(); }
  std::string own(const std::string& name) const { return (own_ / name).string(); }

  static inline std::unique_ptr<TemporaryFolder> shared_;
  TemporaryFolder own_;
};

// The section `model` of a configuration whose runs take a second.
inline nlohmann::json small_model() {
  return {{"hidden_size", 32},        {"intermediate_size", 64},  {"num_hidden_layers", 2},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"tie_word_embeddings", true}};
}

inline void expect_keys(const nlohmann::json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    EXPECT_TRUE(object.contains(key)) << key << " is not in " << object.dump().substr(0, 400);
}

// Names in a folder that begin with `prefix`.
inline std::vector<std::string> names(const std::filesystem::path& folder, const std::string& prefix) {
  std::vector<std::string> result;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix)) result.push_back(name);
  }
  return result;
}

// The program as one rank for each list of arguments, in folders of their own if these are given. Bound to none: tests
// that run at the same time would be bound to the same processors. What hangs is ended after ten minutes, with status
// 124.
inline RunResult run_ranks(const std::vector<std::vector<std::string>>& ranks,
                           const std::vector<std::string>& folders = {}) {
  std::string line = "timeout 600 mpirun --allow-run-as-root --oversubscribe --bind-to none";
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    line += rank > 0 ? " : -n 1" : " -n 1";
    if (!folders.empty()) line += " -wdir '" + folders[rank] + "'";
    line += " '" UNCHAIN_PROGRAM "'";
    for (const std::string& argument : ranks[rank]) line += " '" + argument + "'";
  }
  const TemporaryFolder folder;
  const int status = std::system((line + " >" + (folder / "out").string() + " 2>" + (folder / "err").string()).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / "out"), read_file(folder / "err")};
}

// The same arguments for each.
inline RunResult run_ranks(int ranks, const std::vector<std::string>& arguments) {
  return run_ranks(std::vector(static_cast<size_t>(ranks), arguments));
}

}  // namespace unchain::test
