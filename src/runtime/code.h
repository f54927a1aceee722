// A package's machine code, loaded from memory: the shared object goes into an anonymous file that only this process sees, so
// that nothing is written to a disk and no path is needed. Code of the same bytes is loaded once, however many models have it open;
// what differs between models (constants, state, devices, streams) comes with each call. No descriptor stays open.
// COIL_CODE=FOLDER: for debuggers and profilers, which open what is loaded by its path, the shared object goes into FOLDER/NAME-HASH.so instead.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "device/model_abi.h"

namespace coil::runtime {

class Code {
 public:
  // Loads the shared object, checks that it is of this machine and of this version's boundary, and lets it choose its
  // instruction set. `name` appears in /proc/PID/maps, debuggers and profilers.
  static Result<Code> load(std::span<const uint8_t> shared_object, const std::string& name);

  const CoilModel& model() const { return loaded_->model; }
  const char* isa() const { return loaded_->isa; }
  void* symbol(const char* name) const;  // null: the code does not export it
  uint64_t address() const;              // where the library begins in memory; 0: unknown

 private:
  struct Loaded {
    Loaded() = default;
    Loaded(const Loaded&) = delete;
    ~Loaded();
    Status open(std::span<const uint8_t> shared_object, const std::string& name);
    Status load_file(const std::string& path);
    Status choose();

    void* handle = nullptr;
    CoilModel model = {};  // the code's table; null what it does not have yet
    const char* isa = "";
  };
  explicit Code(std::shared_ptr<const Loaded> loaded) : loaded_(std::move(loaded)) {}
  struct Registry;
  static Registry& registry();

  std::shared_ptr<const Loaded> loaded_;
};

}  // namespace coil::runtime
