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
extern "C" __attribute__((weak, visibility("hidden"))) const CoilResults COIL_RESULTS_SYMBOL;
// Of programs that count from the beginning of an input's storage: the numbers of such inputs, then -1.
extern "C" __attribute__((weak, visibility("hidden"))) const int32_t coil_whole_inputs[];
extern "C" __attribute__((weak, visibility("hidden"))) const char COIL_ARENA_FORMULA_SYMBOL[];

namespace coil_aoti {

__thread CoilError last_error;

struct Arena {
  Arena* next;
  uint8_t* data;
  int64_t bytes;
};

namespace {

struct ConstantMapEntry {
  const char* name;
  Tensor handle;
};

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugeFrom = int64_t{4} << 20;  // from here on, huge pages save page faults
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 47;  // no machine has more

__thread char last_error_text[sizeof(CoilError) + 16];

const CoilResults* results() {
  const CoilResults* r = &COIL_RESULTS_SYMBOL;
  __asm__("" : "+r"(r));  // a compiler may not conclude that the address of an object is never null
  return r;
}
const char* arena_formula() {
  const char* text = COIL_ARENA_FORMULA_SYMBOL;
  __asm__("" : "+r"(text));
  return text;
}

// libtorch's results, and where output i is among them.
int32_t num_results(const CoilModel* model) { return results() ? results()->num_results : model->num_outputs; }
int32_t place_of(int32_t i) { return results() ? results()->places[i] : i; }

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
#define X(name, arguments, optional)                                                                                       \
  shim->name = reinterpret_cast<int32_t(*) arguments>(find(#name));                                                        \
  if (!shim->name && !(optional))                                                                                          \
    return fail(305, "found no provider of %s; this entry point needs libtorch (or open the package with coil's runtime)", \
                #name);
  SHIM_FUNCTIONS(X)
#undef X
  return 0;
}

// ---- Constants and state ----------------------------------------------------------------------------------------------------

// The path of m.wrapper.constants beside this shared object, m.wrapper.so.
int32_t constants_path(char* path, size_t size) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&constants_path), &info) || !info.dli_fname)
    return fail(304, "the loader does not know this library's path");
  const size_t length = strlen(info.dli_fname);
  if (length + sizeof ".constants" > size) return fail(304, "the path of the package's library is too long");
  memcpy(path, info.dli_fname, length + 1);
  char* end = path + length;
  if (length > 3 && strcmp(end - 3, ".so") == 0) end -= 3;
  memcpy(end, ".constants", sizeof ".constants");
  return 0;
}

int32_t map_constants(Container* c) {
  const CoilModel* model = c->model;
  if (!model->constants_bytes) return 0;
  char path[4096];
  if (constants_path(path, sizeof path)) return 1;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return fail(301, "cannot open the constants of the model, %s; the package lacks them or was unpacked without them", path);
  struct stat status;
  const bool known = fstat(file, &status) == 0;
  const uint64_t bytes = known ? static_cast<uint64_t>(status.st_size) : 0;
  const bool trailer = bytes == model->constants_bytes + sizeof(CoilConstantsTrailer);
  if (!trailer && bytes != model->constants_bytes) {
    close(file);
    return fail(301, "%s has %llu bytes, the code expects %llu; compile the package again", path,
                static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(model->constants_bytes));
  }
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (data == MAP_FAILED) return fail(401, "cannot map %s (%llu bytes)", path, static_cast<unsigned long long>(bytes));
  c->constants = static_cast<const uint8_t*>(data);
  c->mapped_bytes = bytes;
  if (trailer) {
    CoilConstantsTrailer t;
    memcpy(&t, c->constants + model->constants_bytes, sizeof t);
    if (memcmp(t.magic, COIL_CONSTANTS_MAGIC, sizeof t.magic) != 0 || t.hash != model->constants_hash)
      return fail(301, "%s belongs to another compile of the model; compile the package again", path);
  }
  return 0;
}

int32_t make_state(Container* c) {
  const CoilModel* model = c->model;
  if (!model->state_bytes) return 0;
  if (model->state_offset > model->constants_bytes || model->state_bytes > model->constants_bytes - model->state_offset)
    return fail(301, "the initial state lies outside of the constants");
  void* state = nullptr;
  if (posix_memalign(&state, kAlignment, model->state_bytes)) return fail(401, "no memory for the model's state");
  memcpy(state, c->constants + model->state_offset, model->state_bytes);
  c->state = static_cast<uint8_t*>(state);
  return 0;
}

