// A call of a package by libtorch: views of its tensors, outputs from its allocator, scratch memory, its threads. See aoti_adapter.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aoti_adapter.h"
#include "huge_pages.h"

extern "C" __attribute__((weak, visibility("hidden"))) const CoilResults COIL_RESULTS_SYMBOL;
// Of programs that count from the beginning of an input's storage: the numbers of such inputs, then -1.
extern "C" __attribute__((weak, visibility("hidden"))) const int32_t coil_whole_inputs[];
extern "C" __attribute__((weak, visibility("hidden"))) const char COIL_ARENA_FORMULA_SYMBOL[];

namespace coil_aoti {

struct Arena {
  Arena* next;
  uint8_t* data;
  int64_t bytes;
};

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 47;  // no machine has more

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
  const int64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = cd::allocate_pages(rounded, kAlignment);
  if (!data) {
    free(arena);
    return nullptr;
  }
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
  if (!shim.torch_parallel_for || !shim.torch_get_num_threads || shim.torch_get_num_threads(&threads) || threads < 1) threads = 1;
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
  if (shim.aoti_torch_get_dim(handle, &rank) || shim.aoti_torch_get_sizes(handle, &sizes) || shim.aoti_torch_get_strides(handle, &strides) ||
      shim.aoti_torch_get_dtype(handle, &view->dtype) || shim.aoti_torch_get_device_type(handle, &view->device_type) ||
      shim.aoti_torch_get_device_index(handle, &view->device_index) || shim.aoti_torch_get_data_ptr(handle, &view->data))
    return fail(207, "libtorch cannot describe input %zu", i);
  view->ndim = static_cast<int32_t>(rank);
  view->sizes = sizes;
  view->strides = strides;
  return 0;
}

// Inputs from whose storage the program counts have to begin where it does.
int32_t check_storage(const Container* c, Tensor* inputs, size_t num_inputs) {
  const int32_t* whole = coil_whole_inputs;
  __asm__("" : "+r"(whole));  // as in results()
  for (const int32_t* i = whole; i && *i >= 0; i++) {
    int64_t offset = 0;
    if (static_cast<size_t>(*i) >= num_inputs) break;
    if (!c->shim.aoti_torch_get_storage_offset || c->shim.aoti_torch_get_storage_offset(inputs[*i], &offset))
      return fail(207, "libtorch cannot describe input %d", *i);
    if (offset)
      return fail(
          205,
          "input '%s' begins at element %lld of its storage, but the program counts from the storage's beginning (as_strided with an offset): pass a tensor that begins there",
          c->model->inputs[*i].name, static_cast<long long>(offset));
  }
  return 0;
}

}  // namespace

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

int32_t make_outputs(const Container* c, const int64_t* symbols, Tensor* outputs, void** data) {
  const CoilModel* model = c->model;
  for (int32_t i = 0; i < model->num_outputs; i++) {
    if (!cd::is_late(*model, i) && make_output(c, i, symbols, outputs, &data[i])) return 1;
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
    return fail(401, "no memory for the scratch space of %lld bytes%s%s", static_cast<long long>(bytes), formula ? ", by the formula " : "",
                formula ? formula : "");
  }
  Late late = {c, outputs, nullptr};
  const CoilCall call = {symbols, c->constants, c->state, data, data + in, arena->data, &host, nullptr, nullptr, nullptr, allocate, &late};
  if (c->state) pthread_mutex_lock(&c->state_mutex);
  const int32_t failed = run_model(c, call);
  if (c->state) pthread_mutex_unlock(&c->state_mutex);
  free_late(&late);
  give_arena(c, arena);
  return failed ? report() : 0;
}

}  // namespace

int32_t place_of(int32_t i) { return results() ? results()->places[i] : i; }
int32_t num_results(const CoilModel* model) { return results() ? results()->num_results : model->num_outputs; }

void free_arenas(Container* c) {
  while (Arena* arena = c->free_arenas) {
    c->free_arenas = arena->next;
    free(arena->data);
    free(arena);
  }
}

int32_t run(Container* c, Tensor* inputs, size_t num_inputs, Tensor* outputs, size_t num_outputs, void* stream) {
  const CoilModel* model = c->model;
  if (num_outputs != static_cast<size_t>(num_results(model)))
    return fail(201, "the caller expects %zu outputs, the model has %d", num_outputs, num_results(model));
  if (num_inputs > static_cast<size_t>(model->num_inputs)) num_inputs = static_cast<size_t>(model->num_inputs) + 1;  // bind words the error
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

}  // namespace coil_aoti
