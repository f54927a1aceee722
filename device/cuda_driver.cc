// See cuda_driver.h. Uses libc only.
#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

namespace cd {
namespace {

enum : int32_t { kOutOfMemory = 401, kDeviceFailed = 404, kNoDriver = 306, kNoDevice = 307 };

CudaDriver table;
bool ready;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

// The driver's words for a result.
void describe(const CudaDriver& driver, CudaResult result, const char** name, const char** text) {
  *name = *text = nullptr;
  driver.error_name(result, name);
  driver.error_text(result, text);
  if (!*name) *name = "CUDA_ERROR";
  if (!*text) *text = "unknown error";
}

int32_t load(CudaDriver* driver, CoilError* error) {
  const char* wish = getenv("COIL_CUDA_DRIVER");
  const char* path = wish && *wish ? wish : "libcuda.so.1";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return cuda_report(error, kNoDriver,
                       "the CUDA driver (%s) cannot be loaded: %s; install NVIDIA's driver, or run on the CPU with a package that has "
                       "code for it (coil compile --target cpu,cuda:sm_90)",
                       path, reason ? reason : "not found");
  }
  // The library stays: other threads and the code of models refer to it until the process ends.
#define X(member, name, arguments, optional)                                         \
  driver->member = reinterpret_cast<CudaResult(*) arguments>(dlsym(library, #name)); \
  if (!driver->member && !(optional))                                                \
    return cuda_report(error, kNoDriver, "the CUDA driver (%s) lacks %s; install a driver of CUDA 12.0 or later", path, #name);
  COIL_CUDA_FUNCTIONS(X)
#undef X
  return 0;
}

int32_t start(const CudaDriver& driver, CoilError* error) {
  const CudaResult result = driver.init(0);
  if (result == kCudaSuccess) return 0;
  const char* name;
  const char* text;
  describe(driver, result, &name, &text);
  if (result == kCudaNoDevice)
    return cuda_report(error, kNoDevice, "this machine has no CUDA device that the process may use (%s: %s); check nvidia-smi and CUDA_VISIBLE_DEVICES", name,
                       text);
  return cuda_report(error, kNoDriver, "the CUDA driver does not start: %s (%s)%s", text, name,
                     result == kCudaNotInitialised ? "; a process cannot use CUDA after fork(): start it with exec" : "; check nvidia-smi");
}

}  // namespace

int32_t cuda_report(CoilError* error, int32_t code, const char* format, ...) {
  error->code = code;
  __builtin_va_list arguments;
  __builtin_va_start(arguments, format);
  vsnprintf(error->message, sizeof error->message, format, arguments);
  __builtin_va_end(arguments);
  return code;
}

const CudaDriver* cuda_driver(CoilError* error) {
  if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) return &table;
  pthread_mutex_lock(&mutex);
  if (!ready) {
    CudaDriver found = {};
    if (load(&found, error) == 0 && start(found, error) == 0) {
      table = found;
      __atomic_store_n(&ready, true, __ATOMIC_RELEASE);
    }
  }
  const CudaDriver* result = ready ? &table : nullptr;
  pthread_mutex_unlock(&mutex);
  return result;
}

int32_t cuda_fail(const CudaDriver* driver, CudaResult result, CoilError* error, const char* what) {
  const char* name;
  const char* text;
  describe(*driver, result, &name, &text);
  return cuda_report(error, result == kCudaOutOfMemory ? kOutOfMemory : kDeviceFailed, "%s: %s (%s)", what, text, name);
}

int32_t cuda_find_device(const CudaDriver* driver, int32_t ordinal, int32_t* device, CoilError* error) {
  int32_t count = 0;
  if (const CudaResult result = driver->device_count(&count)) return cuda_fail(driver, result, error, "cannot count the CUDA devices");
  if (ordinal < 0 || ordinal >= count)
    return cuda_report(error, kNoDevice, "there is no device cuda:%d; the process sees %d CUDA device%s%s", ordinal, count, count == 1 ? "" : "s",
                       count == 1 ? " (cuda:0)"
                       : count    ? " (cuda:0 and up)"
                                  : "");
  if (const CudaResult result = driver->device(device, ordinal)) return cuda_fail(driver, result, error, "cannot take the CUDA device");
  return 0;
}

}  // namespace cd
