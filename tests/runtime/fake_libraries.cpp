// See fake_libraries.h. Only what device/cuda_blas.cc and cuda_dnn.cc call, with the numbers of the real libraries' headers.
#include "fake_libraries.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

std::mutex mutex;
FakeLibraries state;

float widen(uint32_t bits) {
  float f;
  memcpy(&f, &bits, 4);
  return f;
}
// type: 0 float, 1 half, 2 bfloat16.
float read(const void* data, int64_t i, int type) {
  if (type == 0) return static_cast<const float*>(data)[i];
  if (type == 1) return static_cast<float>(static_cast<const _Float16*>(data)[i]);
  return widen(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[i]) << 16);
}
void write(void* data, int64_t i, int type, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (type == 0) static_cast<float*>(data)[i] = value;
  if (type == 1) static_cast<_Float16*>(data)[i] = static_cast<_Float16>(value);
  if (type == 2) static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// What was enqueued before, inputs among it, must have happened.
void settle(void* stream) {
  const char* path = getenv("COIL_CUDA_DRIVER");
  void* driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (!driver) return;
  if (auto wait = reinterpret_cast<int32_t (*)(void*)>(dlsym(driver, "cuStreamSynchronize"))) wait(stream);
  dlclose(driver);
}

}  // namespace

API FakeLibraries* fake_libraries() { return &state; }

// --- cuBLASLt

namespace {

struct Desc {
  int32_t compute, scale, trans_a, trans_b;
};
struct Layout {
  int32_t type;  // cudaDataType
  int64_t rows, cols, ld;
};
struct Wish {
  uint64_t workspace;
  uint32_t align[4];
};
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int32_t state;
  float waves;
  int32_t reserved[4];
};

int element(int32_t type) { return type == 0 ? 0 : type == 2 ? 1 : type == 14 ? 2 : -1; }

template <class T>
int32_t make(void** out, T value) {
  const std::lock_guard lock(mutex);
  state.objects++;
  *out = new T(value);
  return 0;
}
template <class T>
int32_t remove(void* object) {
  const std::lock_guard lock(mutex);
  state.objects--;
  delete static_cast<T*>(object);
  return 0;
}
int32_t make_handle(void** handle) {
  const std::lock_guard lock(mutex);
  state.created++;
  if (state.fail_create) return state.fail_create;
  state.handles++;
  *handle = new int;
  return 0;
}
int32_t remove_handle(void* handle) {
  const std::lock_guard lock(mutex);
  state.handles--;
  delete static_cast<int*>(handle);
  return 0;
}

// Whether op(a) * op(b) has d's shape, all in formats that the library has.
bool fits(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  const int64_t k = desc.trans_a ? a.rows : a.cols;
  for (const Layout* l : {&a, &b, &d}) {
    if (element(l->type) < 0 || l->rows <= 0 || l->cols <= 0 || l->ld < l->rows) return false;
  }
  return desc.compute == 68 && desc.scale == 0 && d.type == 0 && a.type == b.type && (desc.trans_a ? a.cols : a.rows) == d.rows &&
         (desc.trans_b ? b.rows : b.cols) == d.cols && (desc.trans_b ? b.cols : b.rows) == k;
}

}  // namespace

