#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace coil {

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

void parallel_each(size_t count, int threads, FunctionRef<void(size_t)> work) {
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto run = [&] {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (failure == nullptr) failure = std::current_exception();
        next.store(count);
      }
    }
  };
  const size_t extra = std::min(count, static_cast<size_t>(std::max(1, threads)));
  std::vector<std::thread> helpers;
  try {
    helpers.reserve(extra);  // first: a thread that cannot be put into the list ends the process
    for (size_t i = 1; i < extra; ++i) helpers.emplace_back(run);
  } catch (const std::exception&) {
    // No more threads or memory: those that run, this one at least, do the work.
  }
  run();
  for (std::thread& helper : helpers) helper.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace coil
