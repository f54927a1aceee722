// Which oneDNN a machine has: for the code of packages, and for the tuner that decides whether to try it.
#ifndef COIL_DEVICE_ONEDNN_OPEN_H_
#define COIL_DEVICE_ONEDNN_OPEN_H_

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

namespace cd {

// dnnl_version_t.
struct OneDnnVersion {
  int32_t major, minor, patch;
  const char* hash;
  uint32_t cpu_runtime, gpu_runtime;
};
enum : uint32_t { kOneDnnSequential = 1, kOneDnnOpenMp = 2 };

// The library of the machine, of version 2 or 3, whose threads can be told what to do; null: none. It stays loaded.
inline void* open_onednn(const OneDnnVersion** version) {
  const char* const names[] = {"libdnnl.so.3", "libdnnl.so.2"};
  const char* wish = getenv("COIL_ONEDNN");
  const bool wished = wish && *wish;
  for (int i = 0; i < (wished ? 1 : 2); i++) {
    void* library = dlopen(wished ? wish : names[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    const auto ask = reinterpret_cast<const OneDnnVersion* (*)()>(dlsym(library, "dnnl_version"));
    const OneDnnVersion* v = ask ? ask() : nullptr;
    const bool steers = v && (v->cpu_runtime == kOneDnnSequential || (v->cpu_runtime == kOneDnnOpenMp && dlsym(library, "omp_set_num_threads")));
    if (steers && (v->major == 2 || v->major == 3)) {
      *version = v;
      return library;
    }
    dlclose(library);
  }
  return nullptr;
}

}  // namespace cd

#endif  // COIL_DEVICE_ONEDNN_OPEN_H_
