// See end_by_signal.h. The handler only writes to a pipe: nothing more is allowed there.
#include "runtime/end_by_signal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

namespace coil::runtime {
namespace {

int to_thread = -1;  // the pipe's end
pid_t process = 0;

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  raise(signal);
}

void on_end_signal(int signal) {
  const int before = errno;
  const auto number = static_cast<unsigned char>(signal);
  if (getpid() != process || write(to_thread, &number, 1) != 1) end_by(signal);
  errno = before;
}

void wait(int from_handler, void (*act)()) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);  // the process's own handlers run in its own threads
  unsigned char signal = 0;
  while (read(from_handler, &signal, 1) != 1) {
    if (errno != EINTR) return;
  }
  act();
  end_by(signal);
}

}  // namespace

void act_before_signals_end(void (*act)()) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  to_thread = ends[1];
  process = getpid();
  try {
    std::thread(wait, ends[0], act).detach();
  } catch (const std::system_error&) {
    return;  // no thread: signals end the process as ever
  }
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {}, action = {};
    sigaction(number, nullptr, &before);
    if ((before.sa_flags & SA_SIGINFO) || before.sa_handler != SIG_DFL) continue;
    action.sa_handler = on_end_signal;
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
}

}  // namespace coil::runtime
