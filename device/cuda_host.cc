// See cuda_host.h.
#include "cuda_host.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_device.h"
#include "cuda/limits.h"
#include "cuda_graph.h"
#include "host_support.h"

namespace cd {
namespace {

enum : int32_t { kUnsupported = 105, kInputSize = 204, kBadPackage = 301, kWrongMachine = 303, kLoadFailed = 304, kOutOfMemory = 401, kDeviceFailed = 404 };

constexpr int32_t kClusterWithoutAsking = 8;
constexpr int32_t kEarlyStartDriver = 12030;  // CUDA 12.3

// Whether the image runs on compute capability `sm`; better images have higher numbers. 0: it does not.
int32_t fitness(const CudaImage& image, int32_t sm) {
  switch (image.kind) {
    case 0: return image.sm == sm ? 30000 + image.sm : 0;
    case 1: return image.sm / 10 == sm / 10 && image.sm <= sm ? 20000 + image.sm : 0;
    case 2: return image.sm <= sm ? 10000 + image.sm : 0;
    default: return 0;
  }
}

bool device_name(const CudaLoaded& d, char* name, int32_t bytes) {
  name[0] = 0;
  return d.driver->device_name(name, bytes, d.device) == kCudaSuccess && name[0];
}

int32_t fail_architecture(const CudaLoaded& d, CoilError* error) {
  char name[128];
  const bool known = device_name(d, name, sizeof name);
  fail(error, kWrongMachine,
       "the package holds CUDA code for %s; device cuda:%d is %s%ssm_%d; compile the program for it: coil compile --target "
       "cuda:sm_%d",
       d.code->architectures, d.ordinal, known ? name : "", known ? ", " : "", d.sm, d.sm);
  return kWrongMachine;
}

// Whether the kernel may be in image number `i`: names of kernels that another compiler made are unique in their image only.
bool may_hold(const CudaCode& code, int32_t i, const CudaKernel& kernel) {
  if (kernel.image) return kernel.image == i + 1;
  for (int32_t k = 0; k < code.num_kernels; k++) {
    if (code.kernels[k].image == i + 1) return false;
  }
  return true;
}

int32_t load_image(CudaLoaded* d, int32_t number, CoilError* error) {
  const CudaImage& image = d->code->images[number];
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
    if (d->functions[k] || !may_hold(*d->code, number, d->code->kernels[k])) continue;
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

// Clusters lie within a part of the chip, and what fours leave over differs from chip to chip.
void count_fours(CudaLoaded* d, void* function, const CudaKernel& kernel) {
  CudaLaunchAttribute attribute = {};
  attribute.id = kCudaClusterDimension;
  attribute.cluster[0] = 4, attribute.cluster[1] = attribute.cluster[2] = 1;
  CudaLaunchConfig config = {};
  config.grid[0] = static_cast<uint32_t>(d->multiprocessors) / 4 * 4, config.grid[1] = config.grid[2] = 1;
  config.block[0] = static_cast<uint32_t>(kernel.threads), config.block[1] = config.block[2] = 1;
  config.shared_bytes = static_cast<uint32_t>(kernel.shared_bytes);
  config.attributes = &attribute, config.num_attributes = 1;
  int32_t found = 0;
  if (!d->driver->active_clusters || d->driver->active_clusters(&found, function, &config) != kCudaSuccess) return;
  if (found > 0 && found < d->fours) d->fours = found;
}

int32_t max_shared_bytes(const CudaLoaded& d) {
  int32_t bytes = kSharedWithoutAsking;
  d.driver->device_attribute(&bytes, kCudaMaxSharedBytes, d.device);
  return bytes;
}

// A kernel may ask for more than every device has: then it is as if the image lacked it (cuda_absent tells the two apart).
void prepare_function(CudaLoaded* d, int32_t k, int32_t max_shared) {
  const CudaKernel& kernel = d->code->kernels[k];
  if (!d->functions[k]) return;
  bool able = kernel.shared_bytes <= max_shared;
  if (able && kernel.shared_bytes > kSharedWithoutAsking)
    able = d->driver->set_function(d->functions[k], kCudaFunctionSharedBytes, kernel.shared_bytes) == kCudaSuccess;
  if (able && kernel.cluster > 1) able = d->sm >= 90 && d->driver->launch_ex;
  if (able && kernel.cluster > kClusterWithoutAsking) able = d->driver->set_function(d->functions[k], kCudaFunctionBigClusters, 1) == kCudaSuccess;
  if (able && kernel.cluster == 4) count_fours(d, d->functions[k], kernel);
  if (!able) d->functions[k] = nullptr;
}

// Whether the driver has both the launch of a kernel that waits by itself and its edge in graphs.
bool may_start_early(const CudaDriver& driver) {
  const char* wish = getenv("COIL_CUDA_EARLY");
  int32_t version = 0;
  if ((wish && strcmp(wish, "0") == 0) || !driver.launch_ex || !driver.add_edges) return false;
  return driver.driver_version(&version) == kCudaSuccess && version >= kEarlyStartDriver;
}

int32_t load_code(CudaLoaded* d, CoilError* error) {
  const CudaCode& code = *d->code;
  int32_t best = 0, sm = 0;
  for (int32_t i = 0; i < code.num_images; i++) {
    const int32_t f = fitness(code.images[i], d->sm);
    if (f > best) best = f;
  }
  for (int32_t i = 0; i < code.num_images; i++) {
    if (fitness(code.images[i], d->sm) != best) continue;
    sm = code.images[i].sm;
    if (const int32_t failed = load_image(d, i, error)) return failed;
  }
  d->early = sm >= 90 && may_start_early(*d->driver);
  d->fours = d->multiprocessors / 16 * 4;
  const int32_t max_shared = max_shared_bytes(*d);
  for (int32_t k = 0; k < code.num_kernels; k++) prepare_function(d, k, max_shared);
  return 0;
}

void destroy(CudaLoaded* d) {
  if (d->context) {
    {
      const CudaScope scope(d->driver, d->context);
      void* current = nullptr;  // a process that ends may have ended the driver already
      const bool alive = d->driver->current(&current) == kCudaSuccess;
      cuda_graphs_close(d->graphs, alive);
      for (CudaAttachment& a : d->attachments) {
        if (a.state && alive) a.drop(a.state);
      }
      for (int32_t i = 0; i < d->num_modules; i++) d->driver->unload_module(d->modules[i]);
    }
    d->driver->release(d->device);
  }
  free(d->modules);
  free(d->functions);
  cuda_maps_close(d->maps);
  free(d);
}

int32_t open_device(CudaLoaded* d, CoilError* error) {
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
  if (const int32_t failed = load_code(d, error)) return failed;
  if (!d->synchronous) d->graphs = cuda_graphs_open(&driver, d->context, d->early);
  return 0;
}

__attribute__((noinline, cold)) int32_t fail_kernel(const CudaLoaded& d, int32_t kernel, CudaResult result, CoilError* error) {
  char what[512];
  snprintf(what, sizeof what, "cuda:%d: kernel %s failed", d.ordinal, d.code->kernels[kernel].label);
  return cuda_fail(d.driver, result, error, what);
}

__attribute__((noinline, cold)) int32_t fail_grid(const CudaKernel& k, int64_t gx, int64_t gy, int64_t gz, CoilError* error) {
  fail(error, kInputSize, "kernel %s would need a grid of %lld x %lld x %lld blocks, and a device takes %d x %d x %d: the inputs are too large", k.label,
       static_cast<long long>(gx), static_cast<long long>(gy), static_cast<long long>(gz), kMostGridX, kMostGridYZ, kMostGridYZ);
  return kInputSize;
}

CudaResult enqueue_kernel(const CudaLoaded& d, void* function, const CudaLaunchConfig& config, const CudaKernel& k, void** values) {
  CudaLaunchAttribute attributes[2];
  uint32_t count = 0;
  const int32_t cluster = k.cluster;
  if (d.early && !k.image) attributes[count].id = kCudaEarlyStart, attributes[count++].early = 1;
  if (cluster > 1) {
    CudaLaunchAttribute& a = attributes[count++];
    a.id = kCudaClusterDimension;
    a.cluster[0] = static_cast<uint32_t>(cluster), a.cluster[1] = a.cluster[2] = 1;
  }
  if (count == 0)
    return d.driver->launch(function, config.grid[0], config.grid[1], config.grid[2], config.block[0], 1, 1, config.shared_bytes, config.stream, values,
                            nullptr);
  CudaLaunchConfig with = config;
  with.attributes = attributes, with.num_attributes = count;
  return d.driver->launch_ex(&with, function, values, nullptr);
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
  CudaLoaded* d = static_cast<CudaLoaded*>(calloc(1, sizeof(CudaLoaded)));
  if (!d) return fail(error, kOutOfMemory, "no memory for the model's code"), error->code;
  d->driver = driver;
  d->code = &code;
  d->ordinal = ordinal;
  const char* sync = getenv("COIL_CUDA_SYNC");
  d->synchronous = sync && *sync && strcmp(sync, "0") != 0;
  d->modules = static_cast<void**>(calloc(static_cast<size_t>(code.num_images) + 1, sizeof(void*)));
  d->functions = static_cast<void**>(calloc(static_cast<size_t>(code.num_kernels) + 1, sizeof(void*)));
  int32_t failed = kOutOfMemory;
  if (d->modules && d->functions) failed = open_device(d, error);
  else fail(error, kOutOfMemory, "no memory for the model's code");
  if (failed) {
    destroy(d);
    return failed;
  }
  *device = d;
  return 0;
}

void cuda_unload(void* device) {
  if (device) destroy(static_cast<CudaLoaded*>(device));
}

bool cuda_has(const CoilCall* call, int32_t kernel) { return loaded_of(call).functions[kernel]; }

__attribute__((noinline, cold)) int32_t cuda_absent(const CoilCall* call, int32_t kernel, CoilError* error) {
  const CudaLoaded& d = loaded_of(call);
  const CudaKernel& k = d.code->kernels[kernel];
  const int32_t max_shared = max_shared_bytes(d);
  if (k.shared_bytes > max_shared)
    fail(error, kWrongMachine, "kernel %s needs %d bytes of shared memory a block, and cuda:%d (sm_%d) has %d; compile the program for it: --target cuda:sm_%d",
         k.label, k.shared_bytes, d.ordinal, d.sm, max_shared, d.sm);
  else if (k.cluster > 1 && (d.sm < 90 || !d.driver->launch_ex))
    fail(error, kWrongMachine,
         "kernel %s needs clusters of %d blocks, which cuda:%d (sm_%d) or its driver does not have; compile the program for it: --target cuda:sm_%d", k.label,
         k.cluster, d.ordinal, d.sm, d.sm);
  else
    fail(
        error, kBadPackage,
        "kernel %s: the code that was loaded for sm_%d has no function '%s': it is of another compilation than the package's host program; compile the program "
        "again",
        k.label, d.sm, k.name);
  return error->code;
}

int32_t cuda_sms(const CoilCall* call) { return loaded_of(call).multiprocessors; }
int32_t cuda_clusters(const CoilCall* call, int32_t blocks) {
  const CudaLoaded& d = loaded_of(call);
  return blocks == 4 ? d.fours : d.multiprocessors / blocks;
}
int32_t cuda_sm(const CoilCall* call) { return loaded_of(call).sm; }
CudaAttachment* cuda_attachment(const CoilCall* call, int32_t which) { return &static_cast<CudaLoaded*>(call->device)->attachments[which]; }

int32_t cuda_run(const CudaProgram& program, const CoilCall* call, CoilError* error) {
  CudaGraphs* graphs = loaded_of(call).graphs;
  if (graphs && program.graphs) return cuda_graphs_run(graphs, program, call, error);
  return cuda_run_traced(program, call, nullptr, error);
}

int32_t cuda_run_traced(const CudaProgram& program, const CoilCall* call, const CoilTrace* trace, CoilError* error) {
  const CudaCall plain = {{*call, trace}, nullptr};
  return program.enqueue(&plain, error);
}

void cuda_count_graphs(void* device, CoilGraphCounts* counts) {
  *counts = {};
  if (CudaGraphs* graphs = static_cast<CudaLoaded*>(device)->graphs) cuda_graphs_count(graphs, counts);
}

int32_t cuda_launch(const CudaCall* call, int32_t kernel, int64_t gx, int64_t gy, int64_t gz, const CudaParam* params, int32_t num_params, CoilError* error) {
  if (gx == 0 || gy == 0 || gz == 0) return 0;
  const CudaLoaded& d = loaded_of(call);
  const CudaKernel& k = d.code->kernels[kernel];
  if (gx < 0 || gx > kMostGridX || gy < 0 || gy > kMostGridYZ || gz < 0 || gz > kMostGridYZ || num_params > kMaxCudaParams)
    return fail_grid(k, gx, gy, gz, error);
  void* function = d.functions[kernel];
  if (!function) return cuda_absent(call, kernel, error);
  const CudaLaunchConfig config = {{static_cast<uint32_t>(gx), static_cast<uint32_t>(gy), static_cast<uint32_t>(gz)},
                                   {static_cast<uint32_t>(k.threads), 1, 1},
                                   static_cast<uint32_t>(k.shared_bytes),
                                   call->stream,
                                   nullptr,
                                   0};
  if (call->tape) return tape_kernel(call->tape, function, config, k, params, num_params), 0;
  void* values[kMaxCudaParams];
  for (int32_t i = 0; i < num_params; i++) values[i] = const_cast<void*>(params[i].value);
  CudaResult result = enqueue_kernel(d, function, config, k, values);
  if (__builtin_expect(d.synchronous && result == kCudaSuccess, false) && !is_capturing(d.driver, call->stream))
    result = d.driver->synchronise_stream(call->stream);
  return __builtin_expect(result != kCudaSuccess, false) ? fail_kernel(d, kernel, result, error) : 0;
}

int32_t cuda_may_wait(const CudaCall* call, CoilError* error) {
  if (!is_capturing(loaded_of(call).driver, call->stream)) return 0;
  fail(
      error, kUnsupported,
      "the program goes on by what its data says (sizes, branches, loops, routines of the CPU), for which the host waits: a CUDA graph cannot record it; call it outside of the capture");
  return kUnsupported;
}

int32_t cuda_read(const CudaCall* call, void* to, const void* from, uint64_t bytes, void (*flag_error)(int32_t flag, CoilError* error), CoilError* error) {
  const CudaDriver* driver = loaded_of(call).driver;
  if (const int32_t failed = cuda_may_wait(call, error)) return failed;
  const CudaAddress flag = reinterpret_cast<CudaAddress>(call->flag);
  int32_t fault = 0;
  CudaResult result = kCudaSuccess;
  if (bytes) result = driver->copy_out(to, reinterpret_cast<CudaAddress>(from), bytes, call->stream);
  if (result == kCudaSuccess && flag) result = driver->copy_out(&fault, flag, sizeof fault, call->stream);
  if (result == kCudaSuccess) result = driver->synchronise_stream(call->stream);
  if (result != kCudaSuccess) return cuda_fail(driver, result, error, "cannot read what the device has computed");
  if (!fault) return 0;
  driver->fill(flag, 0, sizeof fault, call->stream);  // told now, and not again by the next call
  driver->synchronise_stream(call->stream);
  flag_error(fault, error);
  return error->code;
}

int32_t cuda_copy(const CudaCall* call, void* to, const void* from, uint64_t bytes, CoilError* error) {
  if (!bytes) return 0;
  if (call->tape) return tape_copy(call->tape, to, from, bytes), 0;
  const CudaDriver* driver = loaded_of(call).driver;
  const CudaResult result = driver->copy(reinterpret_cast<CudaAddress>(to), reinterpret_cast<CudaAddress>(from), bytes, call->stream);
  return result == kCudaSuccess ? 0 : cuda_fail(driver, result, error, "a copy on the device failed");
}

void cuda_trace(const char* format, ...) {
  const char* wish = getenv("COIL_CUDA_TRACE");
  if (!wish || !*wish || strcmp(wish, "0") == 0) return;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "coil: %s\n", text);
}

}  // namespace cd
