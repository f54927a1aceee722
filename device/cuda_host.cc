// See cuda_host.h.
#include "cuda_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "host_support.h"

namespace cd {
namespace {

enum : int32_t { kWrongMachine = 303, kLoadFailed = 304, kOutOfMemory = 401, kDeviceFailed = 404, kInternal = 901 };

constexpr int32_t kSharedWithoutAsking = 48 * 1024;
constexpr int32_t kClusterWithoutAsking = 8;
constexpr int64_t kMaxGridX = 0x7fffffff;
constexpr int64_t kMaxGridYZ = 65535;

struct Device {
  const CudaDriver* driver;
  const CudaCode* code;
  void* context;
  int32_t ordinal;
  int32_t device;
  int32_t sm;
  int32_t multiprocessors;
  bool synchronous;  // COIL_CUDA_SYNC: wait for each kernel, so that a failure names the one that failed
  int32_t num_modules;
  void** modules;    // [code->num_images]
  void** functions;  // [code->num_kernels], null: no image of this device has it
  CudaAttachment attachments[kCudaAttachments];
};

const Device& device_of(const CoilCall* call) { return *static_cast<const Device*>(call->device); }

// Whether the image runs on compute capability `sm`; better images have higher numbers. 0: it does not.
int32_t fitness(const CudaImage& image, int32_t sm) {
  switch (image.kind) {
    case 0:
      return image.sm == sm ? 30000 + image.sm : 0;
    case 1:
      return image.sm / 10 == sm / 10 && image.sm <= sm ? 20000 + image.sm : 0;
    case 2:
      return image.sm <= sm ? 10000 + image.sm : 0;
    default:
      return 0;
  }
}

bool device_name(const Device& d, char* name, int32_t bytes) {
  name[0] = 0;
  return d.driver->device_name(name, bytes, d.device) == kCudaSuccess && name[0];
}

int32_t fail_architecture(const Device& d, CoilError* error) {
  char name[128];
  const bool known = device_name(d, name, sizeof name);
  fail(error, kWrongMachine,
       "the package holds CUDA code for %s; device cuda:%d is %s%ssm_%d; compile the program for it: coil compile --target "
       "cuda:sm_%d",
       d.code->architectures, d.ordinal, known ? name : "", known ? ", " : "", d.sm, d.sm);
  return kWrongMachine;
}

int32_t load_image(Device* d, const CudaImage& image, CoilError* error) {
  void* module = nullptr;
  const CudaResult result = d->driver->load_module(&module, image.data);
  if (result != kCudaSuccess) {
    char what[160];
    snprintf(what, sizeof what, "cannot load the package's CUDA code for sm_%d on cuda:%d", image.sm, d->ordinal);
    cuda_fail(d->driver, result, error, what);
    if (error->code == kDeviceFailed) error->code = kLoadFailed;
    return error->code;
  }
  d->modules[d->num_modules++] = module;
  for (int32_t k = 0; k < d->code->num_kernels; k++) {
    if (d->functions[k]) continue;
    void* function = nullptr;
    const CudaResult found = d->driver->find_function(&function, module, d->code->kernels[k].name);
    if (found == kCudaSuccess) {
      d->functions[k] = function;
    } else if (found != kCudaNotFound) {
      return cuda_fail(d->driver, found, error, d->code->kernels[k].label);
    }
  }
  return 0;
}

// A kernel may ask for more than every device has: then it is as if the image lacked it.
void prepare_function(Device* d, int32_t k, int32_t max_shared) {
  const CudaKernel& kernel = d->code->kernels[k];
  if (!d->functions[k]) return;
  bool able = kernel.shared_bytes <= max_shared;
  if (able && kernel.shared_bytes > kSharedWithoutAsking)
    able = d->driver->set_function(d->functions[k], kCudaFunctionSharedBytes, kernel.shared_bytes) == kCudaSuccess;
  if (able && kernel.cluster > 1) able = d->sm >= 90 && d->driver->launch_ex;
  if (able && kernel.cluster > kClusterWithoutAsking)
    able = d->driver->set_function(d->functions[k], kCudaFunctionBigClusters, 1) == kCudaSuccess;
  if (!able) d->functions[k] = nullptr;
}

int32_t load_code(Device* d, CoilError* error) {
  const CudaCode& code = *d->code;
  int32_t best = 0;
  for (int32_t i = 0; i < code.num_images; i++) {
    const int32_t f = fitness(code.images[i], d->sm);
    if (f > best) best = f;
  }
  for (int32_t i = 0; i < code.num_images; i++) {
    if (fitness(code.images[i], d->sm) != best) continue;
    if (const int32_t failed = load_image(d, code.images[i], error)) return failed;
  }
  int32_t max_shared = kSharedWithoutAsking;
  d->driver->device_attribute(&max_shared, kCudaMaxSharedBytes, d->device);
  for (int32_t k = 0; k < code.num_kernels; k++) prepare_function(d, k, max_shared);
  return 0;
}

void destroy(Device* d) {
  if (d->context) {
    {
      const CudaScope scope(d->driver, d->context);
      void* current = nullptr;  // a process that ends may have ended the driver already
      const bool alive = d->driver->current(&current) == kCudaSuccess;
      for (CudaAttachment& a : d->attachments) {
        if (a.state && alive) a.drop(a.state);
      }
      for (int32_t i = 0; i < d->num_modules; i++) d->driver->unload_module(d->modules[i]);
    }
    d->driver->release(d->device);
  }
  free(d->modules);
  free(d->functions);
  free(d);
}

int32_t open_device(Device* d, CoilError* error) {
  const CudaDriver& driver = *d->driver;
  if (const int32_t failed = cuda_find_device(&driver, d->ordinal, &d->device, error)) return failed;
  int32_t major = 0, minor = 0;
  driver.device_attribute(&major, kCudaMajor, d->device);
  driver.device_attribute(&minor, kCudaMinor, d->device);
  driver.device_attribute(&d->multiprocessors, kCudaMultiprocessors, d->device);
  d->sm = major * 10 + minor;
  bool fits = d->code->num_images == 0;  // a program without kernels
  for (int32_t i = 0; i < d->code->num_images; i++) fits |= fitness(d->code->images[i], d->sm) > 0;
  if (!fits) return fail_architecture(*d, error);  // before the context, which costs memory and 0.2 s
  if (const CudaResult result = driver.retain(&d->context, d->device)) {
    d->context = nullptr;
    char what[64];
    snprintf(what, sizeof what, "cannot start device cuda:%d", d->ordinal);
    return cuda_fail(&driver, result, error, what);
  }
  const CudaScope scope(&driver, d->context);
  return load_code(d, error);
}

__attribute__((noinline, cold)) int32_t fail_kernel(const Device& d, int32_t kernel, CudaResult result, CoilError* error) {
  char what[512];
  snprintf(what, sizeof what, "cuda:%d: kernel %s failed", d.ordinal, d.code->kernels[kernel].label);
  return cuda_fail(d.driver, result, error, what);
}

// The driver's number of an element type (CUtensorMapDataType), or -1.
int32_t map_type(int32_t dtype, int32_t* bytes) {
  switch (dtype) {
    case COIL_UINT8:
    case COIL_INT8:
    case COIL_BOOL:
      *bytes = 1;
      return 0;
    case COIL_INT16:
      *bytes = 2;
      return 1;
    case COIL_INT32:
      *bytes = 4;
      return 3;
    case COIL_INT64:
      *bytes = 8;
      return 5;
    case COIL_FLOAT16:
      *bytes = 2;
      return 6;
    case COIL_FLOAT32:
      *bytes = 4;
      return 7;
    case COIL_FLOAT64:
      *bytes = 8;
      return 8;
    case COIL_BFLOAT16:
      *bytes = 2;
      return 9;
    default:
      return -1;
  }
}

}  // namespace

int32_t select_cuda(const char** name, CoilError*) {
  *name = "cuda";
  return 0;
}

int32_t cuda_load(const CudaCode& code, int32_t ordinal, void** device, CoilError* error) {
  *device = nullptr;
  const CudaDriver* driver = cuda_driver(error);
  if (!driver) return error->code;
  Device* d = static_cast<Device*>(calloc(1, sizeof(Device)));
  if (!d) return fail(error, kOutOfMemory, "no memory for the model's code"), error->code;
  d->driver = driver;
  d->code = &code;
  d->ordinal = ordinal;
  const char* sync = getenv("COIL_CUDA_SYNC");
  d->synchronous = sync && *sync && strcmp(sync, "0") != 0;
  d->modules = static_cast<void**>(calloc(static_cast<size_t>(code.num_images) + 1, sizeof(void*)));
  d->functions = static_cast<void**>(calloc(static_cast<size_t>(code.num_kernels) + 1, sizeof(void*)));
  int32_t failed = kOutOfMemory;
  if (d->modules && d->functions)
    failed = open_device(d, error);
  else
    fail(error, kOutOfMemory, "no memory for the model's code");
  if (failed) {
    destroy(d);
    return failed;
  }
  *device = d;
  return 0;
}

void cuda_unload(void* device) {
  if (device) destroy(static_cast<Device*>(device));
}

bool cuda_has(const CoilCall* call, int32_t kernel) { return device_of(call).functions[kernel]; }
int32_t cuda_sms(const CoilCall* call) { return device_of(call).multiprocessors; }
int32_t cuda_sm(const CoilCall* call) { return device_of(call).sm; }
CudaAttachment* cuda_attachment(const CoilCall* call, int32_t which) {
  return &static_cast<Device*>(call->device)->attachments[which];
}

int32_t cuda_launch(const CoilCall* call, int32_t kernel, int64_t gx, int64_t gy, int64_t gz, void** params, CoilError* error) {
  if (gx == 0 || gy == 0 || gz == 0) return 0;
  const Device& d = device_of(call);
  const CudaKernel& k = d.code->kernels[kernel];
  if (gx < 0 || gx > kMaxGridX || gy < 0 || gy > kMaxGridYZ || gz < 0 || gz > kMaxGridYZ) {
    fail(error, kInternal, "kernel %s: a grid of %lld x %lld x %lld blocks; this is a bug in coil", k.label,
         static_cast<long long>(gx), static_cast<long long>(gy), static_cast<long long>(gz));
    return kInternal;
  }
  void* function = d.functions[kernel];
  if (!function) {
    fail(error, kWrongMachine,
         "kernel %s: the package holds no code for sm_%d (it has %s); compile the program for it: --target cuda:sm_%d", k.label,
         d.sm, d.code->architectures, d.sm);
    return kWrongMachine;
  }
  const uint32_t x = static_cast<uint32_t>(gx), y = static_cast<uint32_t>(gy), z = static_cast<uint32_t>(gz);
  const uint32_t threads = static_cast<uint32_t>(k.threads), shared = static_cast<uint32_t>(k.shared_bytes);
  CudaResult result;
  if (k.cluster <= 1) {
    result = d.driver->launch(function, x, y, z, threads, 1, 1, shared, call->stream, params, nullptr);
  } else {
    CudaLaunchAttribute attribute = {};
    attribute.id = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.cluster[0] = static_cast<uint32_t>(k.cluster), attribute.cluster[1] = attribute.cluster[2] = 1;
    const CudaLaunchConfig config = {{x, y, z}, {threads, 1, 1}, shared, call->stream, &attribute, 1};
    result = d.driver->launch_ex(&config, function, params, nullptr);
  }
  if (__builtin_expect(d.synchronous && result == kCudaSuccess, false)) {
    int32_t capturing = 0;
    d.driver->is_capturing(call->stream, &capturing);
    if (!capturing) result = d.driver->synchronise_stream(call->stream);
  }
  return __builtin_expect(result != kCudaSuccess, false) ? fail_kernel(d, kernel, result, error) : 0;
}

int32_t cuda_copy(const CoilCall* call, void* to, const void* from, uint64_t bytes, CoilError* error) {
  if (!bytes) return 0;
  const CudaDriver* driver = device_of(call).driver;
  const CudaResult result =
      driver->copy(reinterpret_cast<CudaAddress>(to), reinterpret_cast<CudaAddress>(from), bytes, call->stream);
  return result == kCudaSuccess ? 0 : cuda_fail(driver, result, error, "a copy on the device failed");
}

int32_t cuda_zero(const CoilCall* call, void* to, uint64_t bytes, CoilError* error) {
  if (!bytes) return 0;
  const CudaDriver* driver = device_of(call).driver;
  const CudaResult result = driver->fill(reinterpret_cast<CudaAddress>(to), 0, bytes, call->stream);
  return result == kCudaSuccess ? 0 : cuda_fail(driver, result, error, "clearing memory on the device failed");
}

int32_t cuda_tensor_map(const CoilCall* call, CudaTensorMap* map, int32_t dtype, const void* base, int64_t rows, int64_t cols,
                        int64_t pitch_bytes, int32_t box_rows, int32_t box_cols, CoilError* error) {
  const Device& d = device_of(call);
  int32_t bytes = 0;
  const int32_t type = map_type(dtype, &bytes);
  if (!d.driver->encode_tiled || type < 0) {
    fail(error, kInternal, "tensor maps are not to be had here (driver before CUDA 12, or dtype number %d)", dtype);
    return kInternal;
  }
  const uint64_t sizes[2] = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
  const uint64_t strides[1] = {static_cast<uint64_t>(pitch_bytes)};
  const uint32_t box[2] = {static_cast<uint32_t>(box_cols), static_cast<uint32_t>(box_rows)};
  const uint32_t ones[2] = {1, 1};
  constexpr int32_t kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3, kZeros = 0;
  const CudaResult result = d.driver->encode_tiled(map, type, 2, const_cast<void*>(base), sizes, strides, box, ones,
                                                   kNoInterleave, kSwizzle128, kPromote256, kZeros);
  if (result == kCudaSuccess) return 0;
  char what[256];
  snprintf(what, sizeof what, "no tensor map for %lld x %lld elements of %d bytes, %lld bytes a row, at %p, boxes of %d x %d",
           static_cast<long long>(rows), static_cast<long long>(cols), bytes, static_cast<long long>(pitch_bytes), base,
           box_rows, box_cols);
  return cuda_fail(d.driver, result, error, what);
}

}  // namespace cd
