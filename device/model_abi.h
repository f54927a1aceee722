/* The boundary between a model's generated code and its host, in C.
 *
 * A model's shared object exports `coil_model` (below) for coil's own runtime, and the AOTInductor C ABI for libtorch; the
 * latter is a thin adapter over the former (device/aoti_adapter.cc). The object imports only libc/libm symbols.
 * A model is for one kind of device: the CPU, or CUDA (whose driver it looks up at load_device, not before).
 *
 * A call, as both hosts make it:
 *   bind        checks every input and solves the dynamic sizes        (no memory is touched but descriptors)
 *   find_fault  after a bind that failed: the fields of its error      (for programs that mend the call)
 *   output_*    gives the sizes and strides of the outputs             (the host allocates them)
 *   arena_bytes gives the size of the one scratch allocation of a call (64-byte aligned, contents undefined)
 *   run         computes; deterministic, thread-safe for distinct arenas and outputs
 * All functions are re-entrant. Nothing here allocates, but for work space of library routines (device/library.h).
 *
 * Sizes that depend on data (nonzero, x.item() as a size) are symbols that run solves: outputs with such sizes ("late" ones) have
 * no data when run is called. run has CoilCall.allocate make them, and scratch memory whose size has no bound before.
 *
 * On CUDA all data is in the memory of the device that load_device took, except symbolic scalar inputs (0-d int64 tensors),
 * which bind reads: those are on the CPU. run makes the device's context current for the calling thread (and leaves it so),
 * enqueues the work on CoilCall.stream and returns without waiting (a program whose sizes or steps its data decides waits for the
 * device in between: cd::cuda_read); what only the kernels can see (an index out of range in
 * the data) they write to *CoilCall.flag, and flag_error words it. The host looks there after it has synchronised.
 */
#ifndef COIL_DEVICE_MODEL_ABI_H_
#define COIL_DEVICE_MODEL_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CudaSample; /* cuda/sample_rules.h */

#define COIL_ABI_VERSION 2u
#define COIL_MAX_RANK 16

/* dtype numbers are those of PyTorch's C shim (c10::ScalarType). */
enum {
  COIL_UINT8 = 0,
  COIL_INT8 = 1,
  COIL_INT16 = 2,
  COIL_INT32 = 3,
  COIL_INT64 = 4,
  COIL_FLOAT16 = 5,
  COIL_FLOAT32 = 6,
  COIL_FLOAT64 = 7,
  COIL_COMPLEX32 = 8,
  COIL_COMPLEX64 = 9,
  COIL_COMPLEX128 = 10,
  COIL_BOOL = 11,
  COIL_BFLOAT16 = 15,
  COIL_UINT16 = 27,
  COIL_UINT32 = 28,
  COIL_UINT64 = 29,
  COIL_FLOAT8_E5M2 = 23,
  COIL_FLOAT8_E4M3FN = 24,
  COIL_FLOAT8_E5M2FNUZ = 25,
  COIL_FLOAT8_E4M3FNUZ = 26,
  COIL_FLOAT8_E8M0FNU = 44
};
enum { COIL_CPU = 0, COIL_CUDA = 1 };

/* A borrowed strided tensor. `data` already includes the storage offset. Strides are in elements; null strides: contiguous. */
typedef struct CoilTensorView {
  void* data;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t ndim;
  int32_t dtype;
  int32_t device_type;
  int32_t device_index;
} CoilTensorView;

/* Filled on failure. `code` is a COIL-Exxx number (src/base/error_codes.def). */
typedef struct CoilError {
  int32_t code;
  char message[1020];
} CoilError;

/* What an error of bind says in words, as fields. */
typedef struct CoilInputFault {
  int32_t input;                  /* its number; -1: none in particular */
  int32_t ndim;                   /* how many strides there are: the input's rank where they are at fault (205), else 0 */
  int64_t strides[COIL_MAX_RANK]; /* those that the program expects, for the sizes of the call */
} CoilInputFault;

/* Work on items [begin, end). `worker` is in [0, CoilHost.num_workers) and unique among the concurrent calls of one loop. */
typedef void (*CoilChunkFn)(void* context, int64_t begin, int64_t end, int32_t worker);

/* What the host gives a call. parallel_for runs fn over [0, count) in chunks of at least `grain` items, on up to num_workers
 * threads (the caller's included), and returns when all are done. Chunks are handed out dynamically, in order. Not nested. */