API size_t cublasLtGetVersion() { return 130000; }
API int32_t cublasLtCreate(void** handle) { return make_handle(handle); }
API int32_t cublasLtDestroy(void* handle) { return remove_handle(handle); }
API int32_t cublasLtMatmulDescCreate(void** desc, int32_t compute, int32_t scale) { return make<Desc>(desc, {compute, scale, 0, 0}); }
API int32_t cublasLtMatmulDescDestroy(void* desc) { return remove<Desc>(desc); }
API int32_t cublasLtMatmulDescSetAttribute(void* desc, int32_t attribute, const void* value, size_t bytes) {
  if ((attribute != 3 && attribute != 4) || bytes != 4) return 7;
  memcpy(attribute == 3 ? &static_cast<Desc*>(desc)->trans_a : &static_cast<Desc*>(desc)->trans_b, value, 4);
  return 0;
}
API int32_t cublasLtMatrixLayoutCreate(void** layout, int32_t type, uint64_t rows, uint64_t cols, int64_t ld) {
  return make<Layout>(layout, {type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld});
}
API int32_t cublasLtMatrixLayoutDestroy(void* layout) { return remove<Layout>(layout); }
API int32_t cublasLtMatmulPreferenceCreate(void** wish) { return make<Wish>(wish, {0, {256, 256, 256, 256}}); }
API int32_t cublasLtMatmulPreferenceDestroy(void* wish) { return remove<Wish>(wish); }
API int32_t cublasLtMatmulPreferenceSetAttribute(void* wish, int32_t attribute, const void* value, size_t bytes) {
  Wish& w = *static_cast<Wish*>(wish);
  if (attribute == 1 && bytes == 8) return memcpy(&w.workspace, value, 8), 0;
  if (attribute < 5 || attribute > 8 || bytes != 4) return 7;
  memcpy(&w.align[attribute - 5], value, 4);
  return 0;
}
API int32_t cublasLtMatmulAlgoGetHeuristic(void*, void* desc, void* a, void* b, void* c, void* d, void* wish, int32_t wanted, Heuristic* found,
                                           int32_t* count) {
  const std::lock_guard lock(mutex);
  state.advised++;
  const Wish& w = *static_cast<Wish*>(wish);
  state.align_a = w.align[0], state.align_b = w.align[1];
  if (state.fail_advise) return state.fail_advise;
  if (wanted < 1 || c != d || !fits(*static_cast<Desc*>(desc), *static_cast<Layout*>(a), *static_cast<Layout*>(b), *static_cast<Layout*>(d))) return 7;
  if (static_cast<uint64_t>(state.workspace) > w.workspace) return *count = 0, 15;
  *found = {{0xA160}, static_cast<size_t>(state.workspace), 0, 1, {}};
  return *count = 1, 0;
}
API int32_t cublasLtMatmul(void* handle, void* desc, const float* alpha, const void* a, void* a_layout, const void* b, void* b_layout, const float* beta,
                           const void* c, void*, void* d, void* d_layout, const Heuristic* algorithm, void* workspace, size_t bytes, void* stream) {
  const Desc& op = *static_cast<Desc*>(desc);
  const Layout &x = *static_cast<Layout*>(a_layout), &y = *static_cast<Layout*>(b_layout), &z = *static_cast<Layout*>(d_layout);
  int32_t fail;
  {
    const std::lock_guard lock(mutex);
    state.runs++;
    state.stream = stream;
    state.workspace_given = static_cast<int64_t>(bytes);
    fail = state.fail_run;
  }
  if (fail) return fail;
  if (!handle || *alpha != 1 || *beta != 0 || c != d || algorithm->algorithm[0] != 0xA160 || !fits(op, x, y, z)) return 7;
  if (reinterpret_cast<uintptr_t>(d) % 256 || reinterpret_cast<uintptr_t>(workspace) % 256) return 7;
  settle(stream);
  memset(workspace, 0x5A, bytes);
  const int type = element(x.type);
  const int64_t k = op.trans_a ? x.rows : x.cols;
  const int64_t a_row = op.trans_a ? x.ld : 1, a_col = op.trans_a ? 1 : x.ld, b_row = op.trans_b ? y.ld : 1, b_col = op.trans_b ? 1 : y.ld;
  std::vector<float> across(static_cast<size_t>(z.rows * k));  // a, column by column: its rows are summed beside each other
  for (int64_t i = 0; i < z.rows; i++) {
    for (int64_t l = 0; l < k; l++) across[static_cast<size_t>(l * z.rows + i)] = read(a, i * a_row + l * a_col, type);
  }
  for (int64_t j = 0; j < z.cols; j++) {
    float* sums = static_cast<float*>(d) + j * z.ld;
    std::fill(sums, sums + z.rows, 0.0f);
    for (int64_t l = 0; l < k; l++) {
      const float factor = read(b, l * b_row + j * b_col, type);
      const float* column = across.data() + l * z.rows;
      for (int64_t i = 0; i < z.rows; i++) sums[i] += column[i] * factor;
    }
  }
  return 0;
}

// --- cuDNN's backend interface: descriptors keep copies of those that they were given

