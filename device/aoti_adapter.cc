// The AOTInductor C ABI in terms of coil_model() of the same shared object: what lets stock libtorch load a coil package.
// Compiled once with coil and linked into every package. Uses libc only: no C++ library, no exceptions, no libtorch to link
// against; the few aoti_torch_* functions are looked up at load, in the process and then in an already loaded libtorch_cpu.so.
//
// Ownership as libtorch has it: input handles are ours and every slot is deleted and nulled, also on failure; output handles
// are handed over. One container may be called from several threads.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aoti_adapter.h"

extern "C" __attribute__((visibility("default"))) const CoilModel* coil_model(void);

namespace coil_aoti {

__thread CoilError last_error;

namespace {

struct ConstantMapEntry {
  const char* name;
  Tensor handle;
};

__thread char last_error_text[sizeof(CoilError) + 16];

}  // namespace

int32_t report() {
  snprintf(last_error_text, sizeof last_error_text, "COIL-E%03d: %s", last_error.code, last_error.message);
  return 1;
}

__attribute__((format(printf, 2, 3))) int32_t fail(int32_t code, const char* format, ...) {
  last_error.code = code;
  __builtin_va_list arguments;
  __builtin_va_start(arguments, format);
  vsnprintf(last_error.message, sizeof last_error.message, format, arguments);
  __builtin_va_end(arguments);
  return report();
}

namespace {

int32_t resolve(Shim* shim) {
  void* torch = nullptr;
  auto find = [&](const char* name) -> void* {
    if (void* function = dlsym(RTLD_DEFAULT, name)) return function;
    // Python loads libtorch_cpu.so into a local scope, which RTLD_DEFAULT does not see.
    // libtorch_cuda.so depends on it: a search there finds the functions of both.
    if (!torch) torch = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    if (!torch) torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    return torch ? dlsym(torch, name) : nullptr;
  };
#define X(name, arguments, optional)                                \
  shim->name = reinterpret_cast<int32_t(*) arguments>(find(#name)); \
  if (!shim->name && !(optional)) return fail(305, "found no provider of %s; this entry point needs libtorch (or open the package with coil's runtime)", #name);
  SHIM_FUNCTIONS(X)
#undef X
  // at::hasCallbacks(): not of the C shim, but exported by all versions. Without it a range would cost its time on every call.
  shim->is_watched = reinterpret_cast<bool (*)()>(find("_ZN2at12hasCallbacksEv"));
  if (!shim->aoti_record_function_start || !shim->aoti_record_function_end) shim->is_watched = nullptr;
  return 0;
}

// ---- Constants and state ----------------------------------------------------------------------------------------------------

// The path of m.wrapper.constants beside this shared object, m.wrapper.so.
int32_t constants_path(char* path, size_t size) {  // leaves room for another name of the file
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&constants_path), &info) || !info.dli_fname) return fail(304, "the loader does not know this library's path");
  const size_t length = strlen(info.dli_fname);
  if (length + sizeof "/coil_aarch64.constants" > size) return fail(304, "the path of the package's library is too long");
  memcpy(path, info.dli_fname, length + 1);
  char* end = path + length;
  if (length > 3 && strcmp(end - 3, ".so") == 0) end -= 3;
  memcpy(end, ".constants", sizeof ".constants");
  return 0;
}

// Programs of one package have one blob, which the loader unpacks beside the code: "coil_cpu.constants" in place of "m.wrapper.constants".
void shared_constants_path(char* path, int32_t device_type) {
#if defined(__aarch64__)
  const char* name = device_type == COIL_CUDA ? "/coil_cuda.constants" : "/coil_aarch64.constants";
#else
  const char* name = device_type == COIL_CUDA ? "/coil_cuda.constants" : "/coil_cpu.constants";
#endif
  char* slash = strrchr(path, '/');
  if (slash) memcpy(slash, name, strlen(name) + 1);
}

int32_t map_constants(Container* c) {
  const CoilModel* model = c->model;
  if (!model->constants_bytes) return 0;
  char path[4096];
  if (constants_path(path, sizeof path)) return 1;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  const bool shared = file < 0;
  if (shared) {
    shared_constants_path(path, model->device_type);
    file = open(path, O_RDONLY | O_CLOEXEC);
  }
  if (file < 0) return fail(301, "cannot open the constants of the model, %s; the package lacks them or was unpacked without them", path);
  struct stat status;
  const bool known = fstat(file, &status) == 0;
  const uint64_t bytes = known ? static_cast<uint64_t>(status.st_size) : 0;
  const bool trailer = bytes == model->constants_bytes + sizeof(CoilConstantsTrailer);
  if (shared ? bytes < model->constants_bytes : !trailer && bytes != model->constants_bytes) {
    close(file);
    return fail(301, "%s has %llu bytes, the code expects %llu; compile the package again", path, static_cast<unsigned long long>(bytes),
                static_cast<unsigned long long>(model->constants_bytes));
  }
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (data == MAP_FAILED) return fail(401, "cannot map %s (%llu bytes)", path, static_cast<unsigned long long>(bytes));
  c->constants = static_cast<const uint8_t*>(data);
  c->mapped_bytes = bytes;
  if ((shared || trailer) && !cd::has_trailer(*model, c->constants, bytes))
    return fail(301, "%s belongs to another compile of the model; compile the package again", path);
  return 0;
}

int32_t make_state(Container* c) {
  const CoilModel* model = c->model;
  if (!model->state_bytes) return 0;
  if (model->state_offset > model->constants_bytes) return fail(301, "the initial state lies outside of the constants");
  void* state = nullptr;
  if (posix_memalign(&state, kAlignment, model->state_bytes)) return fail(401, "no memory for the model's state");
  const uint64_t stored = cd::stored_state(*model);
  memcpy(state, c->constants + model->state_offset, stored);
  memset(static_cast<uint8_t*>(state) + stored, 0, model->state_bytes - stored);
  c->state = static_cast<uint8_t*>(state);
  return 0;
}

void unmap_constants(Container* c) {
  if (c->constants) munmap(const_cast<uint8_t*>(c->constants), c->mapped_bytes);
  c->constants = nullptr;
}

void destroy(Container* c) {
  if (c->cuda) cuda_close(c);
  free_arenas(c);
  unmap_constants(c);
  free(c->state);
  pthread_mutex_destroy(&c->state_mutex);
  pthread_mutex_destroy(&c->arena_mutex);
  free(c);
}

int32_t check_device(const CoilModel* model, const char* device) {
  const bool cuda = model->device_type == COIL_CUDA;
  if (device && strncmp(device, cuda ? "cuda" : "cpu", cuda ? 4 : 3) != 0)
    return fail(303, "the package was compiled for %s, not for '%s'", cuda ? "CUDA" : "the CPU", device);
  return 0;
}

int32_t prepare(Container* c, const char* device) {
  const CoilModel* model = c->model;
  if (model->abi_version != COIL_ABI_VERSION || model->struct_bytes != sizeof(CoilModel))
    return fail(302, "the package's code and its adapter differ in version");
  const char* isa = nullptr;
  if (model->select(&isa, &last_error)) return report();
  if (check_device(model, device) || resolve(&c->shim) || map_constants(c)) return 1;
  if (model->device_type == COIL_CPU) return make_state(c);
  if (!cuda_open) return fail(301, "the package's code is for CUDA, but lacks the part that loads it");
  const int32_t failed = cuda_open(c, device ? device : "cuda");
  unmap_constants(c);  // the device has them
  return failed;
}

constexpr char kFolded[] = "the constants were folded and packed at compile time and cannot be replaced; compile the changed program again";

}  // namespace
}  // namespace coil_aoti

