/* coil's runtime in C: opens a package that `coil compile` wrote and runs it. Links libc, libm and the C++ library only.
 *
 *   coil_model* model;
 *   coil_context* context;
 *   float x[2 * 16] = {...};
 *   int64_t sizes[] = {2, 16};
 *   coil_tensor input = {.data = x, .sizes = sizes, .rank = 2, .dtype = COIL_DTYPE_FLOAT32}, output = {0};
 *   if (coil_open("model.coil.pt2", NULL, &model) || coil_context_create(model, &context) ||
 *       coil_run(context, &input, 1, &output, 1)) { fprintf(stderr, "%s\n", coil_last_error()); exit(1); }
 *
 * Errors: every function that returns coil_status returns COIL_OK or the number of a COIL-Exxx code (docs/errors.md), and
 * coil_last_error() gives the text. A failed call changes nothing; the next one is as good as the first.
 * Threads: a model is immutable and may be shared by all threads. A context serves one call at a time: give each thread its
 * own. Models whose program mutates a buffer (a counter, a cache) keep one state for all contexts, and their calls take turns;
 * contexts that are given states of their own (coil_state_create) have nothing in common.
 * Sizes and strides are counted in elements, memory in bytes. Nothing here aborts, prints, or throws, also when memory, threads or
 * files run out. A NULL handle is COIL-E402, or 0, -1 and "" where no status is returned.
 *
 * CUDA: coil_open with device = "cuda:0" (of a package that has code for it). Tensors are then in that device's memory; a run
 * enqueues its work on a stream and returns; what the CPU wants to see it copies out, or waits for:
 *
 *   coil_options options = {.struct_bytes = sizeof options, .device = "cuda:0"};
 *   void* x;                                              // or a CUDA pointer of your own
 *   coil_open("model.coil.pt2", &options, &model); coil_context_create(model, &context);
 *   coil_alloc(model, bytes, &x); coil_copy_to_device(context, x, host_x, bytes);
 *   coil_tensor input = {.data = x, ..., .device_type = COIL_DEVICE_CUDA}, output = {0};
 *   coil_run_on(context, stream, &input, 1, &output, 1);  // checked and enqueued
 *   coil_copy_from_device(context, host_y, output.data, output_bytes);
 *
 * No address that is not the device's reaches a kernel: COIL-E206 instead. Faults that only the data shows (an index out of
 * range) come from coil_synchronize and coil_copy_from_device, or from the context's next run.
 */
#ifndef COIL_COIL_H_
#define COIL_COIL_H_

#include <stddef.h>
#include <stdint.h>

#if defined(COIL_STATIC)
#define COIL_API
#else
#define COIL_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t coil_status; /* 0, or the number of an error code: 204 is COIL-E204 */
#define COIL_OK 0

/* The numbers are PyTorch's (c10::ScalarType). */
typedef enum coil_dtype {
  COIL_DTYPE_UINT8 = 0,
  COIL_DTYPE_INT8 = 1,
  COIL_DTYPE_INT16 = 2,
  COIL_DTYPE_INT32 = 3,
  COIL_DTYPE_INT64 = 4,
  COIL_DTYPE_FLOAT16 = 5,
  COIL_DTYPE_FLOAT32 = 6,
  COIL_DTYPE_FLOAT64 = 7,
  COIL_DTYPE_COMPLEX32 = 8,
  COIL_DTYPE_COMPLEX64 = 9, /* pairs: real part, imaginary part */
  COIL_DTYPE_COMPLEX128 = 10,
  COIL_DTYPE_BOOL = 11,
  COIL_DTYPE_BFLOAT16 = 15,
  COIL_DTYPE_UINT16 = 27,
  COIL_DTYPE_UINT32 = 28,
  COIL_DTYPE_UINT64 = 29,
  COIL_DTYPE_FLOAT8_E5M2 = 23,
  COIL_DTYPE_FLOAT8_E4M3FN = 24,
  COIL_DTYPE_FLOAT8_E5M2FNUZ = 25,
  COIL_DTYPE_FLOAT8_E4M3FNUZ = 26,
  COIL_DTYPE_FLOAT8_E8M0FNU = 44
} coil_dtype;

