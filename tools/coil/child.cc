#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "base/text.h"
#include "load_model.h"

extern char** environ;

namespace coil::tool {
namespace {

constexpr size_t kKept = 16 << 10;  // bytes of its output

void append(std::string& text, const char* from, size_t bytes) {
  text.append(from, bytes);
  if (text.size() > 2 * kKept) text.erase(0, text.size() - kKept);
}

// What it writes, until it closes its output; false: it took too long.
bool read_output(int from, double seconds, std::string& text) {
  const double end = seconds_now() + seconds;
  char block[4096];
  while (true) {
    pollfd p = {from, POLLIN, 0};
    const int wait = seconds > 0 ? static_cast<int>(std::max(0.0, (end - seconds_now()) * 1e3)) : -1;
    const int ready = poll(&p, 1, wait);
    if (ready == 0) return false;
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t n = ::read(from, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    append(text, block, static_cast<size_t>(n));
  }
}

}  // namespace

Result<ChildResult> run_child(const std::vector<std::string>& arguments, double seconds) {
  int pipe_ends[2];
  const auto failed = [&](int why) {
    return Error{ErrorCode::bad_option, fmt::format("cannot start '{}': {}", shown(arguments[0]), std::strerror(why)), "", ""};
  };
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return failed(errno);
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  pid_t child = 0;
  const int wrong = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (wrong != 0) {
    close(pipe_ends[0]);
    return failed(wrong);
  }
  ChildResult r;
  const bool ended = read_output(pipe_ends[0], seconds, r.output);
  close(pipe_ends[0]);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  r.signalled = ended && WIFSIGNALED(status);
  r.exit_code = !ended ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return r;
}

}  // namespace coil::tool
