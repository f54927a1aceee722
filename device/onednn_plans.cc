// See onednn_plans.h.
#include "onednn_plans.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

extern "C" int __cxa_atexit(void (*function)(void*), void* argument, void* library);
extern "C" void __cxa_finalize(void* library);

namespace cd {
namespace {

struct Entry {
  Entry* next;
  DnnKey key;
  DnnPlan plan;
};
// A constant weight as the library wants it. All plans with that weight share it.
struct Weight {
  Weight* next;
  int64_t id;
  void* memory;
  char* data;
};

constexpr int kBuckets = 128;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards all below
Entry* entries[kBuckets];
int32_t num_entries;
Weight* weights;
DnnWorkspace* idle;
bool exiting;
char this_library;  // its address names this package to __cxa_atexit

struct Locked {
  Locked() { pthread_mutex_lock(&mutex); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { pthread_mutex_unlock(&mutex); }
};

void* aligned(int64_t bytes) { return aligned_alloc(64, static_cast<size_t>(dnn_round_up(bytes > 0 ? bytes : 64, 64))); }

// From panels [groups][ceil(n / 32)][k][32] to rows [groups][k][n]; pairs: of bfloat16, [groups][ceil(n / 32)][depth / 2][32][2].
void unpack(const char* packed, int64_t groups, int64_t k, int64_t n, int64_t element, bool pairs, char* to) {
  const int64_t depth = pairs ? COIL_PAIRED_DEPTH(k) : k;
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t n0 = 0; n0 < n; n0 += COIL_PANEL, packed += depth * COIL_PANEL * element) {
      const int64_t cols = n - n0 < COIL_PANEL ? n - n0 : COIL_PANEL;
      for (int64_t i = 0; i < k; i++) {
        char* row = to + ((g * k + i) * n + n0) * element;
        if (!pairs) memcpy(row, packed + i * COIL_PANEL * element, static_cast<size_t>(cols * element));
        const char* pair = packed + (i / 2 * 2 * COIL_PANEL + i % 2) * element;
        for (int64_t j = 0; pairs && j < cols; j++) memcpy(row + j * element, pair + 2 * j * element, static_cast<size_t>(element));
      }
    }
  }
}

// Sizes of the weight as the library counts them, and its strides as `unpack` leaves it.
struct WeightShape {
  int32_t rank;
  int64_t sizes[5], strides[5];
  int64_t groups, k, n;  // as packed
};
WeightShape weight_shape(const DnnKey& d) {
  if (!d.is_convolution) return {2, {d.k, d.n}, {d.weight >= 0 ? d.n : d.b_row, d.weight >= 0 ? 1 : d.b_col}, 1, d.k, d.n};
  const int64_t taps = d.kh * d.kw;
  const int64_t ic = d.ic / d.groups, oc = d.n / d.groups, row = ic * oc;
  if (d.panels_of_groups) return {5, {d.groups, oc, ic, d.kh, d.kw}, {oc, 1, d.n, d.kw * ic * d.n, ic * d.n}, 1, taps * ic, d.n};
  if (d.groups == 1) return {4, {oc, ic, d.kh, d.kw}, {1, oc, d.kw * row, row}, 1, taps * ic, oc};
  return {5, {d.groups, oc, ic, d.kh, d.kw}, {taps * row, 1, oc, d.kw * row, row}, d.groups, taps * ic, oc};
}

// b: the weight's layout. Null: refused.
void* describe(const OneDnn& dnn, const DnnKey& d, const void* b) {
  if (!d.is_convolution) {
    const int64_t a_sizes[] = {d.m, d.k}, a_strides[] = {d.a_row, d.a_col}, c_sizes[] = {d.m, d.n}, c_strides[] = {d.c_row, 1};
    const Layout a(dnn, 2, a_sizes, dnn_type(d.dtype), a_strides), c(dnn, 2, c_sizes, dnn_type(d.result_dtype), c_strides);
    return a.get() && c.get() ? describe_product(dnn, a.get(), b, c.get()) : nullptr;
  }
  const auto far_pad = [](int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad) {
    const int64_t reach = (out - 1) * stride + (kernel - 1) * dilation + 1 - in - pad;
    return reach > 0 ? reach : 0;
  };
  const int64_t x_sizes[] = {1, d.ic, d.ih, d.iw}, y_sizes[] = {1, d.n, d.oh, d.ow};
  const int64_t plane = d.x_c == 1 ? d.ih * d.x_h : d.ic * d.x_c;
  const int64_t x_strides[] = {plane, d.x_c, d.x_h, d.x_w}, y_strides[] = {d.oh * d.ow * d.c_row, 1, d.ow * d.c_row, d.c_row};
  const int64_t strides[] = {d.stride_h, d.stride_w}, dilations[] = {d.dilation_h - 1, d.dilation_w - 1}, near_pads[] = {d.pad_h, d.pad_w};
  const int64_t far_pads[] = {far_pad(d.oh, d.ih, d.kh, d.stride_h, d.dilation_h, d.pad_h), far_pad(d.ow, d.iw, d.kw, d.stride_w, d.dilation_w, d.pad_w)};
  const Layout x(dnn, 4, x_sizes, dnn_type(d.dtype), x_strides), y(dnn, 4, y_sizes, dnn_type(d.result_dtype), y_strides);
  return x.get() && y.get() ? describe_convolution(dnn, x.get(), b, y.get(), strides, dilations, near_pads, far_pads) : nullptr;
}

// Brings the packed weight into `to`.
bool reorder(const OneDnn& dnn, const DnnKey& d, const void* packed, void* to) {
  const WeightShape shape = weight_shape(d);
  const int64_t element = dnn_element_bytes(d.dtype);
  const Layout plain(dnn, shape.rank, shape.sizes, dnn_type(d.dtype), shape.strides);
  const void* wanted = nullptr;
  char* rows = static_cast<char*>(aligned(shape.groups * shape.k * shape.n * element));
  void *from = nullptr, *description = nullptr, *primitive = nullptr, *stream = nullptr;
  bool done = rows && plain.get() && dnn.layout_of_memory(to, &wanted) == 0 && dnn.create_memory(&from, plain.get(), dnn.engine, rows) == 0 &&
              dnn.describe_reorder(&description, plain.get(), dnn.engine, wanted, dnn.engine, nullptr) == 0 &&
              dnn.create_primitive(&primitive, description) == 0 && dnn.create_stream(&stream, dnn.engine, 1) == 0;
  if (done) {
    unpack(static_cast<const char*>(packed), shape.groups, shape.k, shape.n, element, d.pairs, rows);
    const Argument arguments[] = {{kSource, from}, {kDestination, to}};
    done = dnn.execute(primitive, stream, 2, arguments) == 0;
  }
  if (stream) dnn.destroy_stream(stream);
  if (primitive) dnn.destroy_primitive(primitive);
  if (description) dnn.destroy_description(description);
  if (from) dnn.destroy_memory(from);
  free(rows);
  return done;
}

Weight* make_weight(const OneDnn& dnn, const DnnKey& d, const void* packed, const void* layout) {
  Weight* w = static_cast<Weight*>(calloc(1, sizeof(Weight)));
  if (!w) return nullptr;
  w->id = d.weight;
  w->data = static_cast<char*>(aligned(static_cast<int64_t>(dnn.layout_bytes(layout))));
  const bool made = w->data && dnn.create_memory(&w->memory, layout, dnn.engine, w->data) == 0;
  if (made && reorder(dnn, d, packed, w->memory)) {
    w->next = weights;
    weights = w;
    return w;
  }
  if (w->memory) dnn.destroy_memory(w->memory);
  free(w->data);
  free(w);
  return nullptr;
}

Weight* kept_weight(int64_t id) {
  Weight* w = weights;
  while (w && w->id != id) w = w->next;
  return w;
}

// The library's slow all-purpose code is no match for ours.
bool is_fast(const OneDnn& dnn, const void* description, const char** name) {
  *name = "";
  return dnn.ask(description, kAskImplementation, 0, name) == 0 && strncmp(*name, "ref", 3) != 0;
}

bool fill(const OneDnn& dnn, const DnnKey& d, const void* packed, DnnPlan* plan, const char** name) {
  const WeightShape shape = weight_shape(d);
  Weight* weight = d.weight >= 0 ? kept_weight(d.weight) : nullptr;
  const void* layout = nullptr;
  const Layout chosen(dnn, shape.rank, shape.sizes, dnn_type(d.dtype), d.weight >= 0 ? nullptr : shape.strides);
  if (weight ? dnn.layout_of_memory(weight->memory, &layout) != 0 : !(layout = chosen.get())) return false;
  plan->description = describe(dnn, d, layout);
  if (!plan->description || !is_fast(dnn, plan->description, name)) return false;
  if (d.weight >= 0 && !weight) weight = make_weight(dnn, d, packed, dnn.ask_layout(plan->description, kAskWeights, 0));
  if (d.weight >= 0 && !weight) return false;
  plan->weights = weight ? weight->memory : nullptr;
  plan->scratch_bytes = static_cast<int64_t>(dnn.layout_bytes(dnn.ask_layout(plan->description, kAskScratchpad, 0)));
  return dnn.create_primitive(&plan->primitive, plan->description) == 0;
}

void clear(const OneDnn& dnn, DnnPlan* plan) {
  if (plan->primitive) dnn.destroy_primitive(plan->primitive);
  if (plan->description) dnn.destroy_description(plan->description);
  *plan = {};
}

void trace(const DnnKey& d, bool usable, const char* name) {
  const long long rows = d.is_convolution ? d.oh * d.ow : d.m, k = d.is_convolution ? d.kh * d.kw * d.ic / d.groups : d.k;
  fprintf(stderr, "onednn %s of %lld rows, %lld columns, depth %lld, dtype %d: %s%s\n", d.is_convolution ? "convolution" : "product", rows,
          static_cast<long long>(d.n), k, static_cast<int>(d.dtype), usable ? "" : "cannot ", name);
}

Entry** bucket(const DnnKey& key) {
  const uint64_t* words = reinterpret_cast<const uint64_t*>(&key);
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof key / 8; i++) hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ull;
  return &entries[hash >> 57];
}