using coil_aoti::ConstantMapEntry;
using coil_aoti::Container;
using coil_aoti::fail;
using coil_aoti::kFolded;
using coil_aoti::last_error_text;
using coil_aoti::Tensor;

// ---- The C ABI --------------------------------------------------------------------------------------------------------------

#define API extern "C" __attribute__((visibility("default"))) int32_t

API AOTInductorModelContainerCreateWithDevice(Container** out, size_t num_models, const char* device, const char*) {
  if (!num_models) return fail(402, "num_runners must be at least 1");
  Container* c = static_cast<Container*>(calloc(1, sizeof(Container)));
  if (!c) return fail(401, "no memory for the model");
  pthread_mutex_init(&c->state_mutex, nullptr);
  pthread_mutex_init(&c->arena_mutex, nullptr);
  c->model = coil_model();
  if (coil_aoti::prepare(c, device)) {
    // libtorch 2.15 asks for the text only when a run failed, so a failed load says why here. It is the host's ABI: stock
    // models print their load errors to stderr, too.
    fprintf(stderr, "Error: %s\n", last_error_text);
    coil_aoti::destroy(c);
    return 1;
  }
  *out = c;
  return 0;
}
API AOTInductorModelContainerCreate(Container** out, size_t num_models, bool is_cpu, const char* folder) {
  return AOTInductorModelContainerCreateWithDevice(out, num_models, is_cpu ? "cpu" : "cuda", folder);
}
API AOTInductorModelContainerCreateWithExternalConstants(Container** out, size_t num_models, const char* device, const char* folder, const ConstantMapEntry*,
                                                         size_t count) {
  if (count) return fail(105, kFolded);
  return AOTInductorModelContainerCreateWithDevice(out, num_models, device, folder);
}
API AOTInductorModelContainerDelete(Container* c) {
  if (c) coil_aoti::destroy(c);
  return 0;
}

