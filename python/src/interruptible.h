// Work that takes long, so that Ctrl-C ends it: it runs on a thread of its own while the interpreter's thread waits and looks for signals.
#pragma once

#include <nanobind/nanobind.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>

namespace coil::python {

class Interruptible {
 public:
  // Comes out of checkpoint() once a signal's handler has raised.
  struct Stopped {};

  void checkpoint() const {
    if (stop_.load(std::memory_order_relaxed)) throw Stopped{};
  }

  // Runs `work` and rethrows what it throws. The lock of the interpreter is held before and after, not while it waits. What a handler raised
  // (KeyboardInterrupt) is thrown when `work` has ended.
  void run(const std::function<void()>& work) {
    work_ = &work;
    {
      const nanobind::gil_scoped_release release;
      pthread_t thread;
      if (start(&thread)) {
        wait();
        pthread_join(thread, nullptr);
      } else {
        execute();
      }
    }
    if (PyErr_Occurred()) throw nanobind::python_error();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static constexpr size_t kStack = size_t{64} << 20;  // what a main thread may have, whatever the limits say of others
  static constexpr std::chrono::milliseconds kInterval{50};

  bool start(pthread_t* thread) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    pthread_attr_setstacksize(&attributes, kStack);
    const auto enter = [](void* self) -> void* {
      static_cast<Interruptible*>(self)->execute();
      return nullptr;
    };
    const bool started = pthread_create(thread, &attributes, enter, this) == 0;
    pthread_attr_destroy(&attributes);
    return started;
  }

  void execute() {
    try {
      (*work_)();
    } catch (const Stopped&) {
    } catch (...) {
      failure_ = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  void wait() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kInterval, [&] { return done_; })) {
      if (stop_) continue;
      lock.unlock();
      {
        const nanobind::gil_scoped_acquire acquire;  // the error stays with this thread
        if (PyErr_CheckSignals() != 0) stop_ = true;
      }
      lock.lock();
    }
  }

  const std::function<void()>* work_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stop_{false};
  bool done_ = false;
  std::exception_ptr failure_;
};

}  // namespace coil::python
