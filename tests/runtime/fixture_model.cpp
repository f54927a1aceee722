// Hand-written models in the form that coil generates, for the tests of the runtime and of the adapter: compiled by the tests
// with clang (see fixture.cc) and -DMODEL_<name>, linked with device/aoti_adapter.cc and device/host_support.cc.
//
//   MODEL_MASKED   a, b: f32[batch, 16], mask: bool[batch, 16], batch in 1..64
//                  -> y = where(mask, a * b, 0) + w (a constant), rows = y.sum(1); in parallel, with scratch memory
//   MODEL_ADD_ONE  x: f32[10] -> x + 1
//   MODEL_COUNTER  x: f32[4] -> x + count; count, a mutated buffer that starts at 10, grows by 1
//   MODEL_LAYOUT   x: f32[batch, 3, side, 2*side] channels last, batch in 0..8, side in 1..32, step: int in 0.., tail:
//   f32[side*side + 1],
//                  total of all sizes even -> y: f32[2*side, batch] with strides [1, 2*side] = x[:, 0, 0, :].T * step + tail[0]
//   MODEL_LATE     x: f32[n], n in 0..4096 -> kept = x[x > 0], a size that only the data decides, doubled: f32[n] = 2 * x
//   MODEL_TALK     tokens, places: int64[n], n in 1..8 -> logits: f32[n, 13], which all rows of the cache (a state of 40 numbers, zero at the
//                  beginning) up to the place decide; a place behind the cache fails before anything is written
// -DBAD_ABI: the version of another coil. -DLEVELS=..: instruction sets. -DFAILS: run fails with an assertion.
#include "host_support.h"

