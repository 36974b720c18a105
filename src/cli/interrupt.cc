// A thread that waits for the signals, not a handler: inside a handler almost nothing may be done.
#include "cli/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <set>
#include <system_error>
#include <thread>

#include "base/file.h"

namespace unchain::cli {
namespace {

struct Watch {
  std::mutex mutex;
  std::set<std::filesystem::path> outputs;
  std::atomic<bool> ending = false, gentle = false;
  std::atomic<int> signal = 0;  // that came while gentle
};

// Never destroyed: the thread lives until the process ends.
Watch& watch() {
  static Watch& watch = *new Watch;
  return watch;
}

[[noreturn]] void end_by(int signal) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, signal);
  std::signal(signal, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  ::raise(signal);  // to this thread, which has it unblocked, not to the one that waits
  ::_exit(128 + signal);
}

void wait_for(sigset_t signals) {
  int signal = 0;
  if (::sigwait(&signals, &signal) != 0) return;
  if (watch().gentle.exchange(false)) {
    watch().signal = signal;
    if (::sigwait(&signals, &signal) != 0) return;
  }
  watch().ending = true;
  const std::lock_guard lock(watch().mutex);  // until the end: see hold_interrupts()
  const auto no_more = hold_new_files();
  for (const std::filesystem::path& output : watch().outputs) remove_unfinished(output);
  end_by(signal);
}

}  // namespace

void watch_interrupts() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    // Ignored ones stay ignored: nohup, and jobs in the background of a script.
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) ::sigaddset(&signals, signal);
  }
  watch();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by all threads
  try {
    std::thread(wait_for, signals).detach();
  } catch (const std::system_error&) {  // no thread to be had: the signals end the program, and files stay
    ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
}

void remove_if_interrupted(const std::filesystem::path& output) {
  const std::lock_guard lock(watch().mutex);
  watch().outputs.insert(output);
}

void claim_output(const std::filesystem::path& output) {
  remove_if_interrupted(output);
  const auto hold = hold_interrupts();
  check_writable(output);
}

std::unique_lock<std::mutex> hold_interrupts() {
  return std::unique_lock(watch().mutex);
}

void interrupt_gently() {
  watch().gentle = true;
}

bool interrupted() {
  return watch().signal != 0;
}

void end_interrupted() {
  end_by(watch().signal);
}

void wait_if_interrupted() {
  while (watch().ending) ::pause();
}

}  // namespace unchain::cli