namespace {

struct Data;
using Shared = std::shared_ptr<Data>;
struct Data {
  int32_t type;
  bool finished = false;
  int32_t engine = -1;  // of engines, their configurations and plans
  std::map<int32_t, std::vector<char>> values;
  std::map<int32_t, Shared> parts;

  template <class T>
  const T* get(int32_t name) const {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : reinterpret_cast<const T*>(it->second.data());
  }
};
constexpr int32_t kBad = 2000;

Data& data_of(void* descriptor) { return **static_cast<Shared*>(descriptor); }

struct Tensor {
  const int64_t *sizes, *strides;
  int type;
  int64_t id;
};
Tensor tensor_of(const Shared& part) {
  const int32_t type = *part->get<int32_t>(901);
  return {part->get<int64_t>(902), part->get<int64_t>(903), type == 0 ? 0 : type == 2 ? 1 : 2, *part->get<int64_t>(906)};
}

float pixel(const Tensor& x, const void* x_data, const Tensor& w, const void* w_data, const Data& conv, const int64_t (&at)[4]) {
  const int64_t *dilation = conv.get<int64_t>(102), *stride = conv.get<int64_t>(103), *pad = conv.get<int64_t>(105);
  float sum = 0;
  for (int64_t h = 0; h < w.sizes[2]; h++) {
    for (int64_t v = 0; v < w.sizes[3]; v++) {
      const int64_t ih = at[2] * stride[0] - pad[0] + h * dilation[0], iw = at[3] * stride[1] - pad[1] + v * dilation[1];
      if (ih < 0 || ih >= x.sizes[2] || iw < 0 || iw >= x.sizes[3]) continue;
      const int64_t from = at[0] * x.strides[0] + ih * x.strides[2] + iw * x.strides[3], weight = at[1] * w.strides[0] + h * w.strides[2] + v * w.strides[3];
      for (int64_t c = 0; c < x.sizes[1]; c++) sum += read(x_data, from + c * x.strides[1], x.type) * read(w_data, weight + c * w.strides[1], w.type);
    }
  }
  return sum;
}

void convolve(const Data& forward, const std::map<int64_t, void*>& memory) {
  const Tensor w = tensor_of(forward.parts.at(703)), x = tensor_of(forward.parts.at(704)), y = tensor_of(forward.parts.at(705));
  const Data& conv = *forward.parts.at(702);
  int64_t at[4];
  for (at[0] = 0; at[0] < y.sizes[0]; at[0]++) {
    for (at[1] = 0; at[1] < y.sizes[1]; at[1]++) {
      for (at[2] = 0; at[2] < y.sizes[2]; at[2]++) {
        for (at[3] = 0; at[3] < y.sizes[3]; at[3]++) {
          const int64_t to = at[0] * y.strides[0] + at[1] * y.strides[1] + at[2] * y.strides[2] + at[3] * y.strides[3];
          write(memory.at(y.id), to, y.type, pixel(x, memory.at(x.id), w, memory.at(w.id), conv, at));
        }
      }
    }
  }
}

}  // namespace

