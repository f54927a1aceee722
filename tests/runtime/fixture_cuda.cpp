// A hand-written CUDA model in the form that coil generates, with kernels for the fake driver (fake_cuda.h), linked with the
// same device objects as a real package.
//   x: f32[batch, 4], ids: i64[batch], n: int in 0..9, batch in 1..1000 -> y = x * n + 1 + table[ids], table: f32[8, 4] = 0, 1,
//   ..., 31 An id outside of the table is reported through the flag. Kernel 2 is for "hopper" devices only.
// -DOUTLASTS=8: of more rows the device has more to do than the host. -DSTATE: and + count, a mutated buffer that starts at
// 100 and grows by 1. -DBROKEN: the second kernel dies. -DSM=80: for that architecture. -DLARGE: with 21 MiB of constants that nobody reads.
// -DABSENT=BYTES: it launches a kernel that no image has, which asks for so much shared memory.
#include "cuda_host.h"
#include "fake_cuda.h"
#include "host_support.h"

#ifndef SM
#define SM 90
#endif
#ifndef ABSENT
#define ABSENT 0
#define LAUNCHES_ABSENT 0
#else
#define LAUNCHES_ABSENT 1
#endif
#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define LEAF "{\"type\": null, \"context\": null, \"children_spec\": []}"

namespace {

template <class T>
T param(void** params, int i) {
  return *static_cast<T*>(params[i]);
}

int32_t scale(void** p) {  // to, x, n, count
  const int64_t n = param<int64_t>(p, 2);
  for (int64_t i = 0; i < param<int64_t>(p, 3); i++) param<float*>(p, 0)[i] = param<float*>(p, 1)[i] * static_cast<float>(n) + 1;
  return 0;
}
int32_t gather(void** p) {  // y, from, table, ids, batch, flag
#ifdef BROKEN
  return 719;
#endif
  for (int64_t r = 0; r < param<int64_t>(p, 4); r++) {
    int64_t id = param<int64_t*>(p, 3)[r];
    if (id < 0 || id >= 8) {
      if (param<int32_t*>(p, 5)) *param<int32_t*>(p, 5) = 7;
      id = 0;
    }
    for (int64_t c = 0; c < 4; c++) param<float*>(p, 0)[r * 4 + c] = param<float*>(p, 1)[r * 4 + c] + param<float*>(p, 2)[id * 4 + c];
  }
  return 0;
}
int32_t count(void** p) {  // y, state, count
  float* state = param<float*>(p, 1);
  for (int64_t i = 0; i < param<int64_t>(p, 2); i++) param<float*>(p, 0)[i] += *state;
  *state += 1;
  return 0;
}
#ifndef FOREIGN  // 1: another compiler made the first image, whose kernel's name says nothing outside of it
#define FOREIGN 0
#endif
const char* const kGather = FOREIGN ? "scale" : "gather";
const FakeKernel kForeign[] = {{FOREIGN ? "scale" : "nothing", 6, gather}};
const FakeKernel kFakes[] = {{"scale", 4, scale}, {FOREIGN ? "nothing" : "gather", 6, gather}, {"count", 3, count}};
const FakeImage kForeignImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 1, kForeign};
const FakeImage kImage = {{'F', 'A', 'K', 'E', 'C', 'U', 'D', 'A'}, 3, kFakes};

const CudaKernel kKernels[] = {{"scale", 256, 0, 1, "scale (model.py:3)", 0},
                               {kGather, 256, 0, 1, "gather (model.py:4)", FOREIGN},
                               {"count", 256, 0, 1, "count (model.py:5)", 0},
                               {"hopper_only", 256, ABSENT, 2, "hopper (model.py:6)", 0}};
const CudaImage kImages[] = {{SM, 1, reinterpret_cast<const unsigned char*>(&kForeignImage), sizeof kForeignImage},
                             {SM, 1, reinterpret_cast<const unsigned char*>(&kImage), sizeof kImage}};
const CudaCode kCode = {kImages, 2, kKernels, 4, "sm_" STRING(SM)};

const cd::Symbol kSymbols[] = {{"batch", 1, 1000}, {"n", 0, 9}};
const cd::Size kSizes[] = {cd::symbol(0), cd::fixed(4)};
const cd::Input kInputs[] = {{.name = "x", .dtype = COIL_FLOAT32, .ndim = 2, .sizes = kSizes, .device_type = COIL_CUDA},
                             {.name = "ids", .dtype = COIL_INT64, .ndim = 1, .sizes = kSizes, .device_type = COIL_CUDA},
                             {.name = "n", .dtype = COIL_INT64, .symbol = 1}};
const cd::Signature kSignature = {kInputs, 3, kSymbols, 2, nullptr, nullptr, 0, 0};
const CoilTensorDesc kInputDescs[] = {{"x", COIL_FLOAT32, 2}, {"ids", COIL_INT64, 1}, {"n", COIL_INT64, 0}};
const CoilTensorDesc kOutputs[] = {{"y", COIL_FLOAT32, 2}};

