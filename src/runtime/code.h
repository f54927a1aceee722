// A package's machine code, loaded from memory: the shared object goes into an anonymous file that only this process sees, so
// that nothing is written to a disk and no path is needed.
#pragma once

#include <cstdint>
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

  Code(Code&& other) noexcept;
  Code& operator=(Code&&) = delete;
  ~Code();

  const CoilModel& model() const { return model_; }
  const char* isa() const { return isa_; }
  void* symbol(const char* name) const;  // null: the code does not export it

 private:
  Code() = default;
  Status choose();

  int file_ = -1;  // open as long as the code is loaded: the loader knows objects by path, and the path has the number in it
  void* handle_ = nullptr;
  CoilModel model_ = {};  // the code's table; null what it does not have yet
  const char* isa_ = "";
};

}  // namespace coil::runtime