typedef struct CoilHost {
  int32_t num_workers;
  void* pool;
  void (*parallel_for)(void* pool, int64_t count, int64_t grain, CoilChunkFn fn, void* context);
} CoilHost;

typedef struct CoilCall {
  const int64_t* symbols;   /* [num_symbols], from bind */
  const uint8_t* constants; /* the constants blob, 64-byte aligned, read-only, shared */
  uint8_t* state;           /* mutable buffers ([state_bytes], initialised from constants + state_offset), or null */
  void* const* inputs;      /* [num_inputs] data pointers */
  void* const* outputs;     /* [num_outputs] data pointers */
  uint8_t* arena;           /* [arena_bytes] */
  const CoilHost* host;     /* the CPU's threads; null on CUDA */
  void* device;             /* of load_device, or null */
  void* stream;             /* CUstream of that device, null: its default stream */
  int32_t* flag;            /* device-accessible (pinned, mapped) memory, written when a kernel finds fault; null: nobody asks */
  /* What only the data sizes; null unless the model is `reads_sizes`. Called from run, on its thread. output >= 0: gives that late
   * output memory; `symbols` has the values for output_shape. output == -1: `bytes` of scratch memory (64-byte aligned) that is
   * left alone until run has returned. Returns 0, or 1 with *error filled. */
  int32_t (*allocate)(void* owner, int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* error);
  void* owner;
} CoilCall;

/* Who watches a call (run_traced): told when a kernel begins and ends, on the thread that runs it. `kernel` is its row in the
 * manifest's list of kernels, `symbols` the sizes as they are then: those from data and the steps of loops, too, once they are
 * known. `worker` is 0, but where several workers run kernels at once, image by image. A call that fails leaves out the end. */
typedef struct CoilTrace {
  void (*begin)(const struct CoilTrace* trace, int32_t kernel, int32_t worker, const int64_t* symbols);
  void (*end)(const struct CoilTrace* trace, int32_t kernel, int32_t worker);
  void* owner;
} CoilTrace;

typedef struct CoilTensorDesc {
  const char* name; /* as in the exported program */
  int32_t dtype;
  int32_t ndim;
} CoilTensorDesc;

/* What became of the calls of one device as CUDA graphs (device/cuda_graph.h). */
typedef struct CoilGraphCounts {
  int64_t calls;         /* of the program */
  int64_t graph_calls;   /* of them: launched as a graph */
  int64_t changed_calls; /* of these: with other addresses than the call before */
  int64_t graphs;        /* held now */
} CoilGraphCounts;

typedef struct CoilModel {
  uint32_t abi_version;  /* COIL_ABI_VERSION */
  uint32_t struct_bytes; /* sizeof(CoilModel) */
  int32_t num_inputs;    /* tensor inputs and symbolic scalar inputs, flattened; fixed non-tensor inputs are dropped */
  int32_t num_outputs;
  int32_t num_symbols;
  int32_t device_type; /* COIL_CPU, COIL_CUDA */
  const CoilTensorDesc* inputs;
  const CoilTensorDesc* outputs;
  const char* in_spec; /* pytree specs of the exported program, JSON */
  const char* out_spec;
  uint64_t constants_bytes;
  uint64_t constants_hash; /* XXH3-64 of the blob: tells a package whose blob was swapped */
  uint64_t state_offset;   /* where in the constants blob the initial state begins; what lies behind the blob's end is zero */
  uint64_t state_bytes;
  /* 0, or 1 with *error when no code in this object fits the machine. Called once before any other function. For CUDA models
   * it succeeds and gives "cuda": load_device decides. */
  int32_t (*select)(const char** isa_name, CoilError* error);
  int32_t (*bind)(const CoilTensorView* inputs, int32_t num_inputs, int64_t* symbols, CoilError* error);
  /* For output i writes inputs' ndim sizes and strides. */
  void (*output_shape)(const int64_t* symbols, int32_t i, int64_t* sizes, int64_t* strides);
  int64_t (*arena_bytes)(const int64_t* symbols, int32_t num_workers);
  int32_t (*run)(const CoilCall* call, CoilError* error);
  /* The three are null for CPU models. load_device takes the primary context of CUDA device `ordinal` and loads the code for
   * its architecture; *device goes into CoilCall and may serve any number of concurrent calls. */
  int32_t (*load_device)(int32_t ordinal, void** device, CoilError* error);
  void (*unload_device)(void* device);
  /* Words what a kernel wrote to *CoilCall.flag (a value other than 0). */
  void (*flag_error)(int32_t flag, CoilError* error);
  /* Later than the rest: absent where struct_bytes ends before it. May be null. */
  void (*count_graphs)(void* device, CoilGraphCounts* counts);
  int32_t reads_sizes;         /* not 0: run calls CoilCall.allocate */
  const uint8_t* late_outputs; /* [num_outputs], 1: sized by data (output_shape before run gives sizes that mean nothing); or null */
  /* As run, which tells nobody. On CUDA the kernels are then enqueued one by one, never as a graph. Absent in older packages. */
  int32_t (*run_traced)(const CoilCall* call, const CoilTrace* trace, CoilError* error);
  /* As bind, which also fills *fault where it fails. Takes longer than bind. Absent in older packages. */
  int32_t (*find_fault)(const CoilTensorView* inputs, int32_t num_inputs, int64_t* symbols, CoilInputFault* fault, CoilError* error);
  /* CUDA models that generate text: enqueues the choice of a token for each row of logits on call->stream (device/cuda/sample_rules.h), of which `call` gives
   * device and stream. Null for others, absent in older packages. */
  int32_t (*sample)(const CoilCall* call, const struct CudaSample* rows, int32_t num_rows, CoilError* error);
  uint64_t sample_row_bytes; /* sizeof(CudaSample) as `sample` reads it: a host that has another one chooses tokens itself */
} CoilModel;