API AOTInductorModelContainerRun(Container* c, Tensor* inputs, size_t num_inputs, Tensor* outputs, size_t num_outputs, void* stream, void*) {
  const int32_t failed = coil_aoti::run(c, inputs, num_inputs, outputs, num_outputs, stream);
  for (size_t i = 0; i < num_inputs; i++) {
    if (inputs[i]) c->shim.aoti_torch_delete_tensor_object(inputs[i]);
    inputs[i] = nullptr;
  }
  return failed;
}
API AOTInductorModelContainerRunSingleThreaded(Container* c, Tensor* inputs, size_t num_inputs, Tensor* outputs, size_t num_outputs, void* stream,
                                               void* proxy) {
  return AOTInductorModelContainerRun(c, inputs, num_inputs, outputs, num_outputs, stream, proxy);
}
API AOTInductorGetLastError(const char** text) {
  *text = last_error_text;
  return 0;
}

API AOTInductorModelContainerGetNumInputs(Container* c, size_t* count) {
  *count = static_cast<size_t>(c->model->num_inputs);
  return 0;
}
API AOTInductorModelContainerGetNumOutputs(Container* c, size_t* count) {
  *count = static_cast<size_t>(coil_aoti::num_results(c->model));
  return 0;
}
API AOTInductorModelContainerGetInputName(Container* c, size_t i, const char** name) {
  if (i >= static_cast<size_t>(c->model->num_inputs)) return fail(208, "the model has no input %zu", i);
  *name = c->model->inputs[i].name;
  return 0;
}
API AOTInductorModelContainerGetOutputName(Container* c, size_t i, const char** name) {
  if (i >= static_cast<size_t>(coil_aoti::num_results(c->model))) return fail(208, "the model has no output %zu", i);
  *name = "None";
  for (int32_t o = 0; o < c->model->num_outputs; o++) {
    if (coil_aoti::place_of(o) == static_cast<int32_t>(i)) *name = c->model->outputs[o].name;
  }
  return 0;
}
API AOTInductorModelContainerGetCallSpec(Container* c, const char** in_spec, const char** out_spec) {
  *in_spec = c->model->in_spec;
  *out_spec = c->model->out_spec;
  return 0;
}

// A coil model has no replaceable constants: none are listed, and every way to change them is an error.
API AOTInductorModelContainerGetNumConstants(Container*, size_t* count) {
  *count = 0;
  return 0;
}
API AOTInductorModelContainerGetConstantName(Container*, size_t, const char**) { return fail(105, kFolded); }
API AOTInductorModelContainerGetConstantOriginalFQN(Container*, size_t, const char**) { return fail(105, kFolded); }
API AOTInductorModelContainerGetConstantDtype(Container*, size_t, int32_t*) { return fail(105, kFolded); }
API AOTInductorModelContainerGetConstantType(Container*, size_t, int32_t*) { return fail(105, kFolded); }
API AOTInductorModelContainerGetConstantFromFolded(Container*, size_t, bool*) { return fail(105, kFolded); }
API AOTInductorModelContainerGetConstantDataSize(Container*, size_t, size_t*) { return fail(105, kFolded); }
API AOTInductorModelContainerGetConstantsBlobSize(Container*, uint64_t* bytes) {
  *bytes = 0;
  return 0;
}
API AOTInductorModelContainerDidCallLoadConstants(Container*, bool* called) {
  *called = true;
  return 0;
}
API AOTInductorModelContainerExtractConstantsMap(Container*, void*, bool) { return 0; }
API AOTInductorModelContainerExtractConstantsMapEntries(Container*, const ConstantMapEntry** entries, size_t* count, bool) {
  *entries = nullptr;
  *count = 0;
  return 0;
}
API AOTInductorModelContainerUpdateConstantBuffer(Container*, void*, bool, bool) { return fail(105, kFolded); }
API AOTInductorModelContainerUpdateConstantBufferFromCpu(Container*, void*, bool, bool) { return fail(105, kFolded); }
API AOTInductorModelContainerUpdateUserManagedConstantBuffer(Container*, void*, bool, bool) { return fail(105, kFolded); }
API AOTInductorModelContainerUpdateInactiveConstantBuffer(Container*, void*) { return fail(105, kFolded); }
API AOTInductorModelUpdateConstantsFromBlob(Container*, const uint8_t*) { return fail(105, kFolded); }
API AOTInductorModelContainerSwapConstantBuffer(Container*) { return fail(105, kFolded); }
API AOTInductorModelContainerFreeInactiveConstantBuffer(Container*) { return 0; }
API AOTInductorModelContainerRunConstantFolding(Container*, bool, void*, void*) { return 0; }  // done at compile time

API AOTInductorModelContainerSetUseStreamAffinity(Container*, bool) { return 0; }  // any call may use any stream
API AOTInductorModelContainerGetStreamAffinityModelIndexForTesting(Container*, void*, int64_t* index) {
  *index = -1;
  return 0;
}
