// See cpu_limits.h. Small files are read with read(2): this runs at every open of a model.
#include "base/cpu_limits.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace coil {
namespace {

// The file's first 4 KiB, or empty.
std::string read_small_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char buffer[4096];
  const ssize_t n = read(file, buffer, sizeof buffer);
  close(file);
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
}

// ceil(quota / period), or 0 when there is no limit.
int processors(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::min<long long>((quota + period - 1) / period, 1 << 20));
}

int tighter(int a, int b) { return a == 0 ? b : b == 0 ? a : std::min(a, b); }

int group_quota_v2(const std::string& folder) {
  long long quota = 0, period = 0;
  const std::string text = read_small_file(folder + "/cpu.max");  // "max 100000" or "250000 100000"
  return std::sscanf(text.c_str(), "%lld %lld", &quota, &period) == 2 ? processors(quota, period) : 0;
}

int group_quota_v1(const std::string& folder) {
  const long long quota = std::atoll(read_small_file(folder + "/cpu.cfs_quota_us").c_str());
  return quota <= 0 ? 0 : processors(quota, std::atoll(read_small_file(folder + "/cpu.cfs_period_us").c_str()));
}

// The tightest quota of `group` and the groups that enclose it. In a container the path of the host may not exist below the
// mounted root: then only the root counts.
template <class F>
int enclosing_quota(const std::string& root, std::string group, F quota_of) {
  int quota = 0;
  while (true) {
    if (group == "/") group.clear();
    quota = tighter(quota, quota_of(root + group));
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return quota;
    group.resize(slash);
  }
}

}  // namespace

int cgroup_cpu_quota(const CpuLimitPaths& paths) {
  const std::string text = read_small_file(paths.cgroup_of_process);
  int quota = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);  // "0::/user.slice" or "4:cpu,cpuacct:/docker/1234"
    at = end + 1;
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    const std::string group(line.substr(second + 1));
    if (controllers == ",,") quota = tighter(quota, enclosing_quota(paths.cgroup_root, group, group_quota_v2));
    if (controllers.find(",cpu,") != controllers.npos) quota = tighter(quota, enclosing_quota(paths.cgroup_root + "/cpu", group, group_quota_v1));
  }
  return quota;
}

int allowed_cpus(const CpuLimitPaths& paths) {
  int count = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  // Fails with more than 1024 processors; hardware_concurrency has the number then.
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
  return std::max(1, tighter(count, cgroup_cpu_quota(paths)));
}

}  // namespace coil