/* The package's constants entry is the blob of constants_bytes, then optionally this trailer. Both hosts compare it with
 * constants_hash at load: it tells a blob of another compile without reading the blob. */
typedef struct CoilConstantsTrailer {
  char magic[8]; /* COIL_CONSTANTS_MAGIC, no terminating zero */
  uint64_t hash; /* constants_hash of the model that the blob belongs to */
} CoilConstantsTrailer;
#define COIL_CONSTANTS_MAGIC "COILWTS1"

/* For programs of whose results some are None: the shared object then has a hidden symbol COIL_RESULTS_SYMBOL of this type, which
 * the AOTInductor adapter reads (libtorch takes a null handle for None). The outputs of CoilModel are the tensors alone. */
typedef struct CoilResults {
  int32_t num_results;   /* all flattened results */
  const int32_t* places; /* [num_outputs], rising: where each output stands among them */
} CoilResults;
#define COIL_RESULTS_SYMBOL coil_results
/* A hidden string: the formula of arena_bytes in the user's words, for messages. May be absent. */
#define COIL_ARENA_FORMULA_SYMBOL coil_arena_formula

/* A hidden string: what a profiler calls each kernel, "add_layer_norm: encoder.layer.0 (model.py:12)", one after the other in the
 * manifest's order, each with its terminating zero. May be absent. */
#define COIL_KERNEL_LABELS_SYMBOL coil_kernel_labels

/* Builds that a tuner makes (and no package holds) export COIL_TUNING_SYMBOL: run takes kernel k's numbers (Choice in
 * schedule/kernel_plan.h) from choices[k], and calls `hook`, if there is one, before and after each kernel that is tuned, on its own
 * thread; `results`: null before; after: the addresses of the buffers that the kernel wrote, in the plan's order, then null. */
typedef struct CoilTuning {
  const int32_t (*choices)[4];
  void (*hook)(void* owner, int32_t kernel, void* const* results);
  void* owner;
} CoilTuning;
#define COIL_TUNING_SYMBOL "coil_tuning"

/* Builds that `coil diff` makes (and no package holds) export COIL_WATCH_SYMBOL: run calls `hook` after each kernel, control flow counting as
 * one, on its own thread; `results`: the addresses of the buffers that the kernel wrote, in the plan's order, then null; `symbols`: the values
 * of all sizes so far. */
typedef struct CoilWatch {
  void (*hook)(void* owner, int32_t kernel, void* const* results, const long* symbols);
  void* owner;
} CoilWatch;
#define COIL_WATCH_SYMBOL "coil_watch"

/* The one symbol that coil's runtime looks up. */
typedef const CoilModel* (*CoilModelFn)(void);
#define COIL_MODEL_SYMBOL "coil_model"

#ifdef __cplusplus
}
#endif
#endif /* COIL_DEVICE_MODEL_ABI_H_ */