API size_t cudnnGetVersion() { return 90000; }
API int32_t cudnnCreate(void** handle) { return make_handle(handle); }
API int32_t cudnnDestroy(void* handle) { return remove_handle(handle); }
API int32_t cudnnSetStream(void*, void* stream) {
  const std::lock_guard lock(mutex);
  state.stream = stream;
  return 0;
}
API int32_t cudnnBackendCreateDescriptor(int32_t type, void** descriptor) {
  auto made = std::make_shared<Data>();
  made->type = type;
  return make<Shared>(descriptor, made);
}
API int32_t cudnnBackendDestroyDescriptor(void* descriptor) { return remove<Shared>(descriptor); }
API int32_t cudnnBackendSetAttribute(void* descriptor, int32_t name, int32_t type, int64_t count, const void* values) {
  static const std::map<int32_t, size_t> kBytes = {{0, 8}, {1, 4}, {3, 8}, {4, 4}, {6, 8}, {7, 4}, {8, 4}, {15, 8}};
  Data& data = data_of(descriptor);
  const auto bytes = kBytes.find(type);
  if (data.finished || bytes == kBytes.end() || count < 1) return kBad;
  if (type == 15) {
    const Shared& part = *static_cast<Shared* const*>(values)[0];
    if (count != 1 || !part->finished) return kBad;
    data.parts[name] = part;
    return 0;
  }
  const char* from = static_cast<const char*>(values);
  data.values[name].assign(from, from + bytes->second * static_cast<size_t>(count));
  return 0;
}
API int32_t cudnnBackendFinalize(void* descriptor) {
  static const std::map<int32_t, std::vector<int32_t>> kWanted = {{1, {100, 101, 102, 103, 104, 105, 106}},
                                                                  {17, {900, 901, 902, 903, 906}},
                                                                  {10, {700, 701}},
                                                                  {15, {800}},
                                                                  {4, {200}},
                                                                  {5, {400}},
                                                                  {16, {1000, 1001, 1003}}};
  static const std::map<int32_t, std::vector<int32_t>> kParts = {{10, {702, 703, 704, 705}}, {15, {801}}, {4, {201}}, {5, {401}}};
  Data& data = data_of(descriptor);
  for (const auto& [table, parts] : {std::pair(&kWanted, false), std::pair(&kParts, true)}) {
    const auto wanted = table->find(data.type);
    if (wanted == table->end()) continue;
    for (int32_t name : wanted->second) {
      if (parts ? !data.parts.count(name) : !data.values.count(name)) return kBad;
    }
  }
  if (data.type == 5) data.engine = data.parts.at(401)->engine;
  data.finished = true;
  return 0;
}
API int32_t cudnnBackendGetAttribute(void* descriptor, int32_t name, int32_t, int64_t most, int64_t* count, void* values) {
  Data& data = data_of(descriptor);
  const std::lock_guard lock(mutex);
  if (data.type == 4 && name == 202) {  // advice: three engines
    state.advised++;
    if (state.fail_advise) return state.fail_advise;
    *count = 3;
    for (int32_t i = 0; i < 3 && i < most; i++) {
      Data& config = data_of(static_cast<void**>(values)[i]);
      config.engine = i, config.finished = true;
      config.parts[0] = data.parts.at(201);
    }
    return 0;
  }
  if (data.type == 3 && name == 300) {
    Data& engine = data_of(*static_cast<void**>(values));
    engine.engine = data.engine, engine.finished = true;
    return *count = 1, 0;
  }
  if (data.type == 2 && name == 1303) {
    static const int32_t kBadNotes[] = {4, 5, 2};  // not the same bits, Winograd, less precise
    std::vector<int32_t> notes = {9};              // strict about NaN
    if (data.engine < state.tensor_cores) notes.push_back(0);
    if (data.engine < state.inexact) notes.push_back(kBadNotes[data.engine]);
    if (most < static_cast<int64_t>(notes.size())) return kBad;
    std::copy(notes.begin(), notes.end(), static_cast<int32_t*>(values));
    return *count = static_cast<int64_t>(notes.size()), 0;
  }
  if (data.type == 5 && name == 402) {
    *static_cast<int64_t*>(values) = state.workspace;
    return *count = 1, 0;
  }
  return kBad;
}
API int32_t cudnnBackendExecute(void* handle, void* plan, void* pack) {
  const Data &p = data_of(plan), &v = data_of(pack);
  void* stream;
  int64_t workspace;
  {
    const std::lock_guard lock(mutex);
    state.runs++;
    state.engine = p.engine;
    stream = state.stream, workspace = state.workspace;
    if (state.fail_run) return state.fail_run;
  }
  if (!handle || !p.finished || !v.finished) return kBad;
  settle(stream);
  memset(*v.get<void*>(1003), 0x5A, static_cast<size_t>(workspace));
  std::map<int64_t, void*> memory;
  for (size_t i = 0; i < 3; i++) {
    memory[v.get<int64_t>(1000)[i]] = v.get<void*>(1001)[i];
    if (reinterpret_cast<uintptr_t>(v.get<void*>(1001)[i]) % 16) return kBad;
  }
  convolve(*p.parts.at(401)->parts.at(0)->parts.at(801), memory);
  return 0;
}