int32_t bind(const CoilTensorView* inputs, int32_t n, int64_t* symbols, CoilError* error) { return cd::bind_inputs(kSignature, inputs, n, symbols, error); }
int32_t find_fault(const CoilTensorView* inputs, int32_t n, int64_t* symbols, CoilInputFault* fault, CoilError* error) {
  return cd::bind_inputs(kSignature, inputs, n, symbols, error, fault);
}
void output_shape(const int64_t* s, int32_t, int64_t* sizes, int64_t* strides) { sizes[0] = s[0], sizes[1] = 4, strides[0] = 4, strides[1] = 1; }
int64_t arena_bytes(const int64_t* s, int32_t) { return s[0] * 16; }

int32_t enqueue(const cd::CudaCall* call, CoilError* error) {
  int64_t batch = call->symbols[0], n = call->symbols[1], elements = batch * 4;
  if (cd::cuda_has(call, 3) || cd::cuda_sms(call) != 132) return cd::fail(error, 901, "a kernel that no image has was found");
  if (cd::cuda_clusters(call, 1) != 132 || cd::cuda_clusters(call, 2) != 66 || cd::cuda_clusters(call, 4) != 32)
    return cd::fail(error, 901, "clusters that do not fit the machine");
  if (LAUNCHES_ABSENT) return cd::cuda_launch(call, 3, 2, 1, 1, nullptr, 0, error);
  const void *x = call->inputs[0], *ids = call->inputs[1], *table = call->constants, *arena = call->arena, *y = call->outputs[0];
  const void *flag = call->flag, *state = call->state;
  const int64_t* s = call->symbols;
  const cd::CudaParam scale_params[] = {{&arena, 8}, {&x, 8}, {&n, 8}, {&elements, 8}};
  COIL_BEGIN(0, 0);
  if (int32_t failed = cd::cuda_launch(call, 0, 1, 1, 1, scale_params, 4, error)) return failed;
  COIL_END(0, 0);
  const cd::CudaParam gather_params[] = {{&y, 8}, {&arena, 8}, {&table, 8}, {&ids, 8}, {&batch, 8}, {&flag, 8}};
  COIL_BEGIN(1, 0);
  if (int32_t failed = cd::cuda_launch(call, 1, batch, 1, 1, gather_params, 6, error)) return failed;
  COIL_END(1, 0);
  if (!state) return cd::cuda_launch(call, 2, 0, 1, 1, nullptr, 0, error);  // no blocks: nothing
  const cd::CudaParam count_params[] = {{&y, 8}, {&state, 8}, {&elements, 8}};
  return cd::cuda_launch(call, 2, 1, 1, 1, count_params, 3, error);
}
#ifdef OUTLASTS
bool outlasts(const int64_t* symbols) { return symbols[0] > OUTLASTS; }
#else
bool (*const outlasts)(const int64_t*) = nullptr;
#endif
const cd::CudaProgram kProgram = {enqueue, 2, 3, 1, true, outlasts};
int32_t run(const CoilCall* call, CoilError* error) { return cd::cuda_run(kProgram, call, error); }
int32_t run_traced(const CoilCall* call, const CoilTrace* trace, CoilError* error) { return cd::cuda_run_traced(kProgram, call, trace, error); }
int32_t load_device(int32_t ordinal, void** device, CoilError* error) { return cd::cuda_load(kCode, ordinal, device, error); }
void flag_error(int32_t flag, CoilError* error) { cd::fail(error, 210, "an index is out of range in gather (model.py:4), flag %d", flag); }

const CoilModel kModel = {
    .abi_version = COIL_ABI_VERSION,
#ifdef OLDER  // of the time when the struct ended before this member
    .struct_bytes = offsetof(CoilModel, run_traced),
#else
    .struct_bytes = sizeof(CoilModel),
#endif
    .num_inputs = 3,
    .num_outputs = 1,
    .num_symbols = 2,
    .device_type = COIL_CUDA,
    .inputs = kInputDescs,
    .outputs = kOutputs,
    .in_spec = "[1, " LEAF "]",
    .out_spec = "[1, " LEAF "]",
#ifdef LARGE
    .constants_bytes = (uint64_t{21} << 20) + 192,
#else
    .constants_bytes = 192,  // the table, then the initial state
#endif
    .constants_hash = 0x1234,
    .state_offset = 128,
#ifdef STATE
    .state_bytes = 64,
#else
    .state_bytes = 0,
#endif
    .select = cd::select_cuda,
    .bind = bind,
    .output_shape = output_shape,
    .arena_bytes = arena_bytes,
    .run = run,
    .load_device = load_device,
    .unload_device = cd::cuda_unload,
    .flag_error = flag_error,
    .count_graphs = cd::cuda_count_graphs,
    .reads_sizes = 0,
    .late_outputs = nullptr,
    .run_traced = run_traced,
    .find_fault = find_fault,
    .sample = nullptr,
    .sample_row_bytes = 0,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const CoilModel* coil_model(void) { return &kModel; }
