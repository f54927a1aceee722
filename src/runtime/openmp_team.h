// The threads that the process's OpenMP runtime keeps, PyTorch's: after each of its parallel operators they spin for some milliseconds on the
// processors that a pool of our own would want, so a loop that comes then is better run on them.
//
// They are used only while they would be in the way: some other thread of the process runs at that moment, and the machine is not busy beyond
// that. A team waits for each of its threads, a pool of our own for none that has not begun: beside other processes it is many times
// faster. That is looked at rarely (a 200th of the time); COIL_OPENMP=always and never decide it without looking. A process that stems from a fork never uses
// them (libgomp's threads do not come through one, and it does not notice), nor does a caller that is within a parallel region itself. Every thread that begins
// a region has a team of its own, so one thread at a time is served: the one that has called last for a while.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace coil::runtime {

class OpenMpTeam {
 public:
  OpenMpTeam();
  // Whether a loop on up to `threads` threads that the calling thread begins now should run on its team. Not for two threads at a time.
  // `generation`: counts the forks that lead to this process, 1 in the one that began.
  bool wanted(int threads, uint64_t generation);
  // Calls `body` once on each thread of the caller's team, the caller among them. After wanted() only.
  void run(void (*body)(void*), void* context) const { parallel_(body, context, 0, 0); }

 private:
  bool find_runtime();
  bool may_call(pthread_t self);
  void look(int64_t now);

  void (*parallel_)(void (*)(void*), void*, unsigned, unsigned) = nullptr;  // GOMP_parallel
  int (*max_threads_)() = nullptr;
  int (*in_parallel_)() = nullptr;

  bool wanted_ = false;
  bool always_ = false;
  bool never_ = false;  // a process that was forked, or is not to
  long processors_ = 1;
  bool looked_ = false;
  int64_t next_look_ = 0;  // ns, CLOCK_MONOTONIC, as the others
  int64_t since_ = 0;      // when the team was taken
  int64_t patience_ = 0;   // how long it is kept before it is given up for a try: our own use keeps it spinning, too
  int64_t give_up_until_ = 0;
  pthread_t caller_{};  // whom the team serves
  bool has_caller_ = false;
  int others_ = 0;  // loops of other threads since its last
};

// Threads of this process that run or are ready to, without the caller.
struct RunningThreads {
  int others = 0, ours = 0;  // ours: the runtime's own, named "coil"
};
RunningThreads running_threads();
// How many threads of the whole machine run or are ready to; 0 where it does not say.
long running_on_machine();

}  // namespace coil::runtime
