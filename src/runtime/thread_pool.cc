// See thread_pool.h.
#include "runtime/thread_pool.h"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <mutex>

#include "base/cpu_limits.h"
#include "base/forks.h"

namespace coil::runtime {
namespace {

constexpr uint64_t kOpen = uint64_t{1} << 31;
constexpr uint32_t kActive = 0x7fffffff;
// Chunks for each worker: enough that one that started late or was interrupted leaves little for the others to wait for. They get
// smaller towards the end, as far as the grain allows, so that workers finish together even if chunks cost differently.
constexpr int64_t kChunksPerWorker = 8;
// 10 to 50 us on current processors: longer than the gaps between the loops of a model, shorter than a time slice.
constexpr int kSpins = 1000;

uint32_t epoch_of(uint64_t loop) { return static_cast<uint32_t>(loop >> 32); }

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) : num_threads_(std::max(1, num_threads)), spins_(num_threads_ > allowed_cpus() ? 0 : kSpins), loop_(0) {
  static_assert(sizeof(std::atomic<uint64_t>) == 8 && sizeof(std::atomic<uint32_t>) == 4);
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the halves of loop_ are used as futex words");
  fork_generation();
  threads_.reserve(static_cast<size_t>(num_threads_) - 1);  // later, within a loop, nothing may throw
}

ThreadPool::~ThreadPool() {
  if (started_in_ != fork_generation()) return;  // never started, or the threads belong to the parent process
  stop_ = true;
  loop_.store(uint64_t{epoch_of(loop_.load()) + 1} << 32);
  futex_wake(epoch_word(), INT_MAX);
  for (pthread_t thread : threads_) pthread_join(thread, nullptr);
}

std::shared_ptr<ThreadPool> ThreadPool::shared(int num_threads) {
  static std::mutex mutex;
  static std::weak_ptr<ThreadPool> pool;
  std::lock_guard lock(mutex);
  std::shared_ptr<ThreadPool> held = pool.lock();
  if (!held) pool = held = std::make_shared<ThreadPool>(num_threads);
  return held;
}

bool ThreadPool::acquire() {
  const uint64_t generation = fork_generation();
  uint64_t owner = owner_.load(std::memory_order_relaxed);
  if ((owner & 1) && owner >> 1 == generation) return false;
  if (!owner_.compare_exchange_strong(owner, generation << 1 | 1, std::memory_order_acquire)) return false;
  return true;
}

void ThreadPool::release() { owner_.fetch_and(~uint64_t{1}, std::memory_order_release); }

// Called by the owner only. Fewer threads than wished are fine: the caller alone can finish every loop.
void ThreadPool::start_workers() {
  started_in_ = fork_generation();
  threads_.clear();
  loop_.store(0);
  sleepers_.store(0);
  caller_sleeps_.store(false);
  sigset_t all, old;
  sigfillset(&all);
  // Faults are the thread's own: blocked, they end the process before the application's handlers see them.
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &old);  // signals are for the application's threads
  for (int i = 1; i < num_threads_; i++) {
    pthread_t thread;
    auto main = [](void* pool) -> void* {
      static_cast<ThreadPool*>(pool)->worker_main();
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, main, this) != 0) break;
    pthread_setname_np(thread, "coil");
    threads_.push_back(thread);
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, CoilChunkFn body, void* context) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t workers = std::min<int64_t>(num_threads_, (count - 1) / grain + 1);
  if (workers <= 1 || !acquire()) {
    body(context, 0, count, 0);
    return;
  }
  count_ = count;
  grain_ = grain;
  workers_ = static_cast<int32_t>(workers);
  body_ = body;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  next_worker_.store(1, std::memory_order_relaxed);
  if (team_.wanted(num_threads_, fork_generation())) {
    caller_ = pthread_self();
    team_.run([](void* pool) { static_cast<ThreadPool*>(pool)->work_in_team(); }, this);
    release();
    return;
  }
  if (started_in_ != fork_generation()) start_workers();
  const uint32_t epoch = epoch_of(loop_.load(std::memory_order_relaxed)) + 1;
  loop_.store(uint64_t{epoch} << 32 | kOpen);  // sequentially consistent, before sleepers_ is read: see worker_main
  if (sleepers_.load() > 0) futex_wake(epoch_word(), static_cast<int>(workers - 1));
  take_chunks(0);
  loop_.fetch_and(~kOpen);
  wait_for_workers();
  release();
}

void ThreadPool::take_chunks(int32_t worker) {
  const int64_t count = count_, grain = grain_, shares = 2 * workers_;
  const int64_t most = std::max(grain, (count - 1) / (workers_ * kChunksPerWorker) + 1);
  for (int64_t begin = next_.load(std::memory_order_relaxed); begin < count;) {
    const int64_t chunk = std::clamp((count - begin) / shares, grain, most), end = std::min(count, begin + chunk);
    if (!next_.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
    body_(context_, begin, end, worker);
    begin = next_.load(std::memory_order_relaxed);
  }
}

// There may be more threads in the team than workers are wished for.
void ThreadPool::work_in_team() {
  const int32_t worker = pthread_equal(pthread_self(), caller_) ? 0 : next_worker_.fetch_add(1, std::memory_order_relaxed);
  if (worker < workers_) take_chunks(worker);
}

void ThreadPool::wait_for_workers() {
  for (int spin = 0; spin < kSpins; spin++) {
    if (!(active_word().load(std::memory_order_acquire) & kActive)) return;
    pause_cpu();
  }
  caller_sleeps_.store(true);
  while (const uint32_t active = active_word().load()) futex_wait(active_word(), active);
  caller_sleeps_.store(false);
}

void ThreadPool::worker_main() {
  uint32_t seen = 0;
  for (int spin = 0;;) {
    uint64_t loop = loop_.load();
    if (epoch_of(loop) == seen) {
      if (spin++ < spins_) {
        pause_cpu();
        continue;
      }
      // Either the caller sees this sleeper and wakes it, or the kernel sees the new epoch and does not put it to sleep.
      sleepers_.fetch_add(1);
      futex_wait(epoch_word(), seen);
      sleepers_.fetch_sub(1);
      continue;
    }
    bool joined = false;
    while (loop & kOpen && !(joined = loop_.compare_exchange_weak(loop, loop + 1))) {}
    seen = epoch_of(loop);
    spin = 0;
    if (!joined) {
      if (stop_) return;  // stop_ was written before the epoch
      continue;
    }
    const int32_t worker = next_worker_.fetch_add(1, std::memory_order_relaxed);
    if (worker < workers_) take_chunks(worker);
    const uint64_t before = loop_.fetch_sub(1);
    if (static_cast<uint32_t>(before) == 1 && caller_sleeps_.load()) futex_wake(active_word(), 1);
  }
}

}  // namespace coil::runtime
