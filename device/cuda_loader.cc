// See cuda_loader.h.
#include "cuda_loader.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_graph.h"

namespace cd {
namespace {

void* open_library(const CudaLibraryTable& table) {
  const char* wish = getenv(table.variable);
  if (wish && *wish) return dlopen(wish, RTLD_NOW | RTLD_LOCAL);
  const int modes[] = {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL};
  for (const int mode : modes) {
    for (const char* name : table.names) {
      if (void* library = name ? dlopen(name, mode) : nullptr) return library;
    }
  }
  return nullptr;
}

}  // namespace

bool cuda_load_library(const CudaLibraryTable& table) {
  void* library = open_library(table);
  if (!library) return false;
  for (int32_t i = 0; i < table.num_symbols; i++) {
    void* found = dlsym(library, table.symbols[i].name);
    if (!found) return false;
    memcpy(table.symbols[i].place, &found, sizeof found);
  }
  cuda_trace("%s %zu", table.title, (*table.version)());
  return true;
}

}  // namespace cd