typedef enum coil_device_type { COIL_DEVICE_CPU = 0, COIL_DEVICE_CUDA = 1 } coil_device_type;

typedef struct coil_model coil_model;
typedef struct coil_context coil_context;
typedef struct coil_state coil_state;

/* A tensor that somebody else owns. Fields that are 0 have sensible meanings: no strides, on the CPU. Of a model on CUDA all
 * tensors are on its device, but for symbolic integers (coil_tensor_info tells). */
typedef struct coil_tensor {
  void* data;             /* first element; aligned to the element's size; may be NULL when a size is 0 */
  const int64_t* sizes;   /* [rank], in elements */
  const int64_t* strides; /* [rank], in elements; NULL: contiguous (row-major) */
  int32_t rank;
  int32_t dtype;        /* coil_dtype */
  int32_t device_type;  /* coil_device_type */
  int32_t device_index; /* which CUDA device; 0 on the CPU */
} coil_tensor;

/* Runs body over [0, count) in chunks of at least `grain` items on at most num_workers threads and returns when all are done;
 * `worker` is in [0, num_workers) and unique among the concurrent calls of one loop. Loops are not nested. */
typedef void (*coil_chunk_function)(void* context, int64_t begin, int64_t end, int32_t worker);
typedef void (*coil_parallel_for)(void* pool, int64_t count, int64_t grain, coil_chunk_function body, void* context);

/* Checking weights reads all of them, where they are otherwise mapped and read as they are used. */
typedef enum coil_verify {
  COIL_VERIFY_SMALL = 0, /* where it takes no time to speak of: up to 64 KiB, and compressed ones */
  COIL_VERIFY_ALL = 1,
  COIL_VERIFY_NONE = 2
} coil_verify;

/* How to open a model; a NULL pointer is the default. The struct may grow: set struct_bytes, zero what you do not use. */
typedef struct coil_options {
  uint32_t struct_bytes;          /* sizeof(coil_options); COIL-E402 without it */
  int32_t num_threads;            /* threads of a call, the caller's included. 0: what affinity and cgroup allow (or
                                     COIL_THREADS), in a pool that all models with this default share. 1: the caller's only. */
  coil_parallel_for parallel_for; /* your own threads instead; then num_threads is how many, at least 1 */
  void* pool;                     /* passed to parallel_for */
  const char* device;             /* "cpu", "cuda" (device 0), "cuda:1". NULL: the first of the package's targets that this machine
                                     can run. COIL-E303: the package has no code for it, COIL-E306: no CUDA driver, COIL-E307:
                                     no such device */
  int32_t verify;                 /* coil_verify: whether weights are compared with the package's checksums; a wrong one is COIL-E010. Code always is */
  const char* program;            /* of a package of several, by its name; NULL: the first one. COIL-E402, with the names, where there is none of it */
} coil_options;

/* One dimension. A fixed one has min == max and symbol NULL. A dynamic one has the user's word for it ("batch"), or, when it is
 * computed from others, an expression ("2*batch + 1") and the range that follows where it is known. */
typedef struct coil_dim {
  int64_t min;        /* smallest allowed size */
  int64_t max;        /* largest allowed size; INT64_MAX: no limit */
  const char* symbol; /* name or expression; NULL: fixed */
  int64_t hint;       /* the size of the example that the program was exported with; -1: unknown */
} coil_dim;

typedef struct coil_tensor_info {
  const char* name; /* as in the exported program */
  int32_t dtype;    /* coil_dtype */
  int32_t rank;
  const coil_dim* dims; /* [rank] */
  int32_t device_type;  /* coil_device_type: where its data has to be */
} coil_tensor_info;

/* "0.1.0" of this library. */
COIL_API const char* coil_version(void);
/* The text of this thread's last error, "COIL-E204: input 'x' (0): expected ...", or "". Valid until its next error. At most 4 KiB. */
COIL_API const char* coil_last_error(void);
/* "float32"; "unknown" for a number that is no coil_dtype. */
COIL_API const char* coil_dtype_name(int32_t dtype);
/* Bytes of an element; 0 for a number that is no coil_dtype. */
COIL_API size_t coil_dtype_bytes(int32_t dtype);