#ifndef LEVELS
#define LEVELS 1
#endif
#define LEAF "{\"type\": null, \"context\": null, \"children_spec\": []}"
#define SPEC(LEAVES)                                                                  \
  "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": ["    \
  "{\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [" LEAVES \
  "]}, "                                                                              \
  "{\"type\": \"builtins.dict\", \"context\": \"[]\", \"children_spec\": []}]}]"
#define TUPLE(LEAVES) "[1, {\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [" LEAVES "]}]"

namespace {

#if defined(MODEL_MASKED)
constexpr char kInSpec[] = SPEC(LEAF ", " LEAF ", " LEAF);
constexpr char kOutSpec[] = TUPLE(LEAF ", " LEAF);
constexpr uint64_t kConstantsBytes = 64, kStateOffset = 0, kStateBytes = 0;
const cd::Symbol kSymbols[] = {{"batch", 1, 64}};
const cd::Size kSizes[] = {cd::symbol(0), cd::fixed(16)};
const cd::Input kInputs[] = {{"a", COIL_FLOAT32, 2, kSizes}, {"b", COIL_FLOAT32, 2, kSizes}, {"mask", COIL_BOOL, 2, kSizes}};
const cd::Signature kSignature = {kInputs, 3, kSymbols, 1, nullptr, nullptr, 0, 0};
const CoilTensorDesc kOutputs[] = {{"y", COIL_FLOAT32, 2}, {"rows", COIL_FLOAT32, 1}};

void output_shape(const int64_t* s, int32_t i, int64_t* sizes, int64_t* strides) {
  sizes[0] = s[0];
  strides[0] = i == 0 ? 16 : 1;
  if (i == 0) sizes[1] = 16, strides[1] = 1;
}
int64_t arena_bytes(const int64_t* s, int32_t workers) { return s[0] * 64 + workers * 64; }

void masked_rows(void* context, int64_t begin, int64_t end, int32_t worker) {
  const CoilCall* call = static_cast<const CoilCall*>(context);
  const float* a = static_cast<const float*>(call->inputs[0]);
  const float* b = static_cast<const float*>(call->inputs[1]);
  const bool* mask = static_cast<const bool*>(call->inputs[2]);
  const float* w = reinterpret_cast<const float*>(call->constants);
  float* scratch = reinterpret_cast<float*>(call->arena) + 16 * worker;
  float* products = reinterpret_cast<float*>(call->arena + 64 * call->host->num_workers);
  for (int64_t r = begin; r < end; r++) {
    for (int64_t c = 0; c < 16; c++) scratch[c] = mask[r * 16 + c] ? a[r * 16 + c] * b[r * 16 + c] : 0;
    for (int64_t c = 0; c < 16; c++) products[r * 16 + c] = scratch[c] + w[c];
  }
}
int32_t run(const CoilCall* call, CoilError* error) {
  (void)error;
  call->host->parallel_for(call->host->pool, call->symbols[0], 4, masked_rows, const_cast<CoilCall*>(call));
  const float* products = reinterpret_cast<const float*>(call->arena + 64 * call->host->num_workers);
  for (int64_t r = 0; r < call->symbols[0]; r++) {
    float sum = 0;
    for (int64_t c = 0; c < 16; c++) sum += static_cast<float*>(call->outputs[0])[r * 16 + c] = products[r * 16 + c];
    static_cast<float*>(call->outputs[1])[r] = sum;
  }
  return 0;
}

#elif defined(MODEL_ADD_ONE)
constexpr char kInSpec[] = SPEC(LEAF);
constexpr char kOutSpec[] = "[1, " LEAF "]";
constexpr uint64_t kConstantsBytes = 0, kStateOffset = 0, kStateBytes = 0;
const cd::Size kSizes[] = {cd::fixed(10)};
const cd::Input kInputs[] = {{"x", COIL_FLOAT32, 1, kSizes}};
const cd::Signature kSignature = {kInputs, 1, nullptr, 0, nullptr, nullptr, 0, 0};
const CoilTensorDesc kOutputs[] = {{"add", COIL_FLOAT32, 1}};
void output_shape(const int64_t*, int32_t, int64_t* sizes, int64_t* strides) { sizes[0] = 10, strides[0] = 1; }
int64_t arena_bytes(const int64_t*, int32_t) { return 0; }
int32_t run(const CoilCall* call, CoilError* error) {
#ifdef FAILS
  return cd::fail(error, 211, "assertion 'x[0] > 0' failed (model.py:7)");
#endif
  (void)error;
  for (int i = 0; i < 10; i++) static_cast<float*>(call->outputs[0])[i] = static_cast<const float*>(call->inputs[0])[i] + 1;
  return 0;
}

#elif defined(MODEL_COUNTER)
constexpr char kInSpec[] = SPEC(LEAF);
constexpr char kOutSpec[] = "[1, " LEAF "]";
constexpr uint64_t kConstantsBytes = 128, kStateOffset = 64, kStateBytes = 64;
const cd::Size kSizes[] = {cd::fixed(4)};
const cd::Input kInputs[] = {{"x", COIL_FLOAT32, 1, kSizes}};
const cd::Signature kSignature = {kInputs, 1, nullptr, 0, nullptr, nullptr, 0, 0};
const CoilTensorDesc kOutputs[] = {{"y", COIL_FLOAT32, 1}};
void output_shape(const int64_t*, int32_t, int64_t* sizes, int64_t* strides) { sizes[0] = 4, strides[0] = 1; }
int64_t arena_bytes(const int64_t*, int32_t) { return 0; }
int32_t run(const CoilCall* call, CoilError*) {
  float* count = reinterpret_cast<float*>(call->state);
  for (int i = 0; i < 4; i++) static_cast<float*>(call->outputs[0])[i] = static_cast<const float*>(call->inputs[0])[i] + *count;
  *count += 1;  // not atomic: the host serialises the calls of a model with state
  return 0;
}

#elif defined(MODEL_TALK)
constexpr char kInSpec[] = SPEC(LEAF ", " LEAF);
constexpr char kOutSpec[] = "[1, " LEAF "]";
constexpr int64_t kRows = 40, kVocabulary = 13;
constexpr uint64_t kConstantsBytes = 0, kStateOffset = 0, kStateBytes = kRows * sizeof(int64_t);
const cd::Symbol kSymbols[] = {{"n", 1, 8}};
const cd::Size kSizes[] = {cd::symbol(0)};
const cd::Input kInputs[] = {{"tokens", COIL_INT64, 1, kSizes}, {"places", COIL_INT64, 1, kSizes}};
const cd::Signature kSignature = {kInputs, 2, kSymbols, 1, nullptr, nullptr, 0, 0};
const CoilTensorDesc kOutputs[] = {{"logits", COIL_FLOAT32, 2}};
void output_shape(const int64_t* s, int32_t, int64_t* sizes, int64_t* strides) { sizes[0] = s[0], sizes[1] = strides[0] = kVocabulary, strides[1] = 1; }
int64_t arena_bytes(const int64_t*, int32_t) { return 0; }
int32_t run(const CoilCall* call, CoilError* error) {
  const int64_t* tokens = static_cast<const int64_t*>(call->inputs[0]);
  const int64_t* places = static_cast<const int64_t*>(call->inputs[1]);
  int64_t* rows = reinterpret_cast<int64_t*>(call->state);
  for (int64_t i = 0; i < call->symbols[0]; i++) {
    if (places[i] < 0 || places[i] >= kRows) return cd::fail(error, 210, "an index is out of range");
  }
  for (int64_t i = 0; i < call->symbols[0]; i++) rows[places[i]] = tokens[i] + 1;
  for (int64_t i = 0; i < call->symbols[0]; i++) {
    uint64_t mixed = 0;
    for (int64_t at = 0; at <= places[i]; at++) mixed = mixed * 31 + static_cast<uint64_t>(rows[at]);
    for (int64_t v = 0; v < kVocabulary; v++)
      static_cast<float*>(call->outputs[0])[i * kVocabulary + v] = static_cast<float>((mixed * 131 + static_cast<uint64_t>(v)) * 2654435761u % 4096) / 512 - 4;
  }
  return 0;
}

#elif defined(MODEL_LATE)
constexpr char kInSpec[] = SPEC(LEAF);
constexpr char kOutSpec[] = TUPLE(LEAF ", " LEAF);
constexpr uint64_t kConstantsBytes = 0, kStateOffset = 0, kStateBytes = 0;
const cd::Symbol kSymbols[] = {{"n", 0, 4096}};
const cd::Size kSizes[] = {cd::symbol(0)};
const cd::Input kInputs[] = {{"x", COIL_FLOAT32, 1, kSizes}};
const cd::Signature kSignature = {kInputs, 1, kSymbols, 1, nullptr, nullptr, 0, 0};
const CoilTensorDesc kOutputs[] = {{"kept", COIL_FLOAT32, 1}, {"doubled", COIL_FLOAT32, 1}};
const uint8_t kLate[] = {1, 0};
// Symbol 1 is solved by run.
void output_shape(const int64_t* s, int32_t i, int64_t* sizes, int64_t* strides) { sizes[0] = s[1 - i], strides[0] = 1; }
int64_t arena_bytes(const int64_t*, int32_t) { return 0; }
int32_t run(const CoilCall* call, CoilError* error) {
  const float* x = static_cast<const float*>(call->inputs[0]);
  const int64_t n = call->symbols[0];
  void* data = nullptr;
  if (call->allocate(call->owner, -1, n * 4, call->symbols, &data, error)) return 1;
  float* found = static_cast<float*>(data);
  int64_t symbols[2] = {n, 0};
  for (int64_t i = 0; i < n; i++) {
    if (x[i] > 0) found[symbols[1]++] = x[i];
  }
  if (call->allocate(call->owner, 0, 0, symbols, &data, error)) return 1;
  for (int64_t i = 0; i < symbols[1]; i++) static_cast<float*>(data)[i] = found[i];
  for (int64_t i = 0; i < n; i++) static_cast<float*>(call->outputs[1])[i] = 2 * x[i];
  return 0;
}

#elif defined(MODEL_LAYOUT)
constexpr char kInSpec[] = SPEC(LEAF ", " LEAF ", " LEAF);
constexpr char kOutSpec[] = "[1, " LEAF "]";
constexpr uint64_t kConstantsBytes = 0, kStateOffset = 0, kStateBytes = 0;
const cd::Symbol kSymbols[] = {{"batch", 0, 8}, {"side", 1, 32}, {"step", 0, cd::kUnbounded}};
const cd::Size kSizes[] = {cd::symbol(0), cd::fixed(3), cd::symbol(1), cd::linear(1, 2, 0), cd::expr(1)};
const cd::Size kStrides[] = {cd::expr(0), cd::fixed(1), cd::linear(1, 6, 0), cd::fixed(3)};
const char* const kTexts[] = {"6*side**2", "side**2 + 1", "(batch + side) % 2 == 0"};
int64_t evaluate(int32_t i, const int64_t* s) {
  switch (i) {
    case 0: return 6 * s[1] * s[1];
    case 1: return s[1] * s[1] + 1;
    case 2: return (s[0] + s[1]) % 2 == 0;
  }
  return 0;
}
const cd::Input kInputs[] = {
    {"x", COIL_FLOAT32, 4, kSizes, kStrides}, {.name = "step", .dtype = COIL_INT64, .symbol = 2}, {"tail", COIL_FLOAT32, 1, kSizes + 4}};
const cd::Signature kSignature = {kInputs, 3, kSymbols, 3, evaluate, kTexts, 2, 1};
const CoilTensorDesc kOutputs[] = {{"y", COIL_FLOAT32, 2}};
void output_shape(const int64_t* s, int32_t, int64_t* sizes, int64_t* strides) {
  sizes[0] = 2 * s[1], sizes[1] = s[0];
  strides[0] = 1, strides[1] = 2 * s[1];
}
int64_t arena_bytes(const int64_t*, int32_t) { return 0; }
int32_t run(const CoilCall* call, CoilError*) {
  const int64_t batch = call->symbols[0], side = call->symbols[1], step = call->symbols[2];
  const float* x = static_cast<const float*>(call->inputs[0]);
  const float* tail = static_cast<const float*>(call->inputs[2]);
  for (int64_t n = 0; n < batch; n++)
    for (int64_t w = 0; w < 2 * side; w++)
      static_cast<float*>(call->outputs[0])[n * 2 * side + w] = x[n * 6 * side * side + w * 3] * static_cast<float>(step) + tail[0];
  return 0;
}
#endif

constexpr int32_t kLevels[] = {LEVELS};
int32_t select(const char** name, CoilError* error) { return cd::select_isa(kLevels, sizeof kLevels / sizeof kLevels[0], name, error) < 0; }
int32_t bind(const CoilTensorView* inputs, int32_t count, int64_t* symbols, CoilError* error) {
  return cd::bind_inputs(kSignature, inputs, count, symbols, error);
}
int32_t find_fault(const CoilTensorView* inputs, int32_t count, int64_t* symbols, CoilInputFault* fault, CoilError* error) {
  return cd::bind_inputs(kSignature, inputs, count, symbols, error, fault);
}

const CoilTensorDesc kInputDescs[] = {
    {kInputs[0].name, kInputs[0].dtype, kInputs[0].ndim},
#if defined(MODEL_MASKED) || defined(MODEL_LAYOUT)
    {kInputs[1].name, kInputs[1].dtype, kInputs[1].ndim},
    {kInputs[2].name, kInputs[2].dtype, kInputs[2].ndim},
#elif defined(MODEL_TALK)
    {kInputs[1].name, kInputs[1].dtype, kInputs[1].ndim},
#endif
};

const CoilModel kModel = {
#ifdef BAD_ABI
    .abi_version = COIL_ABI_VERSION + 7,
#else
    .abi_version = COIL_ABI_VERSION,
#endif
    .struct_bytes = sizeof(CoilModel),
    .num_inputs = kSignature.num_inputs,
    .num_outputs = sizeof kOutputs / sizeof kOutputs[0],
#if defined(MODEL_LATE)
    .num_symbols = 2,
#else
    .num_symbols = kSignature.num_symbols,
#endif
    .device_type = COIL_CPU,
    .inputs = kInputDescs,
    .outputs = kOutputs,
    .in_spec = kInSpec,
    .out_spec = kOutSpec,
    .constants_bytes = kConstantsBytes,
    .constants_hash = 0x1234,
    .state_offset = kStateOffset,
    .state_bytes = kStateBytes,
    .select = select,
    .bind = bind,
    .output_shape = output_shape,
    .arena_bytes = arena_bytes,
    .run = run,
    .load_device = nullptr,
    .unload_device = nullptr,
    .flag_error = nullptr,
    .count_graphs = nullptr,
#if defined(MODEL_LATE)
    .reads_sizes = 1,
    .late_outputs = kLate,
#else
    .reads_sizes = 0,
    .late_outputs = nullptr,
#endif
    .run_traced = nullptr,
    .find_fault = find_fault,
    .sample = nullptr,
    .sample_row_bytes = 0,
};

}  // namespace

#ifndef NO_SYMBOL
extern "C" __attribute__((visibility("default"))) const CoilModel* coil_model(void) { return &kModel; }
#else
extern "C" __attribute__((visibility("hidden"))) const CoilModel* coil_model(void) { return &kModel; }
#endif
