// What the generated host program of a CUDA package builds on: finding the image for a device, launching, copying, tensor maps.
// Linked into CUDA packages only. Like all of the host's code: libc only, re-entrant; a call takes no memory but for what is
// kept between calls (cuda_graph.h, cuda_tensor_map.cc).
//
// The generator emits tables and thin functions:
//   static const CudaImage kImages[] = {{90, 0, image_0, 12345}, {80, 1, image_1, 2345}, ...};
//   static const CudaKernel kKernels[] = {{"k0_add", 256, 0, 1, "add (model.py:12)"}, ...};
//   static const CudaCode kCode = {kImages, 2, kKernels, 17, "sm_90, sm_80"};
//   static int32_t enqueue(const cd::CudaCall* call, CoilError* error) {
//     ... const cd::CudaParam params[] = {{&a, sizeof a}};
//     if (int32_t failed = cd::cuda_launch(call, 3, blocks, 1, 1, params, 1, error)) return failed; ... }
//   static const cd::CudaProgram kProgram = {enqueue, 2, 3, 1, true};
//   static int32_t run(const CoilCall* call, CoilError* error) { return cd::cuda_run(kProgram, call, error); }
//   static int32_t load_device(int32_t ordinal, void** device, CoilError* error) { return cd::cuda_load(kCode, ...); }
#ifndef COIL_DEVICE_CUDA_HOST_H_
#define COIL_DEVICE_CUDA_HOST_H_

#include "cuda/params.h"
#include "model_abi.h"
#include "trace.h"

struct CudaKernel {
  const char* name;      // extern "C" name in the images
  int32_t threads;       // a block
  int32_t shared_bytes;  // dynamic shared memory of a block
  int32_t cluster;       // blocks of a cluster along x; 1: none. gx is a multiple of it
  const char* label;     // for messages: "add_layer_norm (model.py:12)"
  int32_t image;         // 0: any that coil made; k + 1: image number k, which another compiler made, and whose kernel does not begin with cd::begin_kernel
};

struct CudaImage {
  int32_t sm;    // 90: sm_90 or sm_90a
  int32_t kind;  // 0: cubin for exactly sm (sm_90a), 1: cubin for the same major and any later minor, 2: PTX for sm and later
  const unsigned char* data;
  uint64_t size;
};

// Images of the same sm and kind are parts of one whole: all of them are loaded, and a kernel is looked up in each.
struct CudaCode {
  const CudaImage* images;
  int32_t num_images;
  const CudaKernel* kernels;
  int32_t num_kernels;
  const char* architectures;  // for messages: "sm_90, sm_80"
};

