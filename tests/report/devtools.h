// Chromium without a window, driven over two pipes by its DevTools protocol: JSON messages with a zero byte behind
// each. Time is real, so that a page waits for what it waits for with a reader too; and the mouse is a real one.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace unchain::report {

class DevTools {
 public:
  using Json = nlohmann::json;

  // Starts `program`; its profile and what it says on stderr go into `folder`.
  DevTools(const std::string& program, const std::filesystem::path& folder)
      : log_(folder / "chromium.log"), profile_(folder / "profile") {
    signal(SIGPIPE, SIG_IGN);  // a browser that has ended is an error that says so
    std::array<int, 2> to{}, from{};
    if (pipe2(to.data(), O_CLOEXEC) != 0 || pipe2(from.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const std::string profile = "--user-data-dir=" + profile_.string();
    child_ = fork();
    if (child_ == 0) {
      setpgid(0, 0);
      const int log = open(log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      dup2(log, 1);
      dup2(log, 2);
      // The protocol's descriptors are 3 and 4: first out of the way of those, then there.
      const int in = fcntl(to[0], F_DUPFD, 10), out = fcntl(from[1], F_DUPFD, 10);
      dup2(in, 3);
      dup2(out, 4);
      close(in);
      close(out);
      execlp(program.c_str(), program.c_str(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", "--window-size=1600,1000", profile.c_str(), "about:blank", nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    to_ = to[1];
    from_ = from[0];
    if (child_ < 0) throw std::runtime_error("no process for the browser");
  }
  DevTools(const DevTools&) = delete;
  DevTools& operator=(const DevTools&) = delete;
  ~DevTools() {
    close(to_);
    close(from_);
    if (child_ <= 0) return;
    kill(-child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    // Its other processes may still be writing as they die.
    std::error_code kept;
    for (int i = 0; i < 100 && (std::filesystem::remove_all(profile_, kept), kept); ++i) usleep(20'000);
  }

  // The result of a method, once it has come; other messages of meanwhile go to `on_other`. Throws what went wrong.
  Json call(const std::string& method, Json params = Json::object()) {
    const int id = send(method, std::move(params));
    while (true) {
      const Json message = receive(method);
      if (message.value("id", 0) == id) {
        if (message.contains("error")) throw std::runtime_error(method + ": " + message["error"].dump());
        return message["result"];
      }
      if (on_other) on_other(message);
    }
  }
  // The same without waiting: the number under which the answer will come.
  int send(const std::string& method, Json params) {
    Json message = {{"id", ++last_}, {"method", method}, {"params", std::move(params)}};
    if (!session.empty()) message["sessionId"] = session;
    const std::string text = message.dump();
    for (size_t done = 0; done <= text.size();) {  // with the zero byte
      const ssize_t n = write(to_, text.c_str() + done, text.size() + 1 - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error(method + ": the browser does not listen; it said: " + said());
      done += static_cast<size_t>(n);
    }
    return last_;
  }

  std::function<void(const Json&)> on_other;
  std::string session;  // of the page that methods are for; none: the browser's own

 private:
  Json receive(const std::string& why) {
    size_t end = 0;
    while ((end = unread_.find('\0')) == unread_.npos) {
      // So long a silence is a browser that hangs.
      constexpr int kSilenceMs = 300'000;
      pollfd ready = {.fd = from_, .events = POLLIN, .revents = 0};
      const int n = poll(&ready, 1, kSilenceMs);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error(why + ": no answer from the browser; it said: " + said());
      std::array<char, 65536> buffer{};
      const ssize_t got = read(from_, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw std::runtime_error(why + ": the browser has ended; it said: " + said());
      unread_.append(buffer.data(), static_cast<size_t>(got));
    }
    const std::string message = unread_.substr(0, end);
    unread_.erase(0, end + 1);
    return Json::parse(message);
  }
  std::string said() const {
    std::ifstream in(log_);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    return text.substr(text.size() - std::min<size_t>(text.size(), 2000));
  }

  std::filesystem::path log_, profile_;
  pid_t child_ = -1;
  int to_ = -1, from_ = -1, last_ = 0;
  std::string unread_;
};

}  // namespace unchain::report
