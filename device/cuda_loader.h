// Finds a library of NVIDIA's and its functions at run time: a table for each library (cuda_blas.cc, cuda_dnn.cc), one loader. And what the
// compiler gives their calls in scratch memory (src/templates/cuda_library.h).
#ifndef COIL_DEVICE_CUDA_LOADER_H_
#define COIL_DEVICE_CUDA_LOADER_H_

#include <stddef.h>
#include <stdint.h>

namespace cd {

constexpr uint64_t kLibraryAlign = 256, kLibraryWorkspaceBytes = uint64_t{16} << 20;

struct CudaSymbol {
  void* place;  // of the function's pointer
  const char* name;
};
struct CudaLibraryTable {
  const char* title;     // in traces
  const char* variable;  // of the environment: names another file; one that does not exist means none
  const char* names[2];  // of files, the newest first; null: no more
  const CudaSymbol* symbols;
  int32_t num_symbols;
  size_t (*const* version)();  // where the pointer to the function that tells it lies
};

// The library that the environment names, else the first of the table's that the process has loaded (PyTorch brings its own), else the
// first that the loader finds. It stays loaded until the process ends. False: there is none with all of the functions.
bool cuda_load_library(const CudaLibraryTable& table);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_LOADER_H_
