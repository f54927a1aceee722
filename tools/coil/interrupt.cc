#include "interrupt.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <system_error>
#include <thread>

namespace coil::tool {
namespace {

std::atomic<bool> finishes{false};
std::atomic<int> asked{0};

void remove_unfinished(const std::filesystem::path& named) {
  if (named.empty()) return;
  std::error_code ignored;
  const std::filesystem::path real = std::filesystem::weakly_canonical(named, ignored), output = ignored ? named : real;  // links are written through
  const std::filesystem::path folder = output.has_parent_path() ? output.parent_path() : ".";
  const std::string prefix = fmt::format("{}.tmp-{}-", output.filename().string(), ::getpid());
  for (std::filesystem::directory_iterator it(folder, ignored), end; !ignored && it != end; it.increment(ignored)) {
    if (it->path().filename().string().starts_with(prefix)) ::unlink(it->path().c_str());
  }
}

}  // namespace

void clean_up_on_signals(const std::string& output) {
  sigset_t signals;
  sigemptyset(&signals);
  for (int s : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now;
    if (::sigaction(s, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&signals, s);  // nohup stays nohup
  }
  if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) return;
  // A thread that waits may do what a handler may not: list a folder, format a name.
  const auto wait = [signals, output] {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) return;
    if (finishes.load()) {
      asked.store(signal);
      if (sigwait(&signals, &signal) != 0) return;
    }
    remove_unfinished(output);
    end_by(signal);
  };
  try {
    std::thread(wait).detach();
  } catch (const std::system_error&) {
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // no thread: signals end the process, and an unfinished file stays
  }
}

void finish_on_signal() { finishes.store(true); }

int asked_to_end() { return asked.load(std::memory_order_relaxed); }

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace coil::tool