void at_exit(void*) { exiting = true; }

// When the package is unloaded. At the end of the process the library may be gone already, and memory need not be given back.
__attribute__((destructor)) void unload() {
  const OneDnn* dnn = num_entries > 0 && !exiting ? onednn() : nullptr;
  if (!dnn) return;
  for (Entry*& head : entries) {
    while (Entry* e = head) {
      head = e->next;
      clear(*dnn, &e->plan);
      free(e);
    }
  }
  while (Weight* w = weights) {
    weights = w->next;
    dnn->destroy_memory(w->memory);
    free(w->data);
    free(w);
  }
  while (DnnWorkspace* w = idle) {
    idle = w->next;
    free(w->data);
    free(w);
  }
  __cxa_finalize(&this_library);
}

}  // namespace

const DnnPlan* dnn_plan(const DnnKey& key, const void* packed) {
  const Locked locked;
  const OneDnn* dnn = onednn();
  if (!dnn) return nullptr;
  Entry** head = bucket(key);
  for (Entry* e = *head; e; e = e->next) {
    if (memcmp(&e->key, &key, sizeof key) == 0) return e->plan.usable ? &e->plan : nullptr;
  }
  Entry* entry = num_entries < kMostPlans ? static_cast<Entry*>(calloc(1, sizeof(Entry))) : nullptr;
  if (!entry) return nullptr;
  const OneThread one(*dnn);
  const char* name = "";
  entry->key = key;
  entry->plan.usable = fill(*dnn, key, packed, &entry->plan, &name);
  if (!entry->plan.usable) clear(*dnn, &entry->plan);
  if (onednn_traces()) trace(key, entry->plan.usable, name);
  entry->next = *head;
  *head = entry;
  if (num_entries++ == 0) __cxa_atexit(at_exit, nullptr, &this_library);
  return entry->plan.usable ? &entry->plan : nullptr;
}

DnnWorkspace* dnn_take_workspace(int64_t bytes) {
  const Locked locked;
  DnnWorkspace* w = idle ? idle : static_cast<DnnWorkspace*>(calloc(1, sizeof(DnnWorkspace)));
  if (!w) return nullptr;
  if (idle) idle = w->next;
  if (w->bytes < bytes) {
    free(w->data);
    w->data = static_cast<char*>(aligned(bytes));
    w->bytes = w->data ? bytes : 0;
  }
  if (w->data) return w;
  free(w);
  return nullptr;
}

void dnn_give_workspace(DnnWorkspace* workspace) {
  const Locked locked;
  workspace->next = idle;
  idle = workspace;
}

}  // namespace cd