namespace cd {

struct CudaTape;  // what a call would enqueue (cuda_graph.h)

// A call as the program's code sees it.
struct CudaCall : TracedCall {
  CudaTape* tape;  // null: work is enqueued at once
};

// A program, for cuda_run. enqueue does the same whenever it is called with the same sizes and addresses.
struct CudaProgram {
  int32_t (*enqueue)(const CudaCall* call, CoilError* error);
  int32_t num_symbols, num_inputs, num_outputs;  // of CoilModel
  bool graphs;                                   // whether its calls may become CUDA graphs
  bool (*outlasts)(const int64_t* symbols);      // whether the device needs longer than launching the kernels one by one; null: it is not known to
};

// CoilModel::run: enqueues the program's work on call->stream, kernel by kernel or as one CUDA graph (cuda_graph.h).
int32_t cuda_run(const CudaProgram& program, const CoilCall* call, CoilError* error);

// CoilModel::run_traced: always kernel by kernel, so that each can be told apart.
int32_t cuda_run_traced(const CudaProgram& program, const CoilCall* call, const CoilTrace* trace, CoilError* error);

// CoilModel::count_graphs.
void cuda_count_graphs(void* device, CoilGraphCounts* counts);

// CoilModel::select of CUDA models.
int32_t select_cuda(const char** name, CoilError* error);

// CoilModel::load_device: takes the primary context of device `ordinal` and loads what of `code` serves it best: exact cubins,
// else compatible ones, else PTX; of a kind those of the highest sm. They may lack kernels, and kernels that the device cannot
// run (shared memory, clusters) count as lacking: ask cuda_has. `code` must outlive *device. The caller's current context
// stays. COIL-E303 when nothing fits, COIL-E306 and COIL-E307 without driver or device.
int32_t cuda_load(const CudaCode& code, int32_t ordinal, void** device, CoilError* error);
void cuda_unload(void* device);

// Of call->device:
bool cuda_has(const CoilCall* call, int32_t kernel);
// Fails with the reason why it has not: COIL-E303 where the device lacks what the kernel needs, COIL-E301 where the code lacks the kernel.
int32_t cuda_absent(const CoilCall* call, int32_t kernel, CoilError* error);
int32_t cuda_sms(const CoilCall* call);  // multiprocessors
// Clusters of `blocks` (1, 2, 4) that run at once, where a multiprocessor has room for one block.
int32_t cuda_clusters(const CoilCall* call, int32_t blocks);
int32_t cuda_sm(const CoilCall* call);  // 90: compute capability 9.0

// What a library keeps for call->device (cuda_blas.h, cuda_dnn.h). The slots are null at first; who fills one guards it.
// cuda_unload calls `drop`, with the device's context current, unless the driver has shut down before.
struct CudaAttachment {
  void* state;
  void (*drop)(void* state);
};
enum : int32_t { kCublasAttachment, kCudnnAttachment, kCudaAttachments };
CudaAttachment* cuda_attachment(const CoilCall* call, int32_t which);

// A kernel's parameter: its value, and the bytes that the kernel takes.
struct CudaParam {
  const void* value;
  uint32_t bytes;
};

// Both enqueue on call->stream and want the device's context current (the host sees to that). 0, or a code with *error.
// A grid of no blocks launches nothing.
int32_t cuda_launch(const CudaCall* call, int32_t kernel, int64_t gx, int64_t gy, int64_t gz, const CudaParam* params, int32_t num_params, CoilError* error);
// 0 where the call's stream can be waited for; COIL-E105 while it is captured.
int32_t cuda_may_wait(const CudaCall* call, CoilError* error);
// Waits until all that the call has enqueued so far is done, and copies `bytes` from the device to the host's memory. A fault that a kernel has reported by
// then fails the call in the words of `flag_error`. bytes 0: it only waits and looks. A stream that is being captured cannot be waited for: COIL-E105.
int32_t cuda_read(const CudaCall* call, void* to, const void* from, uint64_t bytes, void (*flag_error)(int32_t flag, CoilError* error), CoilError* error);
// Between two places on the device.
int32_t cuda_copy(const CudaCall* call, void* to, const void* from, uint64_t bytes, CoilError* error);
constexpr int32_t kMapTf32 = -32;  // a map's dtype: float32 that TMA rounds to TensorFloat-32
// Describes a row-major matrix for TMA: box_rows x box_cols boxes (box_cols elements are at most 128 bytes), 128-byte swizzle,
// zeros outside. base and pitch_bytes are multiples of 16. dtype: a COIL_ number, or kMapTf32. Enqueues nothing. The device keeps the maps that were made last.
int32_t cuda_tensor_map(const CoilCall* call, CudaTensorMap* map, int32_t dtype, const void* base, int64_t rows, int64_t cols, int64_t pitch_bytes,
                        int32_t box_rows, int32_t box_cols, CoilError* error);
// Of a row-major matrix of 2-byte elements of which `classes` rows (2, 4, 8) are a multiple of 16 bytes: the map of the rows index, index + classes, ...
// Column c of the matrix is column c + (address of row `index`) % u / 2 of the map; u: 32, or 16 where `classes` rows are no multiple of 32 bytes.
int32_t cuda_class_map(const CoilCall* call, CudaTensorMap* map, int32_t dtype, const void* base, int64_t rows, int64_t cols, int64_t row_stride,
                       int32_t classes, int32_t index, int32_t box_rows, CoilError* error);
// Rows of `dim` contiguous elements of 2 bytes: element i of row r of head h of batch b at base + b * batch_stride + h * head_stride +
// r * row_stride + i, strides in elements.
struct CudaRows {
  const void* base;
  int64_t batch, heads, rows, dim, batch_stride, head_stride, row_stride;
};
// Whether a map can describe them: none of the sizes 0, the first elements of rows at multiples of 16 bytes, no shared rows.
bool cuda_rows_fit(const CudaRows& x);
// Describes them for TMA: boxes of 64 elements of box_rows rows of a head, 128-byte swizzle, zeros outside of a head's rows.
int32_t cuda_rows_map(const CoilCall* call, CudaTensorMap* map, int32_t dtype, const CudaRows& x, int32_t box_rows, CoilError* error);

// Prints a line to stderr under COIL_CUDA_TRACE=1.
__attribute__((format(printf, 1, 2))) void cuda_trace(const char* format, ...);

}  // namespace cd

#endif  // COIL_DEVICE_CUDA_HOST_H_
