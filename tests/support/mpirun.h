// A test that starts its own program again, several times at once, under mpirun. What each of these processes does is a
// test of its own, disabled so that it runs nowhere else.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace unchain::test {

inline bool has_mpirun() {
  return std::system("mpirun --version >/dev/null 2>&1") == 0;
}

// False where there is no mpirun: the test that asks is skipped then, and with CI=true it fails; it returns at once.
inline bool find_mpirun() {
  if (has_mpirun()) return true;
  const char* ci = std::getenv("CI");
  const bool required = ci && std::string(ci) == "true";
  [required] {
    if (required) FAIL() << "no mpirun on this machine; 'tools/setup build' installs it";
    GTEST_SKIP() << "no mpirun on this machine";
  }();
  return false;
}

// The exit status of the job; −1 if a signal ended it. `test`: "SUITE.DISABLED_NAME".
inline int under_mpirun(int ranks, const std::string& test) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "mpirun --allow-run-as-root --oversubscribe -n " + std::to_string(ranks) +
                              " env -u GTEST_OUTPUT OMP_NUM_THREADS=1 '" + self +
                              "' --gtest_also_run_disabled_tests --gtest_filter=" + test + " >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace unchain::test
