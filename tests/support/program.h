// Runs the program as its users do: arguments in, exit status, stdout and stderr out.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace unchain::test {

struct RunOptions {
  rlim_t largest_file = RLIM_INFINITY;  // bytes: writing beyond fails, as on a full disk
  std::string stdout_path;              // a file or device to write to in place of a pipe
  std::function<bool()> kill_when;      // asked every fraction of a millisecond; true: `signal` is sent
  int signal = SIGKILL;
  double limit_s = 120;  // then it is killed and the status is −SIGKILL
};

struct RunResult {
  int status = -1;  // exit status, or −signal
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

inline RunResult run_program(std::vector<std::string> arguments, const RunOptions& options = {}) {
  arguments.insert(arguments.begin(), UNCHAIN_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    const int target = options.stdout_path.empty() ? out[1] : ::open(options.stdout_path.c_str(), O_WRONLY);
    ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
    ::dup2(target, STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    const rlimit size = {options.largest_file, options.largest_file};
    if (options.largest_file != RLIM_INFINITY) ::setrlimit(RLIMIT_FSIZE, &size);
    std::signal(options.signal, SIG_DFL);  // a test that runs in the background ignores some
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  ::close(err[1]);
  RunResult result;
  const auto start = std::chrono::steady_clock::now();
  pollfd ends[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  std::string* texts[2] = {&result.out, &result.err};
  const timespec pause = {0, options.kill_when ? 200'000 : 100'000'000};
  for (int open = 2; open > 0;) {
    ::ppoll(ends, 2, &pause, nullptr);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (passed.count() > options.limit_s) ::kill(child, SIGKILL);
    if (options.kill_when && options.kill_when()) ::kill(child, options.signal);
    for (int i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t got = ::read(ends[i].fd, buffer, sizeof(buffer));
      if (got > 0) {
        texts[i]->append(buffer, static_cast<size_t>(got));
      } else {
        ::close(ends[i].fd);
        ends[i].fd = -1;
        --open;
      }
    }
  }
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  result.status = WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
  return result;
}

// The JSON of a run that is expected to succeed; `--json -` is added.
inline nlohmann::json run_json(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "-"});
  const RunResult result = run_program(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  if (!nlohmann::json::accept(result.out)) {
    ADD_FAILURE() << "stdout is no JSON: " << result.out.substr(0, 300);
    return nlohmann::json::object();
  }
  return result.json();
}

// Expects this exit status, nothing on stdout, and one line on stderr, the last, that begins with the program's name
// and holds all parts.
inline void expect_failure(const std::vector<std::string>& arguments, int status,
                           std::initializer_list<std::string> parts, const RunOptions& options = {}) {
  std::string line;
  for (const std::string& argument : arguments) line.append(argument).append(" ");
  SCOPED_TRACE(line);
  const RunResult result = run_program(arguments, options);
  EXPECT_EQ(result.status, status) << result.err;
  EXPECT_EQ(result.out, "");
  const size_t message = result.err.find("unchain: ");
  ASSERT_NE(message, std::string::npos) << result.err;
  EXPECT_TRUE(message == 0 || result.err[message - 1] == '\n') << result.err;
  EXPECT_EQ(result.err.find('\n', message), result.err.size() - 1) << "more than one line: " << result.err;
  for (const std::string& part : parts)
    EXPECT_NE(result.err.find(part), std::string::npos) << part << ": " << result.err;
}

}  // namespace unchain::test
