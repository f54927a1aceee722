// COIL_PROFILE=trace.json: any process that opens a package traces its calls. The first COIL_PROFILE_CALLS of them, or so many from each
// signal on that COIL_PROFILE_SIGNAL names: then the files are trace.json, trace.2.json, ... A trace is written by the thread whose call
// was its last, or with what there is when the process ends, by itself or by a signal that nobody handles.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/env.h"
#include "base/files.h"
#include "runtime/end_by_signal.h"
#include "runtime/nvtx.h"
#include "runtime/profile.h"

namespace coil::runtime {
namespace {

constexpr int64_t kMostCalls = 1'000'000;

std::atomic<int32_t> signals_waiting{0};

struct Wish {
  std::mutex mutex;
  std::string path;
  ProfileOptions options;
  int64_t files = 0;                 // written or under way
  pid_t process = 0;                 // a child that was forked writes nothing
  std::shared_ptr<Profile> profile;  // under way
};
// Never destroyed: calls may run while the process ends.
Wish& wish() {
  static Wish* w = new Wish;
  return *w;
}

std::string path_of(const std::string& path, int64_t number) {
  if (number <= 1) return path;
  const size_t slash = path.rfind('/'), dot = path.rfind('.');
  const bool extension = dot != std::string::npos && (slash == std::string::npos || dot > slash + 1) && dot > 0;
  const std::string n = "." + std::to_string(number);
  return extension ? path.substr(0, dot) + n + path.substr(dot) : path + n;
}

// Nobody can be told of a failure here: the runtime does not print. That the folder can be written was checked when the process began.
void write_trace(const Profile& profile, const std::string& path) {
  if (getpid() != wish().process) return;
  const std::string text = profile.trace_json();
  (void)write_file(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

// With wish().mutex.
void start_one() {
  Wish& w = wish();
  const std::string path = path_of(w.path, ++w.files);
  w.profile = Profile::start(nullptr, w.options, [path](Profile& done) {
    write_trace(done, path);
    const std::lock_guard lock(wish().mutex);
    if (wish().profile.get() == &done) wish().profile = nullptr;
  });
}

void write_rest() {
  static std::mutex one;  // the process ends while a signal has it written
  const std::lock_guard end(one);
  std::shared_ptr<Profile> profile;
  std::string path;
  {
    const std::lock_guard lock(wish().mutex);
    profile = std::exchange(wish().profile, nullptr);
    path = path_of(wish().path, wish().files);
  }
  if (!profile) return;
  profile->stop();
  write_trace(*profile, path);
}

void on_trace_signal(int) {
  watchers.fetch_add(1);
  signals_waiting.fetch_add(1);
  profile_changes.fetch_add(1, std::memory_order_relaxed);
}

Error wrong(std::string message, std::string hint) { return Error{ErrorCode::bad_option, std::move(message), "", std::move(hint)}; }

// "USR2", "SIGUSR2", "10".
Result<int> signal_number(const std::string& text) {
  const std::string name = text.starts_with("SIG") ? text.substr(3) : text;
  constexpr std::pair<const char*, int> kNames[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}, {"WINCH", SIGWINCH}, {"URG", SIGURG}};
  for (const auto& [known, number] : kNames) {
    if (name == known) return number;
  }
  char* end = nullptr;
  const long number = std::strtol(name.c_str(), &end, 10);
  if (!name.empty() && *end == 0 && number > 0 && number <= SIGRTMAX && number != SIGKILL && number != SIGSTOP) return static_cast<int>(number);
  return wrong("COIL_PROFILE_SIGNAL='" + text + "' is no signal", "signals: USR1, USR2, HUP, WINCH, URG, or a number");
}

Status listen(const std::string& text) {
  TRY(const int number, signal_number(text));
  struct sigaction before = {}, action = {};
  sigaction(number, nullptr, &before);
  const bool taken = (before.sa_flags & SA_SIGINFO) || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN);
  if (taken) return wrong("COIL_PROFILE_SIGNAL='" + text + "': the process has a handler for this signal already", "choose another one");
  action.sa_handler = on_trace_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  if (sigaction(number, &action, nullptr) != 0) return wrong("COIL_PROFILE_SIGNAL='" + text + "': " + std::strerror(errno), "choose another signal");
  return ok_status();
}

Status check_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  struct stat status = {};
  const bool is_folder = stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  if (is_folder || access(folder.c_str(), W_OK | X_OK) != 0)
    return wrong("COIL_PROFILE='" + path + "': " + (is_folder ? "it is a folder" : "cannot write into " + folder + ": " + std::strerror(errno)),
                 "name a file for the trace, or unset COIL_PROFILE");
  return ok_status();
}

Status start() {
  TRY_STATUS(Nvtx::check_environment());
  if (Nvtx::get()) watchers.fetch_add(1);  // every call has a range
  const auto path = env("COIL_PROFILE");
  const auto signal = env("COIL_PROFILE_SIGNAL");
  if (!path) return signal ? Status(wrong("COIL_PROFILE_SIGNAL is set and COIL_PROFILE is not", "set COIL_PROFILE to the file for the trace")) : ok_status();
  Wish& w = wish();
  w.path = *path;
  TRY(w.options.calls, env_int("COIL_PROFILE_CALLS", 1, kMostCalls, 100));
  w.options.counters = env_flag("COIL_PROFILE_COUNTERS");
  w.options.all_calls = env_flag("COIL_PROFILE_ALL");
  TRY_STATUS(check_folder(*path));
  if (signal) TRY_STATUS(listen(*signal));
  w.process = getpid();
  if (!signal) start_one();
  std::atexit(write_rest);
  act_before_signals_end(write_rest);
  return ok_status();
}

}  // namespace

Status start_profile_of_environment() {
  static std::mutex mutex;
  static bool started = false;
  const std::lock_guard lock(mutex);
  if (started) return ok_status();
  TRY_STATUS(start());
  started = true;
  return ok_status();
}

// A signal while a profile is under way asks for nothing new.
void answer_signals() {
  if (signals_waiting.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard lock(wish().mutex);
  const int32_t taken = signals_waiting.exchange(0);
  watchers.fetch_sub(taken, std::memory_order_relaxed);
  if (taken > 0 && !wish().profile) start_one();
}

}  // namespace coil::runtime
