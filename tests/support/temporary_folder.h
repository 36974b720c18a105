// A folder of its own for a test, removed at the end; and errors as values.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "unchain/error.h"

namespace unchain::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "unchain-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The Error that the call throws, if any; other exceptions pass.
template <class Call>
std::optional<Error> error_of(const Call& call) {
  try {
    call();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

// Expects an Error of this code whose message holds every one of the parts.
template <class Call>
void expect_error(const Call& call, ErrorCode code, std::initializer_list<std::string> parts) {
  const auto error = error_of(call);
  ASSERT_TRUE(error.has_value()) << "no error, expected one with '" << *parts.begin() << "'";
  EXPECT_STREQ(to_string(error->code()), to_string(code)) << error->what();
  for (const std::string& part : parts) {
    EXPECT_NE(std::string(error->what()).find(part), std::string::npos)
        << "'" << part << "' is not in: " << error->what();
  }
}

}  // namespace unchain::test