/* Opens a package. The file is mapped and must not change while the model is open. Nothing is written, no process started. */
COIL_API coil_status coil_open(const char* path, const coil_options* options, coil_model** model);
/* The same from memory that stays valid and unchanged until coil_close. Align it to 64 bytes to spare a copy of the weights. */
COIL_API coil_status coil_open_memory(const void* bytes, size_t size, const coil_options* options, coil_model** model);
/* A package may hold several programs (coil compile prefill.pt2 decode.pt2): their number and their names, in the package's order. One that holds a single
 * program without a name has "model". NULL where there is no such program. */
COIL_API int32_t coil_num_programs(const coil_model* model);
COIL_API const char* coil_program_name(const coil_model* model, int32_t i);
/* The name of the program that the model is. */
COIL_API const char* coil_model_program(const coil_model* model);
/* Another program of the same package, on the same device and threads. Their weights are in memory once, and where both keep the same state, a coil_state
 * of either may be used with both. COIL-E402 where there is no program of that name. */
COIL_API coil_status coil_open_program(const coil_model* model, const char* name, coil_model** program);
/* Gives up the model; it stays alive as long as a context of it does. NULL is fine. Not while another call uses this handle. */
COIL_API void coil_close(coil_model* model);

/* Tensor inputs and symbolic integer inputs (0-d int64 tensors), flattened in the program's order; inputs that the export fixed
 * are left out. */
COIL_API int32_t coil_num_inputs(const coil_model* model);
/* Tensor results, flattened in the program's order; numbers that it returns are 0-d tensors, results that are None are left out. */
COIL_API int32_t coil_num_outputs(const coil_model* model);
/* Where output i stands among all flattened results, those that are None included; -1 when there is no such output. */
COIL_API int32_t coil_output_position(const coil_model* model, int32_t i);
/* Describes input or output i; the pointers inside live as long as the model. COIL-E208 when there is none. */
COIL_API coil_status coil_input_info(const coil_model* model, int32_t i, coil_tensor_info* info);
COIL_API coil_status coil_output_info(const coil_model* model, int32_t i, coil_tensor_info* info);
/* The position of the input with this name, or -1. */
COIL_API int32_t coil_find_input(const coil_model* model, const char* name);
/* The code that was chosen for this machine, "x86-64-v4" or "sm_90". Lives as long as the model. */
COIL_API const char* coil_isa(const coil_model* model);
/* Threads that a call may use; 1 on CUDA. */
COIL_API int32_t coil_num_threads(const coil_model* model);
/* Where the model is: coil_device_type, and which of that type. */
COIL_API int32_t coil_model_device_type(const coil_model* model);
COIL_API int32_t coil_model_device_index(const coil_model* model);
/* CUDA devices that this process sees; 0 also when there is no driver (coil_last_error says why). */
COIL_API int32_t coil_cuda_device_count(void);
/* Puts mutated buffers back to what they were in the exported program. Not while a call runs; waits for the device. */
COIL_API coil_status coil_reset_state(coil_model* model);

/* A state: the buffers that a program changes from call to call, such as the caches of one conversation of a language model. A state belongs to its
 * model, lives as long as a context uses it, and serves one call at a time (others wait). COIL-E402 where the program keeps no state. */
/* Bytes of a state when all of it is in use; 0: the program keeps none. On the CPU a state takes what has been written to it, by pages. */
COIL_API size_t coil_state_bytes(const coil_model* model);
/* A state as the exported program begins with it. */
COIL_API coil_status coil_state_create(const coil_model* model, coil_state** state);
/* A state of its own with the same contents, copied now. */
COIL_API coil_status coil_state_fork(coil_state* state, coil_state** copy);
COIL_API void coil_state_destroy(coil_state* state);
/* Back to what the exported program begins with. */
COIL_API coil_status coil_state_reset(coil_state* state);
/* Writes the contents, without what is zero, to `bytes`, which has room for *size of them, and sets *size to how many they are; bytes == NULL: only
 * tells how many. COIL-E402 where the room is too small. */
