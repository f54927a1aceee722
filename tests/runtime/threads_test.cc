// Threads: the pool by itself, models called from many threads, forks.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "fixture.h"
#include "runtime/thread_pool.h"

namespace coil::runtime_test {
namespace {

using runtime::ThreadPool;

struct Counts {
  explicit Counts(int64_t count, int threads) : items(static_cast<size_t>(count)), workers(static_cast<size_t>(threads)) {}
  std::vector<std::atomic<int>> items;
  std::vector<std::atomic<int>> workers;  // how many calls of the body each is in
  std::atomic<int> errors{0};
  std::atomic<int64_t> smallest{INT64_MAX};
};

void count_items(void* context, int64_t begin, int64_t end, int32_t worker) {
  Counts& counts = *static_cast<Counts*>(context);
  if (worker < 0 || static_cast<size_t>(worker) >= counts.workers.size() || begin >= end) {
    counts.errors++;
    return;
  }
  if (counts.workers[static_cast<size_t>(worker)]++ != 0) counts.errors++;  // two threads with one number
  if (static_cast<size_t>(end) != counts.items.size() && end - begin < counts.smallest) counts.smallest = end - begin;
  for (int64_t i = begin; i < end; i++) counts.items[static_cast<size_t>(i)]++;
  counts.workers[static_cast<size_t>(worker)]--;
}

std::string check_loop(ThreadPool& pool, int64_t count, int64_t grain) {
  Counts counts(count, pool.num_threads());
  pool.parallel_for(count, grain, count_items, &counts);
  for (int64_t i = 0; i < count; i++) {
    if (counts.items[static_cast<size_t>(i)] != 1)
      return "item " + std::to_string(i) + " of " + std::to_string(count) + " ran " + std::to_string(counts.items[static_cast<size_t>(i)]) + " times";
  }
  if (counts.smallest < grain) return "a chunk below the grain";
  return counts.errors ? "a wrong worker or range" : "";
}

TEST(Pool, RunsEveryItemOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; round++) {
      for (int64_t count : {0, 1, 2, 7, 64, 1000}) ASSERT_EQ(check_loop(pool, count, 1 + round % 9), "") << threads;
    }
  }
}

TEST(Pool, ChunksGetSmallerTowardsTheEnd) {
  ThreadPool pool(2);
  for (int64_t grain : {1, 3}) {
    std::vector<std::atomic<int64_t>> ends(161);  // by where a chunk begins
    auto note = [](void* context, int64_t begin, int64_t end, int32_t) {
      (*static_cast<std::vector<std::atomic<int64_t>>*>(context))[static_cast<size_t>(begin)] = end;
    };
    pool.parallel_for(160, grain, note, &ends);
    std::vector<int64_t> sizes;
    for (int64_t begin = 0; begin < 160; begin += sizes.back()) {
      sizes.push_back(ends[static_cast<size_t>(begin)] - begin);
      ASSERT_GT(sizes.back(), 0);
    }
    EXPECT_EQ(sizes.front(), 10);  // a sixteenth: what a worker that is interrupted holds up
    EXPECT_LE(sizes.back(), grain);
    EXPECT_TRUE(std::is_sorted(sizes.rbegin() + 1, sizes.rend()));  // (the last is what is left)
    EXPECT_LE(sizes.size(), 32u);
  }
}

TEST(Pool, UsesItsThreads) {
  // Four items that each wait for the other three: done only if four threads are in the loop at once.
  ThreadPool pool(4);
  std::atomic<int> inside{0};
  auto wait_for_all = [](void* context, int64_t begin, int64_t end, int32_t) {
    auto& count = *static_cast<std::atomic<int>*>(context);
    for (int64_t i = begin; i < end; i++) {
      count++;
      const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (count < 4 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    }
  };
  pool.parallel_for(4, 1, wait_for_all, &inside);
  EXPECT_EQ(inside, 4);
}

TEST(Pool, SleepsAndWakes) {
  ThreadPool pool(4);
  for (int round = 0; round < 50; round++) {
    ASSERT_EQ(check_loop(pool, 500, 1), "");
    std::this_thread::sleep_for(std::chrono::microseconds(round * 20));  // around the time when workers fall asleep
  }
}

TEST(Pool, ManyCallersShareIt) {
  ThreadPool pool(3);
  std::atomic<int> errors{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 6; i++) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; round++) errors += check_loop(pool, 100 + round, 2) != "";
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(errors, 0);
}

