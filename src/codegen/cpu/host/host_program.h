// The host program of a CPU package as C++ text: tables that describe the interface, and `run`, which calls the kernels one after
// the other with no allocation of its own. It is compiled once, for the baseline machine, and picks the kernels' instruction set.
#pragma once

#include <string>
#include <vector>

#include "base/host_machine.h"
#include "codegen/cpu/cpu_kernels.h"

namespace coil {

struct HostOptions {
  const HostMachine* machine = &this_machine();
  std::string in_spec, out_spec;  // JSON texts
  std::vector<std::string> isas;  // of the machine's levels, "v3", "v4": in rising order
  uint64_t constants_hash = 0;
  std::string tuned_isa;    // the one that the plan's choices are for; the others follow their own rules
  std::vector<bool> timed;  // for a tuner (see CoilTuning): which kernels it times. Empty: a package's program
  bool watched = false;     // a build that shows what each kernel wrote (see CoilWatch)
  bool libraries = true;    // kernels that are timed may be computed by a library of the machine
};

struct HostText {
  std::string first;                 // "host.cc"
  std::vector<std::string> further;  // of very many calls: "host_1.cc", "host_2.cc" (host_files.h)
};
HostText host_program_text(const KernelPlan& plan, const cpu::CpuProgram& program, const HostOptions& options);

// Device library objects that the plan's templates need: "gemm", "gemm_bytes", "gemm_f64", "conv2d", "conv2d_f64", "attention".
std::vector<std::string> device_objects(const KernelPlan& plan);
std::string device_object(const KernelPlan& plan, const TemplateKernel& t);
std::vector<std::string> all_device_objects();

// Whether the program asks for oneDNN (device/onednn.h).
bool uses_onednn(const KernelPlan& plan, const HostOptions& options);

// Routines of the device library that the plan calls: "fft_c2c".
std::vector<std::string> library_routines(const KernelPlan& plan);

}  // namespace coil