COIL_API coil_status coil_state_save(coil_state* state, void* bytes, size_t* size);
/* Puts a state to what was saved, in this process or another, from the same package on the same kind of device. COIL-E213 when the bytes are damaged or
 * of another model or compile; then nothing changes. */
COIL_API coil_status coil_state_restore(coil_state* state, const void* bytes, size_t size);
/* The context's calls from now on use this state; NULL: the model's, which all contexts without one share. COIL-E213 for a state of another model, but
 * for that of another program of the package which keeps the same: buffers of the same names, dtypes and shapes (coil_state_create gives it the first values of
 * its own program). The context keeps the state alive. Not while the context runs. */
COIL_API coil_status coil_context_use_state(coil_context* context, coil_state* state);

/* What one call at a time needs: scratch memory and runtime-owned outputs, in the device's memory; kept between calls, grown
 * when needed. */
COIL_API coil_status coil_context_create(coil_model* model, coil_context** context);
COIL_API void coil_context_destroy(coil_context* context);

/* Checks every input, computes, and fills `outputs`.
 *
 * On entry an output is one of two:
 *   data == NULL              the context gives it memory. Every other field is ignored, so {0} will do. The same goes for data that
 *                             is memory which this context gave an output before: a coil_tensor that a call has filled may be
 *                             passed again as it is, at any sizes, and is given more memory when it needs more.
 *   data in the caller's      written in place. dtype, rank, sizes and strides (NULL: contiguous) say how large that memory is and how
 *   memory                    it is laid out; they must be those of the result, and the memory must overlap no input and no other
 *                             output: COIL-E209 otherwise, and nothing is written. The sizes are your own, or those that coil_infer,
 *                             or a run that wrote this memory, has left in the struct (pointers to the context's memory); a later
 *                             call with other sizes does not change what they say (the last 64 shapes of an output are kept).
 *                             Sizes that a run left for memory of the context do not describe yours: COIL-E209.
 * On return (COIL_OK) data is where the result is, sizes and strides point to memory of the context and describe the result; dtype,
 * rank and device are filled in. After an error every struct is as it was, but where memory of the context was given up for more before
 * the call failed: there data is NULL.
 * Memory that the context gave is valid until its next run (also one that fails), which may still read it as an input: the outputs of one run may be
 * inputs of the next.
 * A result whose size only data decides (torch.nonzero) is best passed without data: with data, its size must be the one that comes out.
 * An input that the program writes to must overlap no other tensor of the call: COIL-E209 otherwise.
 * The same inputs give the same bits, on any number of threads.
 * On CUDA this is coil_run_on with the device's default stream. */
COIL_API coil_status coil_run(coil_context* context, const coil_tensor* inputs, int32_t num_inputs, coil_tensor* outputs, int32_t num_outputs);
/* The same on a stream (a CUstream or cudaStream_t of the model's device; NULL: the default stream, and the only one on the
 * CPU). Enqueues and does not synchronise; a program whose sizes, branches or loops its data decides waits for the device in between, and
 * cannot be captured. Inputs are to be ready in the stream's order, outputs are. The stream lives until
 * the context is synchronised or gone. Calls of one context on several streams follow one another, since they share its memory;
 * for work side by side give each stream a context. May be captured in a CUDA graph once the context has run with these sizes;
 * then the memory it used stays in use by the graph: keep the context, which frees that memory when it is closed and not before,
 * also when it runs with larger sizes. The thread's current CUDA context stays. */
COIL_API coil_status coil_run_on(coil_context* context, void* stream, const coil_tensor* inputs, int32_t num_inputs, coil_tensor* outputs, int32_t num_outputs);
/* Waits for the context's last run, and fails if a kernel of its runs failed (COIL-E404) or found an index out of range
 * (COIL-E210). On the CPU nothing is left to wait for. */
COIL_API coil_status coil_synchronize(coil_context* context);

/* Memory of the model's device (the CPU's: of the CPU), 64-byte aligned or better; for callers without a CUDA library of their
 * own. */