TEST(Pool, SixtyFourCallersShareIt) {
  ThreadPool pool(4);
  std::atomic<int> errors{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 64; i++) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 30; round++) errors += check_loop(pool, 1 + (i * 7 + round) % 200, 1 + round % 5) != "";
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(errors, 0);
}

TEST(Pool, StartsAndStopsQuickly) {
  for (int i = 0; i < 200; i++) {
    ThreadPool pool(3);
    if (i % 2 == 0) continue;
    ASSERT_EQ(check_loop(pool, 10, 1), "");
  }
}

// Runs `body` in a child process; its exit code, or -1 when it hung for 20 s.
template <class F>
int in_child(F body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  for (int i = 0; i < 2000; i++) {
    int status;
    if (waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    usleep(10000);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return -1;
}

TEST(Pool, SurvivesFork) {
  auto pool = std::make_unique<ThreadPool>(4);
  ASSERT_EQ(check_loop(*pool, 1000, 1), "");
  EXPECT_EQ(in_child([&] {
              if (check_loop(*pool, 1000, 1) != "") return 1;
              pool.reset();
              return 0;
            }),
            0);
  ASSERT_EQ(check_loop(*pool, 1000, 1), "");
}

TEST(Pool, SurvivesForkInTheMiddleOfALoop) {
  ThreadPool pool(3);
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) check_loop(pool, 1000, 1);
  });
  for (int i = 0; i < 20; i++) EXPECT_EQ(in_child([&] { return check_loop(pool, 1000, 1) == "" ? 0 : 1; }), 0);
  stop = true;
  busy.join();
}

