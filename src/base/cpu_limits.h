// How many processors this process may use: what sched_setaffinity and the cgroup's cpu quota leave of the machine.
#pragma once

#include <string>

namespace coil {

// Where to look; tests point it at files of their own.
struct CpuLimitPaths {
  std::string cgroup_of_process = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
};

// At least 1. A quota of 2.5 processors counts as 3: threads are cheap to put to sleep, an idle processor is not.
int allowed_cpus(const CpuLimitPaths& paths = {});

// The quota in processors, rounded up, over all enclosing groups (version 1 and 2); 0: none.
int cgroup_cpu_quota(const CpuLimitPaths& paths);

}  // namespace coil
