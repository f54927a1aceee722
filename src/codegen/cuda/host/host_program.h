// The host program of a CUDA package as C++ text: tables that describe the interface and the kernels, and `run`, which enqueues them.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/cuda_kernels.h"
#include "codegen/interface/limits.h"

namespace coil::cuda {

inline constexpr InterfaceTraits kInterface{"COIL_CUDA", true};

// Machine code of some of a program's functions; the bytes are another object's symbol.
struct HostImage {
  int sm = 90;
  int kind = 0;  // CudaImage::kind
  std::string symbol;
  uint64_t bytes = 0;
  int function = -1;  // which one it is of, if another compiler made it; otherwise its functions are found by their names
};

struct HostOptions {
  std::string in_spec, out_spec;  // JSON texts
  uint64_t constants_hash = 0;
  std::vector<HostImage> images;
  std::string architectures;  // "sm_90, sm_80"
  std::vector<bool> timed;    // for a tuner (see CoilTuning): which kernels it times. Empty: a package's program
  bool watched = false;       // a build that shows what each kernel wrote (see CoilWatch)
  bool graphs = true;         // calls may become CUDA graphs (device/cuda_graph.h)
};

std::string host_program_text(const KernelPlan& plan, const CudaProgram& program, const HostOptions& options);

}  // namespace coil::cuda
