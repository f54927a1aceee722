// See counters.h.
#include "runtime/counters.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace coil::runtime {
namespace {

int open_counter(uint64_t which, int group) {
  perf_event_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_HARDWARE;
  attr.config = which;
  attr.exclude_kernel = attr.exclude_hv = 1;
  attr.read_format = PERF_FORMAT_GROUP;
  return static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, group, PERF_FLAG_FD_CLOEXEC));
}

}  // namespace

Counters::~Counters() { close(); }

void Counters::close() {
  for (int& file : files_) {
    if (file >= 0) ::close(file);
    file = -1;
  }
}

bool Counters::start() {
  const auto thread = static_cast<uint32_t>(syscall(SYS_gettid));
  if (files_[0] >= 0 && thread == thread_) return true;
  close();
  thread_ = thread;
  files_[0] = open_counter(PERF_COUNT_HW_CPU_CYCLES, -1);
  if (files_[0] < 0) {
    const int reason = errno;
    note_ = std::string("the system does not give the processor's counters to this process (perf_event_open: ") + strerror(reason) + ")" +
            (reason == EACCES || reason == EPERM ? "; kernel.perf_event_paranoid of at most 2 allows them, in a container also a seccomp rule"
                                                 : "; a virtual machine may have none");
    return false;
  }
  files_[1] = open_counter(PERF_COUNT_HW_INSTRUCTIONS, files_[0]);
  files_[2] = open_counter(PERF_COUNT_HW_CACHE_MISSES, files_[0]);
  return true;
}

void Counters::read(uint64_t values[3]) const {
  uint64_t group[4] = {};
  if (::read(files_[0], group, sizeof group) < static_cast<ssize_t>(2 * sizeof(uint64_t))) return;
  uint64_t next = 1;
  for (int i = 0; i < 3; i++) {
    if (files_[i] >= 0 && next <= group[0]) values[i] = group[next++];
  }
}

}  // namespace coil::runtime
