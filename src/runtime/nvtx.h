// Ranges with names in NVIDIA's tools (nsys, ncu) and in whatever else reads NVTX: one for each call, and, with COIL_NVTX=kernels, one for each
// kernel, with the module and line that it comes from.
//
// Such a tool sets NVTX_INJECTION64_PATH to a library of its own before the process begins. That library is asked for its functions as NVTX 3's
// headers do it, whose protocol this is (nvtxDetail/nvtxTypes.h): there is no library of NVTX itself to link or to load (libnvToolsExt.so, of NVTX 2, is
// gone from CUDA 13). Without the variable nothing is loaded, and nothing costs anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/kernel_table.h"

namespace coil::runtime {

class Nvtx {
 public:
  // Loads the tool's library when it is first asked. Null: no tool is there, or COIL_NVTX=0. Thread-safe.
  static const Nvtx* get();
  // COIL_NVTX is one of its words. COIL-E402.
  static Status check_environment();

  // Ranges of this thread, one inside the other, in the domain "coil".
  void push(const char* name) const;
  void pop() const;
  bool of_kernels() const { return of_kernels_; }  // calls are to be made kernel by kernel, each in a range

 private:
  Nvtx() = default;
  bool attach(const std::string& library);

  int (*push_)(void* domain, const void* attributes) = nullptr;
  int (*pop_)(void* domain) = nullptr;
  void* domain_ = nullptr;
  bool of_kernels_ = false;
};

// One range, as long as it lives.
class NvtxRange {
 public:
  NvtxRange(const Nvtx* nvtx, const char* name) : nvtx_(nvtx) {
    if (nvtx_) nvtx_->push(name);
  }
  ~NvtxRange() {
    if (nvtx_) nvtx_->pop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  const Nvtx* nvtx_;
};

// "add_layer_norm: encoder.layer.0 (model.py:12 in forward)", of each kernel.
std::vector<std::string> range_names(const KernelTable& table);

}  // namespace coil::runtime
