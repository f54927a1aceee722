// An open package: its code loaded, its constants mapped, its state initialised, its threads chosen. Immutable but for the
// state; shared by any number of contexts and threads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/result.h"
#include "device/model_abi.h"
#include "runtime/buffer.h"
#include "runtime/code.h"
#include "runtime/package.h"
#include "runtime/thread_pool.h"

namespace coil::runtime {

struct ModelOptions {
  int num_threads = 0;  // 0: the shared pool; else a pool of its own; with parallel_for: how many that uses
  void (*parallel_for)(void* pool, int64_t count, int64_t grain, CoilChunkFn body, void* context) = nullptr;
  void* pool = nullptr;
};

class Model {
 public:
  static Result<std::shared_ptr<Model>> open(const std::string& path, const ModelOptions& options = {});
  // `bytes` (a package) must stay valid and unchanged as long as the model lives.
  static Result<std::shared_ptr<Model>> open_memory(std::span<const uint8_t> bytes, const ModelOptions& options = {});

  const CoilModel& code() const { return code_.model(); }
  const char* isa() const { return code_.isa(); }
  const Manifest& manifest() const { return package_.manifest; }
  const std::string& name() const { return package_.name; }
  const uint8_t* constants() const { return package_.constants.data(); }
  const CoilHost& host() const { return host_; }

  // Null when the program mutates nothing. Whoever uses it holds the mutex.
  uint8_t* state() const { return state_.data(); }
  std::mutex& state_mutex() const { return state_mutex_; }
  // Back to the exported values.
  void reset_state();

 private:
  Model(Package package, Code code) : package_(std::move(package)), code_(std::move(code)) {}
  static Result<std::shared_ptr<Model>> make(Package package, const ModelOptions& options);
  Status check() const;
  Status init_state();
  Status init_threads(const ModelOptions& options);

  Package package_;
  Code code_;
  Buffer state_;
  mutable std::mutex state_mutex_;
  std::shared_ptr<ThreadPool> pool_;
  CoilHost host_ = {1, nullptr, nullptr};
};

}  // namespace coil::runtime
