// See openmp_team.h. Nothing here allocates memory once the runtime is found: it runs within calls.
#include "runtime/openmp_team.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/env.h"

namespace coil::runtime {
namespace {

constexpr int64_t kMillisecond = 1000000;
constexpr int64_t kShare = 200;                   // of the time that looking may take
constexpr int64_t kLookApart = 2 * kMillisecond;  // less than libgomp spins for
constexpr int64_t kSpinsEnd = 20 * kMillisecond;  // later than libgomp's threads have gone to sleep
constexpr int64_t kFirstPatience = 200 * kMillisecond, kMostPatience = 10000 * kMillisecond;
constexpr int64_t kFindApart = 100 * kMillisecond;
constexpr int kOthersBefore = 64;      // loops in a row by which another thread becomes the one that is served
constexpr int kMostTeamThreads = 256;  // that are looked at

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

// The beginning of a file of /proc as text; false where there is none.
bool read_text(const char* path, char* text, size_t size) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t bytes = read(file, text, size - 1);
  close(file);
  text[std::max<ssize_t>(bytes, 0)] = 0;
  return bytes > 0;
}

// PF_FORKNOEXEC: this process is a fork of one that may have had a team.
bool was_forked() {
  char text[512];
  if (!read_text("/proc/self/stat", text, sizeof text)) return true;
  const char* at = std::strrchr(text, ')');
  for (int field = 2; at && field < 9; field++) at = std::strchr(at + 1, ' ');
  return !at || std::strtoul(at + 1, nullptr, 10) & 0x40;
}

int find_openmp(dl_phdr_info* info, size_t, void* found) {
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* name = slash ? slash + 1 : info->dlpi_name;
  if (std::strncmp(name, "libgomp", 7) != 0 && std::strncmp(name, "libiomp", 7) != 0 && std::strncmp(name, "libomp", 6) != 0) return 0;
  std::snprintf(static_cast<char*>(found), 512, "%s", info->dlpi_name);
  return 1;
}

struct Entry {  // of getdents64
  uint64_t inode;
  int64_t next;
  uint16_t length;
  uint8_t type;
  char name[1];
};

void count(const char* thread, RunningThreads& running) {
  char path[64], text[128];
  std::snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", thread);
  if (!read_text(path, text, sizeof text)) return;
  const char *open = std::strchr(text, '('), *end = std::strrchr(text, ')');
  if (!open || !end || end[1] != ' ' || end[2] != 'R') return;
  (std::strncmp(open, "(coil)", 6) == 0 ? running.ours : running.others)++;
}

}  // namespace

RunningThreads running_threads() {
  RunningThreads running;
  const int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return running;
  const long self = syscall(SYS_gettid);
  alignas(Entry) char buffer[2048];
  int left = kMostTeamThreads;
  for (long bytes; left > 0 && (bytes = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < bytes && left > 0; left--) {
      const Entry* entry = reinterpret_cast<const Entry*>(buffer + at);
      at += entry->length;
      const long thread = std::strtol(entry->name, nullptr, 10);
      if (thread > 0 && thread != self) count(entry->name, running);
    }
  }
  close(folder);
  return running;
}

long running_on_machine() {
  char text[128];
  if (!read_text("/proc/loadavg", text, sizeof text)) return 0;
  const char* slash = std::strchr(text, '/');
  while (slash && slash > text && slash[-1] != ' ') slash--;
  return slash ? std::strtol(slash, nullptr, 10) : 0;
}

OpenMpTeam::OpenMpTeam() {
  const std::string mode = env("COIL_OPENMP").value_or("auto");
  always_ = mode == "always";
  never_ = mode == "never";
}

// The library of the global scope comes first, as it does for PyTorch.
bool OpenMpTeam::find_runtime() {
  char path[512];
  if (!dl_iterate_phdr(find_openmp, path)) return false;
  void* library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);  // stays open: it is never unloaded while its threads live
  const auto symbol = [&](const char* name) {
    void* found = dlsym(RTLD_DEFAULT, name);
    return found || !library ? found : dlsym(library, name);
  };
  parallel_ = reinterpret_cast<decltype(parallel_)>(symbol("GOMP_parallel"));
  max_threads_ = reinterpret_cast<decltype(max_threads_)>(symbol("omp_get_max_threads"));
  in_parallel_ = reinterpret_cast<decltype(in_parallel_)>(symbol("omp_in_parallel"));
  never_ = !parallel_ || !max_threads_ || !in_parallel_;
  processors_ = sysconf(_SC_NPROCESSORS_ONLN);
  return !never_;
}

bool OpenMpTeam::may_call(pthread_t self) {
  if (has_caller_ && pthread_equal(self, caller_)) {
    others_ = 0;
    return true;
  }
  if (has_caller_ && ++others_ < kOthersBefore) return false;
  has_caller_ = true;
  caller_ = self;
  others_ = 0;
  wanted_ = false;
  next_look_ = 0;
  return true;
}

void OpenMpTeam::look(int64_t now) {
  if (!parallel_ && !find_runtime()) {
    next_look_ = now + kFindApart;
    return;
  }
  const bool before = wanted_;
  wanted_ = false;
  if (always_) {
    wanted_ = true;
  } else if (now >= give_up_until_) {
    const long all = running_on_machine();
    const RunningThreads running = running_threads();
    wanted_ = running.others > 0 && all > 0 && all - running.ours <= processors_;
  }
  if (wanted_ && !before) since_ = now;
  if (!wanted_ && now >= give_up_until_) patience_ = kFirstPatience;
  if (wanted_ && !always_ && now - since_ > patience_) {
    wanted_ = false;
    give_up_until_ = now + kSpinsEnd;
    patience_ = std::min(2 * patience_, kMostPatience);
  }
  const int64_t after = now_ns();
  next_look_ = after + std::max(kLookApart, (after - now) * kShare);
}

bool OpenMpTeam::wanted(int threads, uint64_t generation) {
  if (never_ || !may_call(pthread_self())) return false;
  if (!looked_ || generation != 1) {
    looked_ = true;
    never_ = generation != 1 || was_forked();
    if (never_) return false;
    patience_ = kFirstPatience;
  }
  if (const int64_t now = now_ns(); now >= next_look_) look(now);
  // A team that is much smaller than what the caller may use is not worth it.
  return wanted_ && !in_parallel_() && max_threads_() > 1 && 2 * max_threads_() >= threads;
}

}  // namespace coil::runtime