// ---- Scratch memory ---------------------------------------------------------------------------------------------------------

// Takes a kept arena, or makes one, of at least `bytes`. Null when there is no memory.
Arena* take_arena(Container* c, int64_t bytes) {
  pthread_mutex_lock(&c->arena_mutex);
  Arena* arena = c->free_arenas;
  if (arena) c->free_arenas = arena->next;
  pthread_mutex_unlock(&c->arena_mutex);
  if (!arena) arena = static_cast<Arena*>(calloc(1, sizeof(Arena)));
  if (!arena || arena->bytes >= bytes) return arena;
  free(arena->data);
  const bool huge = bytes >= kHugeFrom;
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = nullptr;
  if (posix_memalign(&data, static_cast<size_t>(huge ? kHugePage : kAlignment), static_cast<size_t>(rounded))) {
    free(arena);
    return nullptr;
  }
  if (huge) madvise(data, static_cast<size_t>(rounded / kHugePage * kHugePage), MADV_HUGEPAGE);
  arena->data = static_cast<uint8_t*>(data);
  arena->bytes = rounded;
  return arena;
}

void give_arena(Container* c, Arena* arena) {
  pthread_mutex_lock(&c->arena_mutex);
  arena->next = c->free_arenas;
  c->free_arenas = arena;
  pthread_mutex_unlock(&c->arena_mutex);
}

// ---- Threads ----------------------------------------------------------------------------------------------------------------

struct Loop {
  CoilChunkFn body;
  void* context;
  int64_t count, grain;
  int64_t most, shares;  // a chunk is at most `most` items, or a share of what is left, but at least the grain
  int64_t next;
};

