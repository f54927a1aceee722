// CUDA C++ text to machine code of NVIDIA GPUs, through NVRTC, which is loaded when it is first needed: neither a GPU nor the driver nor
// a toolkit's compiler is used.
//
// The text sees the embedded headers under device/cuda ("cuda/base.h") and device/user, those of the request, and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "toolchain/compile.h"

namespace coil::toolchain {

struct CudaRequest {
  std::string name = "kernels.cu";  // shown in diagnostics
  std::string source;
  std::string arch = "sm_90a";       // sm_80, sm_86, sm_89, sm_90a, sm_100...
  bool ptx = false;                  // PTX text instead of a cubin; arch is then compute_80...
  std::vector<VirtualFile> headers;  // that the source includes beside the embedded ones
  std::string user_kernel;           // as CompileRequest's
  std::string user_hint;
  bool lines = false;  // line tables, for profilers and debuggers
};

class Nvrtc {
 public:
  // Finds the library: COIL_NVRTC (a path), the loader's, then CUDA's usual folders. Error: no_nvrtc, with where it was looked for.
  static Result<std::shared_ptr<const Nvrtc>> load();
  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  // Thread-safe. Errors: internal with NVRTC's messages (generated code that does not compile is a bug), unsupported_arch for an
  // architecture that this NVRTC does not know.
  Result<Bytes> compile(const CudaRequest& request) const;
  // All of them on up to `threads` threads, in order; what is known as toolchain::compile_all.
  Result<std::vector<Bytes>> compile_all(std::span<const CudaRequest> requests, int threads, const CompileProgress& progress = {},
                                         const Known& known = {}) const;

  const std::string& version() const { return version_; }  // "13.0"

 private:
  Nvrtc() = default;
  struct Functions;
  void* library_ = nullptr;
  std::unique_ptr<Functions> f_;
  std::string version_;
};

}  // namespace coil::toolchain