TEST(Threads, OneModelManyContexts) {
  coil_model* model = open_or_fail(write_file("shared.pt2", package("MASKED")));
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; t++) {
    threads.emplace_back([&, t] {
      coil_context* context;
      if (coil_context_create(model, &context) != COIL_OK) errors++;
      for (int round = 0; round < 300; round++) {
        MaskedCall call(1 + (t * 13 + round) % 64, static_cast<float>(t));
        coil_tensor outputs[2] = {};
        if (round % 10 == 9) {  // errors of one thread do not disturb the others
          if (coil_run(context, call.views().data(), 2, outputs, 2) != 201) errors++;
          continue;
        }
        if (coil_run(context, call.views().data(), 3, outputs, 2) != COIL_OK || call.compare(outputs) != "") errors++;
      }
      coil_context_destroy(context);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  coil_close(model);
}

// Many more threads than cores: pools of models that come and go, contexts of one model, errors beside results.
TEST(Threads, SixtyFour) {
  const std::string path = write_file("sixty_four.pt2", package("MASKED"));
  coil_model* shared = open_or_fail(path);
  std::atomic<int> errors{0}, ready{0};
  const auto work = [&](int t) {
    ready++;
    while (ready < 64) std::this_thread::yield();
    for (int round = 0; round < 6; round++) {
      coil_model* own = nullptr;
      const coil_options options = {.struct_bytes = sizeof options, .num_threads = 1 + t % 3};
      if (t % 4 == 0 && coil_open(path.c_str(), &options, &own) != COIL_OK) return void(errors++);
      coil_context* context = nullptr;
      if (coil_context_create(own ? own : shared, &context) != COIL_OK) return void(errors++);
      for (int i = 0; i < 5; i++) {
        MaskedCall call(1 + (t * 13 + round * 5 + i) % 64, static_cast<float>(t));
        coil_tensor outputs[2] = {};
        if (coil_run(context, call.views().data(), i == 4 ? 2 : 3, outputs, 2) != (i == 4 ? 201 : COIL_OK)) errors++;
        else if (i == 4) errors += std::string(coil_last_error()).substr(0, 9) != "COIL-E201";
        else errors += call.compare(outputs) != "";
      }
      coil_context_destroy(context);
      if (own) coil_close(own);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 64; t++) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(errors, 0);
  coil_close(shared);
}

TEST(Threads, CallsWithStateTakeTurns) {
  coil_model* model = open_or_fail(write_file("counter.pt2", package("COUNTER")));
  std::vector<std::thread> threads;
  std::vector<std::atomic<int>> seen(2000);
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      coil_context* context;
      coil_context_create(model, &context);
      Array x = Array::floats({4}, 0, 0);
      for (int round = 0; round < 500; round++) {
        coil_tensor input = x.view(), output = {};
        coil_run(context, &input, 1, &output, 1);
        seen[static_cast<size_t>(static_cast<float*>(output.data)[0]) - 10]++;
      }
      coil_context_destroy(context);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::atomic<int>& count : seen) ASSERT_EQ(count, 1);  // every value of the counter was given out once
  coil_close(model);
}

TEST(Threads, ModelAfterFork) {
  coil_model* model = open_or_fail(write_file("fork.pt2", package("MASKED")));
  coil_context* context;
  ASSERT_EQ(coil_context_create(model, &context), COIL_OK);
  auto call_is_right = [&] {
    MaskedCall call(64);
    coil_tensor outputs[2] = {};
    return coil_run(context, call.views().data(), 3, outputs, 2) == COIL_OK && call.compare(outputs) == "";
  };
  EXPECT_TRUE(call_is_right());
  EXPECT_EQ(in_child([&] { return call_is_right() && call_is_right() ? 0 : 1; }), 0);
  EXPECT_TRUE(call_is_right());
  coil_context_destroy(context);
  coil_close(model);
}

TEST(Threads, OptionsAndOwnThreads) {
  const std::string path = write_file("options.pt2", package("MASKED"));
  for (int threads : {1, 2, 5}) {
    coil_options options = {};
    options.struct_bytes = sizeof options;
    options.num_threads = threads;
    coil_model* model = open_or_fail(path, &options);
    EXPECT_EQ(coil_num_threads(model), threads);
    coil_close(model);
  }
  setenv("COIL_THREADS", "3", 1);
  coil_model* by_variable = open_or_fail(path);
  EXPECT_EQ(coil_num_threads(by_variable), 3);
  coil_close(by_variable);
  setenv("COIL_THREADS", "many", 1);
  EXPECT_EQ(coil_open(path.c_str(), nullptr, &by_variable), 402);
  unsetenv("COIL_THREADS");

  std::atomic<int> loops{0};
  coil_options options = {};
  options.struct_bytes = sizeof options;
  options.num_threads = 2;
  options.pool = &loops;
  options.parallel_for = [](void* pool, int64_t count, int64_t, coil_chunk_function body, void* context) {
    ++*static_cast<std::atomic<int>*>(pool);
    std::thread other([&] { body(context, count / 2, count, 1); });
    body(context, 0, count / 2, 0);
    other.join();
  };
  coil_model* model = open_or_fail(path, &options);
  coil_context* context;
  ASSERT_EQ(coil_context_create(model, &context), COIL_OK);
  MaskedCall call(64);
  coil_tensor outputs[2] = {};
  ASSERT_EQ(coil_run(context, call.views().data(), 3, outputs, 2), COIL_OK);
  EXPECT_EQ(call.compare(outputs), "");
  EXPECT_EQ(loops, 1);
  coil_context_destroy(context);
  coil_close(model);
}

}  // namespace
}  // namespace coil::runtime_test