// One participant; libtorch numbers them [begin, end). Chunks are handed out dynamically: a slow thread holds nobody up.
void take_chunks(int64_t begin, int64_t end, void* context) {
  Loop* loop = static_cast<Loop*>(context);
  for (int64_t worker = begin; worker < end; worker++) {
    for (int64_t at = __atomic_load_n(&loop->next, __ATOMIC_RELAXED); at < loop->count;) {
      // Smaller ones towards the end, so that the workers finish together.
      const int64_t left = loop->count - at, share = left / loop->shares < loop->most ? left / loop->shares : loop->most;
      const int64_t chunk = share > loop->grain ? share : loop->grain, stop = at + (chunk < left ? chunk : left);
      if (!__atomic_compare_exchange_n(&loop->next, &at, stop, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
      loop->body(loop->context, at, stop, static_cast<int32_t>(worker));
      at = __atomic_load_n(&loop->next, __ATOMIC_RELAXED);
    }
  }
}

struct Team {
  const Shim* shim;
  int32_t num_workers;
};

void parallel_for(void* pool, int64_t count, int64_t grain, CoilChunkFn body, void* context) {
  const Team* team = static_cast<const Team*>(pool);
  if (count <= 0) return;
  if (grain < 1) grain = 1;
  int64_t workers = (count + grain - 1) / grain;
  if (workers > team->num_workers) workers = team->num_workers;
  if (workers <= 1) {
    body(context, 0, count, 0);
    return;
  }
  Loop loop = {body, context, count, grain, (count + workers * 4 - 1) / (workers * 4), workers * 2, 0};
  // A failure can only precede the first chunk (our bodies do not fail); what is left is done here.
  team->shim->torch_parallel_for(0, workers, 1, take_chunks, &loop);
  take_chunks(0, 1, &loop);
}

CoilHost make_host(const Shim& shim, Team* team) {
  uint32_t threads = 1;
  if (!shim.torch_parallel_for || !shim.torch_get_num_threads || shim.torch_get_num_threads(&threads) || threads < 1)
    threads = 1;
  *team = {&shim, static_cast<int32_t>(threads)};
  return {team->num_workers, team, parallel_for};
}

// ---- A call -----------------------------------------------------------------------------------------------------------------

int32_t view_input(const Shim& shim, Tensor handle, size_t i, CoilTensorView* view) {
  if (!handle) return fail(207, "input %zu is None", i);
  int64_t rank = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;
  int32_t layout = 0;
  if (shim.aoti_torch_get_layout(handle, &layout) || layout != 0)
    return fail(205, "input %zu is not a strided tensor (layout %d); pass a dense one", i, layout);
  if (shim.aoti_torch_get_dim(handle, &rank) || shim.aoti_torch_get_sizes(handle, &sizes) ||
      shim.aoti_torch_get_strides(handle, &strides) || shim.aoti_torch_get_dtype(handle, &view->dtype) ||
      shim.aoti_torch_get_device_type(handle, &view->device_type) ||
      shim.aoti_torch_get_device_index(handle, &view->device_index) || shim.aoti_torch_get_data_ptr(handle, &view->data))
    return fail(207, "libtorch cannot describe input %zu", i);
  view->ndim = static_cast<int32_t>(rank);
  view->sizes = sizes;
  view->strides = strides;
  return 0;
}

}  // namespace

namespace {

// Inputs from whose storage the program counts have to begin where it does.
int32_t check_storage(const Container* c, Tensor* inputs, size_t num_inputs) {
  const int32_t* whole = coil_whole_inputs;
  __asm__("" : "+r"(whole));  // as in results()
  for (const int32_t* i = whole; i && *i >= 0; i++) {
    int64_t offset = 0;
    if (static_cast<size_t>(*i) >= num_inputs) break;
    if (!c->shim.aoti_torch_get_storage_offset || c->shim.aoti_torch_get_storage_offset(inputs[*i], &offset)) return fail(207, "libtorch cannot describe input %d", *i);
    if (offset)
      return fail(205, "input '%s' begins at element %lld of its storage, but the program counts from the storage's beginning (as_strided with an offset): pass a tensor that begins there",
                  c->model->inputs[*i].name, static_cast<long long>(offset));
  }
  return 0;
}

int32_t make_output(const Container* c, int32_t i, const int64_t* symbols, Tensor* outputs, void** data) {
  const CoilModel* model = c->model;
  int64_t sizes[COIL_MAX_RANK];
  int64_t strides[COIL_MAX_RANK];
  model->output_shape(symbols, i, sizes, strides);
  const CoilTensorDesc& output = model->outputs[i];
  Tensor* const slot = &outputs[place_of(i)];
  if (!c->shim.aoti_torch_empty_strided(output.ndim, sizes, strides, output.dtype, model->device_type, c->device_index, slot) &&
      !c->shim.aoti_torch_get_data_ptr(*slot, data))
    return 0;
  char list[256] = "";
  for (int32_t d = 0, at = 0; d < output.ndim && at < 200; d++)
    at += snprintf(list + at, sizeof list - static_cast<size_t>(at), d ? ", %lld" : "%lld", static_cast<long long>(sizes[d]));
  return fail(401, "libtorch cannot allocate output '%s' of sizes [%s]", output.name, list);
}

}  // namespace

int32_t make_outputs(const Container* c, const int64_t* symbols, Tensor* outputs, void** data) {
  const CoilModel* model = c->model;
  for (int32_t i = 0; i < model->num_outputs; i++) {
    const bool late = model->late_outputs && model->late_outputs[i];  // its size is not known yet
    if (!late && make_output(c, i, symbols, outputs, &data[i])) return 1;
  }
  return 0;
}

namespace {

// What a call allocates once data says how much: outputs and scratch memory.
struct Late {
  const Container* container;
  Tensor* outputs;
  void** blocks;  // each begins with the address of the one before
};

int32_t allocate(void* owner, int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* error) {
  Late* late = static_cast<Late*>(owner);
  if (output >= 0) {
    if (!make_output(late->container, output, symbols, late->outputs, data)) return 0;
  } else {
    constexpr int64_t kHead = 64;
    void* block = nullptr;
    if (bytes >= 0 && bytes <= kMostBytes && !posix_memalign(&block, kHead, static_cast<size_t>(bytes + kHead))) {
      *static_cast<void**>(block) = late->blocks;
      late->blocks = static_cast<void**>(block);
      *data = static_cast<uint8_t*>(block) + kHead;
      return 0;
    }
    fail(401, "no memory for scratch space of %lld bytes, which the data asks for", static_cast<long long>(bytes));
  }
  *error = last_error;
  return 1;
}

void free_late(Late* late) {
  while (void** block = late->blocks) {
    late->blocks = static_cast<void**>(*block);
    free(block);
  }
}

int32_t compute(Container* c, const CoilTensorView* views, const int64_t* symbols, Tensor* outputs) {
  const CoilModel* model = c->model;
  const size_t in = static_cast<size_t>(model->num_inputs), out = static_cast<size_t>(model->num_outputs);
  void** data = static_cast<void**>(__builtin_alloca((in + out + 1) * sizeof(void*)));
  for (size_t i = 0; i < in; i++) data[i] = views[i].data;
  if (make_outputs(c, symbols, outputs, data + in)) return 1;
  Team team;
  const CoilHost host = make_host(c->shim, &team);
  const int64_t bytes = model->arena_bytes(symbols, host.num_workers);
  Arena* arena = bytes < 0 || bytes > kMostBytes ? nullptr : take_arena(c, bytes);
  if (!arena) {
    const char* formula = arena_formula();
    return fail(401, "no memory for the scratch space of %lld bytes%s%s", static_cast<long long>(bytes),
                formula ? ", by the formula " : "", formula ? formula : "");
  }
  Late late = {c, outputs, nullptr};
  const CoilCall call = {symbols, c->constants, c->state, data,    data + in, arena->data,
                         &host,   nullptr,      nullptr,  nullptr, allocate,  &late};
  if (c->state) pthread_mutex_lock(&c->state_mutex);
  const int32_t failed = model->run(&call, &last_error);
  if (c->state) pthread_mutex_unlock(&c->state_mutex);
  free_late(&late);
  give_arena(c, arena);
  return failed ? report() : 0;
}

int32_t run(Container* c, Tensor* inputs, size_t num_inputs, Tensor* outputs, size_t num_outputs, void* stream) {
  const CoilModel* model = c->model;
  if (num_outputs != static_cast<size_t>(num_results(model)))
    return fail(201, "the caller expects %zu outputs, the model has %d", num_outputs, num_results(model));
  if (num_inputs > static_cast<size_t>(model->num_inputs))
    num_inputs = static_cast<size_t>(model->num_inputs) + 1;  // bind words the error
  for (size_t i = 0; i < num_outputs; i++) outputs[i] = nullptr;
  CoilTensorView* views = static_cast<CoilTensorView*>(__builtin_alloca((num_inputs + 1) * sizeof(CoilTensorView)));
  int64_t* symbols = static_cast<int64_t*>(__builtin_alloca((static_cast<size_t>(model->num_symbols) + 1) * sizeof(int64_t)));
  for (size_t i = 0; i < num_inputs; i++) {
    if (view_input(c->shim, inputs[i], i, &views[i])) return 1;
  }
  if (check_storage(c, inputs, num_inputs)) return 1;
  if (model->bind(views, static_cast<int32_t>(num_inputs), symbols, &last_error)) return report();
  if (!(c->cuda ? cuda_compute(c, views, symbols, outputs, stream) : compute(c, views, symbols, outputs))) return 0;
  for (size_t i = 0; i < num_outputs; i++) {
    if (outputs[i]) c->shim.aoti_torch_delete_tensor_object(outputs[i]);
    outputs[i] = nullptr;
  }
  return 1;
}

void unmap_constants(Container* c) {
  if (c->constants) munmap(const_cast<uint8_t*>(c->constants), c->mapped_bytes);
  c->constants = nullptr;
}

void destroy(Container* c) {
  if (c->cuda) cuda_close(c);
  while (Arena* arena = c->free_arenas) {
    c->free_arenas = arena->next;
    free(arena->data);
    free(arena);
  }
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

constexpr char kFolded[] =
    "the constants were folded and packed at compile time and cannot be replaced; compile the changed program again";

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
API AOTInductorModelContainerCreateWithExternalConstants(Container** out, size_t num_models, const char* device,
                                                         const char* folder, const ConstantMapEntry*, size_t count) {
  if (count) return fail(105, kFolded);
  return AOTInductorModelContainerCreateWithDevice(out, num_models, device, folder);
}
API AOTInductorModelContainerDelete(Container* c) {
  if (c) coil_aoti::destroy(c);
  return 0;
}

API AOTInductorModelContainerRun(Container* c, Tensor* inputs, size_t num_inputs, Tensor* outputs, size_t num_outputs,
                                 void* stream, void*) {
  const int32_t failed = coil_aoti::run(c, inputs, num_inputs, outputs, num_outputs, stream);
  for (size_t i = 0; i < num_inputs; i++) {
    if (inputs[i]) c->shim.aoti_torch_delete_tensor_object(inputs[i]);
    inputs[i] = nullptr;
  }
  return failed;
}
API AOTInductorModelContainerRunSingleThreaded(Container* c, Tensor* inputs, size_t num_inputs, Tensor* outputs,
                                               size_t num_outputs, void* stream, void* proxy) {
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
