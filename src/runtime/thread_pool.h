// The runtime's threads: one parallel loop at a time, dynamic chunks, the caller takes part. Made for many short loops, and for
// machines that are busy with other things: a loop never waits for a thread that has not begun to work on it, so a worker that
// the system descheduled holds nobody up. Workers start with the first loop that wants them, spin shortly for the next loop and
// then sleep.
//
// A pool may be shared by models, contexts and threads. A loop that finds the pool busy runs on its caller alone.
// After fork() the child has no workers; its first loop starts new ones.
// While the threads of PyTorch's OpenMP team spin beside it, loops run on these instead (openmp_team.h). Which thread runs a chunk never
// decides about a result.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/model_abi.h"
#include "runtime/openmp_team.h"

namespace coil::runtime {

class ThreadPool {
 public:
  // num_threads counts the caller; at least 1. Starts nothing yet.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();  // no loop may be running
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The pool that all models without a wish of their own share; lives while somebody holds it. Whoever needs it first makes it,
  // with num_threads threads.
  static std::shared_ptr<ThreadPool> shared(int num_threads);

  int num_threads() const { return num_threads_; }

  // As CoilHost::parallel_for.
  void parallel_for(int64_t count, int64_t grain, CoilChunkFn body, void* context);
  static void run_loop(void* pool, int64_t count, int64_t grain, CoilChunkFn body, void* context) {
    static_cast<ThreadPool*>(pool)->parallel_for(count, grain, body, context);
  }

 private:
  bool acquire();
  void release();
  void start_workers();
  void worker_main();
  void work_in_team();
  void take_chunks(int32_t worker);
  void wait_for_workers();
  std::atomic<uint32_t>& epoch_word() { return words_[1]; }
  std::atomic<uint32_t>& active_word() { return words_[0]; }

  const int num_threads_;
  const int spins_;
  std::vector<pthread_t> threads_;
  uint64_t started_in_ = 0;  // the fork generation that the threads belong to; 0: none started

  // generation << 1 | busy. A busy pool of an earlier generation is free: its owner did not come through the fork.
  alignas(64) std::atomic<uint64_t> owner_{0};

  // The current loop, as one number: epoch << 32 | kOpen | workers that are in it. A worker joins only while it is open, so
  // that the caller can close it and wait for those inside. The halves are also futex words.
  union {
    alignas(64) std::atomic<uint64_t> loop_;
    std::atomic<uint32_t> words_[2];
  };
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int32_t> sleepers_{0};

  alignas(64) std::atomic<int64_t> next_{0};
  std::atomic<int32_t> next_worker_{1};
  int64_t count_ = 0;
  int64_t grain_ = 0;
  int32_t workers_ = 0;
  CoilChunkFn body_ = nullptr;
  void* context_ = nullptr;

  OpenMpTeam team_;  // the owner's, like all above
  pthread_t caller_{};
};

}  // namespace coil::runtime
