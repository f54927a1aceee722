// An open package on a device: its code loaded, its constants mapped (CPU) or uploaded (CUDA), its state initialised, its
// threads chosen. Immutable but for the state; shared by any number of contexts and threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "device/model_abi.h"
#include "runtime/buffer.h"
#include "runtime/code.h"
#include "runtime/device.h"
#include "runtime/package.h"
#include "runtime/state.h"
#include "runtime/thread_pool.h"

namespace coil::runtime {

struct KernelTable;  // kernel_table.h

struct ModelOptions {
  int num_threads = 0;  // 0: the shared pool; else a pool of its own; with parallel_for: how many that uses
  void (*parallel_for)(void* pool, int64_t count, int64_t grain, CoilChunkFn body, void* context) = nullptr;
  void* pool = nullptr;
  std::string device;  // "cpu", "cuda", "cuda:1"; empty: the package's first target that the machine can run
  Verify verify = Verify::small;
  std::string program;  // of a package of several, by its name; empty: the first one
};

class Model {
 public:
  static Result<std::shared_ptr<Model>> open(const std::string& path, const ModelOptions& options = {});
  // `bytes` (a package) must stay valid and unchanged as long as the model lives.
  static Result<std::shared_ptr<Model>> open_memory(std::span<const uint8_t> bytes, const ModelOptions& options = {});
  // Another program of the same package, on the same device and threads: weights are neither mapped nor uploaded again. COIL-E402.
  Result<std::shared_ptr<Model>> open_program(const std::string& program) const;
  ~Model();

  const CoilModel& code() const { return code_.model(); }
  void* symbol(const char* name) const { return code_.symbol(name); }  // of the code; null: it exports none of that name
  uint64_t code_address() const { return code_.address(); }            // what the addresses in the library are counted from; 0: unknown
  std::span<const uint8_t> code_bytes() const { return part_.code; }   // the library as it is in the package
  const std::string& isa() const { return isa_; }                      // "x86-64-v4", "sm_90"
  const Manifest& manifest() const { return package_.manifest; }
  const Target& target() const { return target_; }  // which of the manifest's it is
  const std::string& name() const { return package_.name; }
  const CoilHost& host() const { return host_; }
  const ZipReader& archive() const { return *package_.zip; }
  const Package& package() const { return package_; }
  bool chosen() const { return !options_.program.empty(); }  // opened by its program's name
  // Whether contexts of this model may use a state of that one: it is the same program, or another one of the package that keeps the same. COIL-E213.
  Status takes_states_of(const Model& other) const;

  const Device& device() const { return *device_; }
  const CudaDevice* cuda() const { return cuda_.get(); }   // null on the CPU
  void* loaded() const { return loaded_; }                 // CoilCall::device
  const uint8_t* constants() const { return constants_; }  // in the device's memory

  // Puts state() back to what the exported program begins with.
  Status reset_state() { return state_ ? state_->reset() : ok_status(); }
  // That of all contexts which have none of their own; null when the program changes nothing from call to call.
  State* state() const { return state_.get(); }
  // How many files its states have pages in common by (shared_pages.h).
  const std::shared_ptr<std::atomic<int>>& shared_states() const { return shared_states_; }
  // Tells states of this package's code and weights from others'. Reads the code.
  uint64_t identity() const;

  // What the package says of its kernels; read when first asked for.
  std::shared_ptr<const KernelTable> kernel_table() const;

 private:
  Model(Package package, Target target, PackagePart part, Code code, std::shared_ptr<const CudaDevice> cuda);
  static Result<std::shared_ptr<Model>> make(Package package, const ModelOptions& options);
  static Result<std::shared_ptr<Model>> make_for(const Package& package, const Target& target, DeviceId device, const ModelOptions& options);
  Status check() const;
  Status load_on_device();
  Status init_state();
  Status init_threads(const ModelOptions& options);

  Package package_;
  Target target_;
  PackagePart part_;
  Code code_;
  std::shared_ptr<const CudaDevice> cuda_;
  const Device* device_;
  std::string isa_;
  void* loaded_ = nullptr;
  const uint8_t* constants_ = nullptr;
  std::shared_ptr<const Buffer> uploaded_;  // the constants on a CUDA device; of all programs of a package
  ModelOptions options_;
  std::shared_ptr<std::atomic<int>> shared_states_ = std::make_shared<std::atomic<int>>(0);
  std::unique_ptr<State> state_;
  std::shared_ptr<ThreadPool> pool_;
  CoilHost host_ = {1, nullptr, nullptr};
  mutable std::once_flag table_read_;
  mutable std::shared_ptr<const KernelTable> table_;
};

}  // namespace coil::runtime