COIL_API coil_status coil_alloc(coil_model* model, size_t bytes, void** data);
COIL_API void coil_free(coil_model* model, void* data);
/* Copies between the caller's CPU memory and the device, in the order of the context's last run (on its stream), and return
 * when the copy is done. From the device: fails as coil_synchronize does when the run that made the data was at fault. */
COIL_API coil_status coil_copy_to_device(coil_context* context, void* device, const void* host, size_t bytes);
COIL_API coil_status coil_copy_from_device(coil_context* context, void* host, const void* device, size_t bytes);
/* Fills dtype, rank, sizes and strides of the outputs (memory of the context, as after coil_run) for inputs of these sizes,
 * data left as it is: set it to memory for that many elements (the last one is at the sum of (sizes[d] - 1) * strides[d]) and run.
 * Sizes and strides that only the data decides are -1. What the structs held before is not looked at, but for data.
 * Checks the inputs as coil_run does, and computes nothing. */
COIL_API coil_status coil_infer(coil_context* context, const coil_tensor* inputs, int32_t num_inputs, coil_tensor* outputs, int32_t num_outputs);

/* What the error of a run says in words, as fields, for programs that mend the call. */
typedef struct coil_input_fault {
  int32_t input;       /* which of the call's inputs is at fault; -1: none in particular */
  int32_t rank;        /* how many strides there are: the input's rank after COIL-E205, else 0 */
  int64_t strides[16]; /* those that the program expects, for the sizes of the call */
} coil_input_fault;
/* Of the context's last run or inference. */
COIL_API coil_status coil_fault_of_run(const coil_context* context, coil_input_fault* fault);

/* Memory of the context's last run, for measurements. */
typedef struct coil_memory {
  int64_t arena_bytes;    /* scratch: what the package's formula says for these sizes */
  int64_t output_bytes;   /* outputs that the context owns */
  int64_t constant_bytes; /* weights: mapped, shared by all processes that use the package; on CUDA one copy for the model */
  int64_t state_bytes;    /* mutated buffers, one copy for the model */
} coil_memory;
COIL_API coil_status coil_memory_of_run(const coil_context* context, coil_memory* memory);

/* The times of calls, kernel by kernel, in any process: between begin and end the calls of all contexts of the model are recorded. What
 * is computed stays the same; on CUDA a recorded call enqueues its kernels one by one (and is waited for with all_calls only), and a
 * captured one is left out.
 * COIL_PROFILE=trace.json does the same to a whole process, without a word of code (docs/profiling.md). */
typedef struct coil_profile coil_profile;
typedef struct coil_profile_options {
  uint32_t struct_bytes; /* sizeof(coil_profile_options); COIL-E402 without it */
  int32_t counters;      /* not 0: the processor's cycles, instructions and cache misses too, where the system gives them */
  int64_t calls;         /* so many calls and no more; 0: until the end */
  int32_t all_calls;     /* not 0: no call is left out; otherwise some of many very short ones are, so that all take at most 2 % longer */
} coil_profile_options;
/* model NULL: all models of the process, those that are opened later too. Several profiles may watch at once. NULL options: the defaults. */
COIL_API coil_status coil_profile_begin(coil_model* model, const coil_profile_options* options, coil_profile** profile);
/* Calls that begin from now on are not recorded. May be called again. */
COIL_API coil_status coil_profile_end(coil_profile* profile);
/* Calls recorded so far; 0 for NULL. */
COIL_API int64_t coil_profile_calls(const coil_profile* profile);
/* Writes a trace in the Chrome format, which ui.perfetto.dev shows; the file appears whole or not at all. */
COIL_API coil_status coil_profile_write(coil_profile* profile, const char* path);
/* The sums of each model and kernel, busiest first, as JSON (docs/profiling.md). Lives until the next call with this profile; "" without memory. */
COIL_API const char* coil_profile_table(coil_profile* profile);
/* Ends it and forgets what it recorded. NULL is fine. */
COIL_API void coil_profile_free(coil_profile* profile);

#ifdef __cplusplus
}
#endif
#endif /* COIL_COIL_H_ */
