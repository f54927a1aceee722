// What both hosts of a CUDA model do around a call: coil's runtime (src/runtime/cuda_session.cc) and the AOTInductor adapter (aoti_cuda.cc). Each has
// memory, streams and the order of its calls of its own: libtorch's calls share one model, the runtime's a context.
#ifndef COIL_DEVICE_CUDA_CALL_H_
#define COIL_DEVICE_CUDA_CALL_H_

#include "cuda_driver.h"

namespace cd {

// --- the word in pinned memory through which kernels report what they find at fault

struct CudaFlag {
  int32_t* host = nullptr;    // as the CPU sees it
  int32_t* device = nullptr;  // as kernels see it
};

// In the current context.
inline CudaResult cuda_make_flag(const CudaDriver& driver, CudaFlag* flag) {
  void* host = nullptr;
  CudaAddress device = 0;
  const CudaResult made = driver.allocate_host(&host, sizeof(int32_t), kCudaHostPortable | kCudaHostMapped);
  if (made != kCudaSuccess) return made;
  flag->host = static_cast<int32_t*>(host);
  *flag->host = 0;
  const CudaResult found = driver.host_address(&device, host, 0);
  flag->device = reinterpret_cast<int32_t*>(device);
  return found;
}

inline void cuda_free_flag(const CudaDriver& driver, CudaFlag* flag) {
  if (flag->host) driver.free_host(flag->host);
  *flag = {};
}

inline bool cuda_is_raised(const CudaFlag& flag) { return __builtin_expect(__atomic_load_n(flag.host, __ATOMIC_ACQUIRE) != 0, false); }

// Lowers the flag and words what it said, after `when`; 0: it was not raised (any more).
[[gnu::noinline, gnu::cold]] inline int32_t cuda_take_flag(const CoilModel& model, const CudaFlag& flag, const char* when, CoilError* error) {
  constexpr int32_t kInputValue = 210;
  const int32_t said = __atomic_exchange_n(flag.host, 0, __ATOMIC_ACQ_REL);
  if (!said) return 0;
  CoilError words = {};
  if (model.flag_error) model.flag_error(said, &words);
  if (words.code) return cuda_report(error, words.code, "%s%s", when, words.message);
  return cuda_report(error, kInputValue, "%sa kernel reported fault %d in the data", when, said);
}

// --- streams

// A captured call cannot wait for work outside of its graph, and nothing outside for it: whoever replays the graph orders them.
inline bool cuda_is_captured(const CudaDriver& driver, void* stream) {
  int32_t status = 0;
  driver.is_capturing(stream, &status);
  return status != 0;
}

// --- places

// Whether a tensor that is on a CUDA device is on the model's. `kind`: "input". COIL-E206.
inline int32_t cuda_check_ordinal(const char* kind, const char* name, int32_t i, int32_t ordinal, int32_t own, CoilError* error) {
  if (__builtin_expect(ordinal == own, true)) return 0;
  return cuda_report(error, 206, "%s '%s' (%d) is on cuda:%d, the model is on cuda:%d; move it there, or open the model on its device", kind, name, i, ordinal,
                     own);
}

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_CALL_H_
