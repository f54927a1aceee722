// What decides whether loops run on PyTorch's OpenMP team. That they give the same results there: tests/python/test_beside_torch.py.
#include "runtime/openmp_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace coil::runtime {
namespace {

// The largest counts of a few looks: a thread that is ready to run counts, one that waits for the kernel does not.
RunningThreads seen() {
  RunningThreads most;
  for (int i = 0; i < 50; i++) {
    const RunningThreads now = running_threads();
    most.others = std::max(most.others, now.others);
    most.ours = std::max(most.ours, now.ours);
  }
  return most;
}

TEST(OpenMpTeam, TellsWhoRunsInTheProcess) {
  std::atomic<bool> stop = false, sleeps = false;
  std::thread sleeper([&] {
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(20)), sleeps = true;
  });
  while (!sleeps) std::this_thread::yield();
  EXPECT_EQ(seen().ours, 0);
  std::atomic<int> spinning = 0;
  const auto spin = [&](const char* name) {
    pthread_setname_np(pthread_self(), name);
    spinning++;
    while (!stop) {}
  };
  std::thread other(spin, "python"), own(spin, "coil"), alike(spin, "coil-like");
  while (spinning < 3) std::this_thread::yield();
  const RunningThreads running = seen();
  EXPECT_GE(running.others, 2);
  EXPECT_EQ(running.ours, 1);
  EXPECT_GE(running_on_machine(), 3);
  stop = true;
  for (std::thread* t : {&sleeper, &other, &own, &alike}) t->join();
}

TEST(OpenMpTeam, IsNotWantedWhereNothingOffersOne) {
  setenv("COIL_OPENMP", "always", 1);
  OpenMpTeam team;
  unsetenv("COIL_OPENMP");
  EXPECT_FALSE(team.wanted(2, 1));  // no OpenMP runtime in this process
  EXPECT_FALSE(team.wanted(2, 2));  // nor behind a fork
}

}  // namespace
}  // namespace coil::runtime
