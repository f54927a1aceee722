// See cuda_dnn.h. cuDNN's graph interface: everything is a descriptor with numbered attributes; the numbers are declared here.
#include "cuda_dnn.h"

#include "cuda_graph.h"
#include "cuda_loader.h"
#include "cuda_plans.h"

namespace cd {
namespace {

constexpr int32_t kMostNotes = 16;
constexpr int32_t kMostAdvised = 64;  // for float32 many of the first use TF32
constexpr uint64_t kAlign = kLibraryAlign;
constexpr int64_t kWorkspaceBytes = kLibraryWorkspaceBytes;

enum : int32_t { kConvolution = 1, kEngine = 2, kEngineConfig = 3, kAdvice = 4, kExecutionPlan = 5, kForward = 10, kGraph = 15, kPack = 16, kTensor = 17 };
enum : int32_t { kHandleType = 0, kDataType = 1, kInt64 = 3, kFloat = 4, kPointer = 6, kConvMode = 7, kAdviceMode = 8, kNoteType = 11, kDescriptor = 15 };
enum : int32_t {
  kConvCompute = 100,
  kConvConvMode = 101,
  kConvDilations = 102,
  kConvStrides = 103,
  kConvPostPaddings = 104,
  kConvPrePaddings = 105,
  kConvSpatialDims = 106,
  kAdviceOfMode = 200,
  kAdviceOfGraph = 201,
  kAdviceResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kForwardAlpha = 700,
  kForwardBeta = 701,
  kForwardConv = 702,
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kGraphHandle = 800,
  kGraphOps = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNotes = 1303
};
enum : int32_t { kTypeFloat = 0, kTypeHalf = 2, kTypeBfloat16 = 9, kCrossCorrelation = 1, kAdviceA = 3 };
enum : int32_t { kNoteTensorCore = 0, kNoteStrictNan = 9 };  // the others: less precise, or not the same bits each time

struct Functions {
  size_t (*version)();
  int32_t (*create)(void** handle);
  int32_t (*destroy)(void* handle);
  int32_t (*set_stream)(void* handle, void* stream);
  int32_t (*make)(int32_t type, void** descriptor);
  int32_t (*remove)(void* descriptor);
  int32_t (*finalize)(void* descriptor);
  int32_t (*set)(void* descriptor, int32_t name, int32_t type, int64_t count, const void* values);
  int32_t (*get)(void* descriptor, int32_t name, int32_t type, int64_t most, int64_t* count, void* values);
  int32_t (*execute)(void* handle, void* plan, void* pack);
};

struct Key {
  int64_t dtype, n, ic, ih, iw, oc, oh, ow;
  int64_t kernel[2], stride[2], pad[2], dilation[2];
  int64_t x[4];  // strides
};
struct Plan {
  bool usable, warm;
  void* plan;
  int64_t workspace;
};

Functions dnn;

const CudaSymbol kSymbols[] = {
    {&dnn.version, "cudnnGetVersion"},
    {&dnn.create, "cudnnCreate"},
    {&dnn.destroy, "cudnnDestroy"},
    {&dnn.set_stream, "cudnnSetStream"},
    {&dnn.make, "cudnnBackendCreateDescriptor"},
    {&dnn.remove, "cudnnBackendDestroyDescriptor"},
    {&dnn.finalize, "cudnnBackendFinalize"},
    {&dnn.set, "cudnnBackendSetAttribute"},
    {&dnn.get, "cudnnBackendGetAttribute"},
    {&dnn.execute, "cudnnBackendExecute"},
};
const CudaLibraryTable kTable = {"cuDNN", "COIL_CUDNN", {"libcudnn.so.9", nullptr}, kSymbols, sizeof kSymbols / sizeof kSymbols[0], &dnn.version};

// A descriptor that is removed with its scope. The first failure makes all that follows do nothing.
class Descriptor {
 public:
  explicit Descriptor(int32_t type) : right_(dnn.make(type, &made_) == 0) {
    if (!right_) made_ = nullptr;
  }
  ~Descriptor() {
    if (made_) dnn.remove(made_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  Descriptor& set(int32_t name, int32_t type, const void* values, int64_t count = 1) {
    right_ = right_ && dnn.set(made_, name, type, count, values) == 0;
    return *this;
  }
  Descriptor& set(int32_t name, const Descriptor& value) {
    right_ = right_ && value.right_;
    return set(name, kDescriptor, &value.made_);
  }
  bool finish() {
    right_ = right_ && dnn.finalize(made_) == 0;
    return right_;
  }
  bool right() const { return right_; }
  void* get() const { return made_; }
  void* take() {
    void* taken = made_;
    made_ = nullptr;
    return taken;
  }

 private:
  void* made_ = nullptr;
  bool right_;
};

bool tensor(Descriptor& d, int64_t id, int32_t type, const int64_t (&sizes)[4], const int64_t (&strides)[4]) {
  const int64_t align = 16;
  return d.set(kTensorType, kDataType, &type)
      .set(kTensorSizes, kInt64, sizes, 4)
      .set(kTensorStrides, kInt64, strides, 4)
      .set(kTensorId, kInt64, &id)
      .set(kTensorAlignment, kInt64, &align)
      .finish();
}

int64_t element_bytes(int64_t dtype) { return dtype == COIL_FLOAT32 ? 4 : 2; }

// Whether an engine is as exact as our own kernels and gives the same bits each time. On tensor cores float32 is TF32.
bool exact(void* config, bool tensor_cores) {
  Descriptor engine(kEngine);
  void* place = engine.get();
  int64_t count = 0;
  if (!engine.right() || dnn.get(config, kConfigEngine, kDescriptor, 1, &count, &place) != 0 || count != 1) return false;
  int32_t notes[kMostNotes];
  if (dnn.get(engine.get(), kEngineNotes, kNoteType, kMostNotes, &count, notes) != 0) return false;
  for (int64_t i = 0; i < count && i < kMostNotes; i++) {
    if (notes[i] != kNoteStrictNan && !(notes[i] == kNoteTensorCore && tensor_cores)) return false;
  }
  return true;
}

// The first of the advised ways that is exact, that the device can run and that has enough workspace.
void choose(void* handle, Descriptor& graph, bool tensor_cores, Plan* plan) {
  const int32_t mode = kAdviceA;
  Descriptor advice(kAdvice);
  if (!advice.set(kAdviceOfGraph, graph).set(kAdviceOfMode, kAdviceMode, &mode).finish()) return;
  void* configs[kMostAdvised] = {};
  int64_t count = 0;
  bool right = true;
  for (void*& c : configs) right = right && dnn.make(kEngineConfig, &c) == 0;
  right = right && dnn.get(advice.get(), kAdviceResults, kDescriptor, kMostAdvised, &count, configs) == 0;
  for (int64_t i = 0; right && i < count && i < kMostAdvised && !plan->plan; i++) {
    if (!exact(configs[i], tensor_cores)) continue;
    Descriptor made(kExecutionPlan);
    int64_t got = 0;
    if (!made.set(kPlanHandle, kHandleType, &handle).set(kPlanConfig, kDescriptor, &configs[i]).finish()) continue;
    if (dnn.get(made.get(), kPlanWorkspace, kInt64, 1, &got, &plan->workspace) != 0 || plan->workspace > kWorkspaceBytes) continue;
    plan->plan = made.take();
  }
  for (void* c : configs) {
    if (c) dnn.remove(c);
  }
}

void fill(void* handle, const Key& k, Plan* plan) {
  const bool single = k.dtype == COIL_FLOAT32;
  const int32_t type = single ? kTypeFloat : k.dtype == COIL_FLOAT16 ? kTypeHalf : kTypeBfloat16;
  const int32_t sums = kTypeFloat, mode = kCrossCorrelation;
  const int64_t two = 2, ic = k.ic, oc = k.oc;
  const float one = 1, zero = 0;
  Descriptor x(kTensor), w(kTensor), y(kTensor), conv(kConvolution), forward(kForward), graph(kGraph);
  conv.set(kConvCompute, kDataType, &sums).set(kConvConvMode, kConvMode, &mode).set(kConvSpatialDims, kInt64, &two);
  conv.set(kConvDilations, kInt64, k.dilation, 2).set(kConvStrides, kInt64, k.stride, 2).set(kConvPrePaddings, kInt64, k.pad, 2);
  conv.set(kConvPostPaddings, kInt64, k.pad, 2);
  if (!tensor(x, 1, type, {k.n, ic, k.ih, k.iw}, k.x)) return;
  if (!tensor(w, 2, type, {oc, ic, k.kernel[0], k.kernel[1]}, {k.kernel[0] * k.kernel[1] * ic, 1, k.kernel[1] * ic, ic})) return;
  if (!tensor(y, 3, type, {k.n, oc, k.oh, k.ow}, {k.oh * k.ow * oc, 1, k.ow * oc, oc})) return;
  if (!conv.finish()) return;
  forward.set(kForwardConv, conv).set(kForwardX, x).set(kForwardW, w).set(kForwardY, y);
  forward.set(kForwardAlpha, kFloat, &one).set(kForwardBeta, kFloat, &zero);
  if (!forward.finish()) return;
  if (graph.set(kGraphHandle, kHandleType, &handle).set(kGraphOps, forward).finish()) choose(handle, graph, !single, plan);
}

bool key_of(const CudaConv2d& t, int32_t dtype, Key* key) {
  const bool known = dtype == COIL_FLOAT32 || dtype == COIL_BFLOAT16 || dtype == COIL_FLOAT16;
  const uint64_t addresses = reinterpret_cast<uint64_t>(t.x) | reinterpret_cast<uint64_t>(t.w);
  if (!known || t.groups != 1 || addresses % 16 != 0 || t.n <= 0 || t.ic <= 0 || t.oc <= 0 || t.oh <= 0 || t.ow <= 0) return false;
  if (t.x_c != 1 || t.x_w < t.ic || t.x_h < t.x_w * t.iw || t.x_n < t.x_h * t.ih) return false;
  *key = {dtype,
          t.n,
          t.ic,
          t.ih,
          t.iw,
          t.oc,
          t.oh,
          t.ow,
          {t.kh, t.kw},
          {t.stride_h, t.stride_w},
          {t.pad_h, t.pad_w},
          {t.dilation_h, t.dilation_w},
          {t.x_n, t.x_c, t.x_h, t.x_w}};
  return true;
}

struct Dnn {
  using Key = cd::Key;
  using Plan = cd::Plan;
  static constexpr int32_t kAttachment = kCudnnAttachment;
  static bool load() { return cuda_load_library(kTable); }
  static bool create(void** handle) { return dnn.create(handle) == 0; }
  static void destroy(void* handle) { dnn.destroy(handle); }
  static void clear(Plan* plan) {
    if (plan->plan) dnn.remove(plan->plan);
    plan->plan = nullptr;
  }
  static void fill(void* handle, const Key& key, Plan* plan) {
    cd::fill(handle, key, plan);
    plan->usable = plan->plan != nullptr;
    cuda_trace("cuDNN %lld x %lld x %lld, %lld to %lld channels, %lld x %lld, dtype %lld: %s", static_cast<long long>(key.n), static_cast<long long>(key.oh),
               static_cast<long long>(key.ow), static_cast<long long>(key.ic), static_cast<long long>(key.oc), static_cast<long long>(key.kernel[0]),
               static_cast<long long>(key.kernel[1]), static_cast<long long>(key.dtype), plan->usable ? "used" : "cannot");
  }
};
using Plans = CudaPlans<Dnn>;

// Under the lock, which guards the handle's stream, too.
bool run(const CudaCall* call, CudaConv2d* t, int64_t dtype, void* handle, Plan* plan) {
  char* result = reinterpret_cast<char*>((reinterpret_cast<uint64_t>(t->scratch) + kAlign - 1) / kAlign * kAlign);
  const uint64_t result_bytes = static_cast<uint64_t>(t->n * t->oh * t->ow * t->oc * element_bytes(dtype));
  char* workspace = result + (result_bytes + kAlign - 1) / kAlign * kAlign;
  const int64_t ids[] = {1, 2, 3};
  const void* const pointers[] = {t->x, t->w, result};
  Descriptor pack(kPack);
  if (!pack.set(kPackIds, kInt64, ids, 3).set(kPackPointers, kPointer, pointers, 3).set(kPackWorkspace, kPointer, &workspace).finish()) return false;
  if (dnn.set_stream(handle, call->stream) != 0) return false;
  const int32_t status = dnn.execute(handle, plan->plan, pack.get());
  if (status != 0) {
    cuda_trace("cuDNN: a convolution failed with status %d", status);
    Dnn::clear(plan);
    plan->usable = false;
    return false;
  }
  plan->warm = true;
  t->scratch = result;
  return true;
}

}  // namespace

bool cudnn_conv(const CudaCall* call, CudaConv2d* t, int32_t dtype) {
  if (call->tape) return tape_refuse(call->tape), false;
  Key key;
  if (!key_of(*t, dtype, &key)) return false;
  void* handle = nullptr;
  Plans::lock();
  Plan* plan = Plans::find(call, key, &handle);
  const bool done = plan && run(call, t, dtype, handle, plan);
  Plans::unlock();
  return done;
}

}  // namespace cd
