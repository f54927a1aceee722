#include "base/env.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

namespace coil {
namespace {

constexpr EnvVar kEnvVars[] = {
    {"ATEN_CPU_CAPABILITY", "the machine's", "PyTorch's variable (default, avx2, avx512): how the 4-bit weights lie that it packed for its CPU kernels."},
    {"COIL_CACHE", "~/.cache/coil/results",
     "Where compiled kernels and the tuner's choices are kept: a folder, redis://[user:password@]host:port, rediss:// for TLS, or off; behind shared: where others may write and are trusted."},
    {"COIL_CACHE_KEY", "unset", "A key that all who use a cache have, or file:PATH of one: only entries that were made with it are used."},
    {"COIL_CODE", "unset", "Folder in which the runtime keeps the code of packages that it loads, as files that debuggers and profilers open."},
    {"COIL_COLOR", "auto", "Colour in the terminal: auto, always or never."},
    {"COIL_CUBLASLT", "libcublasLt.so.13 or .12", "The cuBLASLt that CUDA packages may use; a missing file: none."},
    {"COIL_CUDA_DRIVER", "libcuda.so.1", "The CUDA driver library that the runtime and CUDA packages load."},
    {"COIL_CUDA_EARLY", "1",
     "0 starts each CUDA kernel when the one before it is done; otherwise, from sm_90, its blocks come to the device while that one ends."},
    {"COIL_CUDA_GRAPHS", "1", "Repeated calls as CUDA graphs: 0 never, 1 where that measures faster, 2 wherever possible."},
    {"COIL_CUDA_SYNC", "0", "1 waits for each CUDA kernel, so that an error names the one that failed. Slow."},
    {"COIL_CUDA_TRACE", "0", "1 prints a line for each shape that cuBLASLt or cuDNN is asked to compute, and for each CUDA graph."},
    {"COIL_CUDNN", "libcudnn.so.9", "The cuDNN that CUDA packages may use; a missing file: none."},
    {"COIL_CUPTI", "libcupti.so.13 or .12",
     "NVIDIA's tracing library, for the times of kernels in profiles; a missing file: none, the times are those between events."},
    {"COIL_DEBUG", "0",
     "1 stages and times, 2 kernels, 3 decisions with reasons, 4 generated code, 5 IR between passes; 5@NAME keeps what belongs to "
     "the pass or kernel NAME."},
    {"COIL_DEBUG_INFO", "unset",
     "Folder for the generated texts of what is compiled; its code has line tables that lead debuggers and profilers there (as --debug-info)."},
    {"COIL_DUMP", "unset", "Folder that receives numbered files of every stage of a compilation."},
    {"COIL_GOLDEN_UPDATE", "unset", "Tests write their golden files instead of comparing."},
    {"COIL_ISA", "best of the machine", "Instruction set that the runtime chooses from a package: v3 or v4."},
    {"COIL_NVRTC", "libnvrtc.so.13 or .12", "NVIDIA's run-time compiler, which compiling for CUDA loads."},
    {"COIL_NVTX", "calls",
     "What has a range in nsys, ncu and other tools of NVTX: calls, kernels (which are then enqueued one by one, not as a graph), or 0 for nothing."},
    {"COIL_ONEDNN", "libdnnl.so.3 or .2", "The oneDNN that the CPU's tuner may try, and packages whose tuning chose it; a missing file: none."},
    {"COIL_ONEDNN_TRACE", "0", "1 prints what oneDNN is asked to compute."},
    {"COIL_OPENMP", "auto", "Whether loops run on the threads of PyTorch's OpenMP team: auto (while these spin beside the runtime's own), always, never."},
    {"COIL_PERF", "unset", "Folder that receives jit-PID.dump and perf-PID.map, which tell `perf` of the kernels of the packages that the process loads."},
    {"COIL_PROFILE", "unset", "File that receives a trace of this process's first calls, kernel by kernel, for ui.perfetto.dev."},
    {"COIL_PROFILE_ALL", "0", "1: COIL_PROFILE leaves out no call; otherwise some of many very short ones, so that all together take no more than 2 % longer."},
    {"COIL_PROFILE_CALLS", "100", "How many calls COIL_PROFILE traces."},
    {"COIL_PROFILE_COUNTERS", "0", "1 adds the processor's counters to COIL_PROFILE, where the system allows that."},
    {"COIL_PROFILE_SIGNAL", "unset", "USR1, USR2 or another signal: COIL_PROFILE waits for it, and traces once more each time that it comes."},
    {"COIL_PROGRESS", "auto", "The live progress line on stderr: auto (terminals only), always or never."},
    {"COIL_SKIP", "unset", "Comma-separated passes to leave out, to bisect a wrong result."},
    {"COIL_THREADS", "usable CPUs", "Threads of a call, and of a compilation; affinity and cgroup limits are the default."},
    {"COIL_TORCH", "unset",
     "Python interpreter with PyTorch, for `coil diff --torch`, the tools that compare with it, `coil compile --triton` and `coil import-gguf`."},
    {"NVTX_INJECTION64_PATH", "unset", "NVTX's variable: the library of a tool that wants ranges; nsys and ncu set it."},
};

const EnvVar& row(std::string_view name) {
  for (const EnvVar& v : kEnvVars) {
    if (v.name == name) return v;
  }
  check_failed(__FILE__, __LINE__, "env variable is in the table", name);
}

}  // namespace

std::span<const EnvVar> env_vars() { return kEnvVars; }

std::optional<std::string> env(std::string_view name) {
  const char* value = std::getenv(std::string(row(name).name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<int64_t> env_int(std::string_view name, int64_t low, int64_t high, int64_t fallback) {
  const std::optional<std::string> text = env(name);
  if (!text.has_value()) return fallback;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    return Error{ErrorCode::bad_option, fmt::format("{}='{}' is not an integer from {} to {}", name, *text, low, high), "",
                 fmt::format("unset {} or correct it", name)};
  }
  return value;
}

bool env_flag(std::string_view name) {
  const std::optional<std::string> text = env(name);
  return text.has_value() && *text != "0" && *text != "off" && *text != "no" && *text != "false";
}

}  // namespace coil
